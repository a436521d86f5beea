"""When the host's and the device's weights are brought up to date, and what a module may not do."""

import copy
import gc
import io
import pickle

import pytest
import torch

import poptorch
from poptorch import Error
from tests.helpers import quiet_options

X, T = torch.arange(6.0).reshape(2, 3), torch.ones(2, 2)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)
        self.norm = torch.nn.BatchNorm1d(2)

    def forward(self, x, target):
        y = self.norm(self.fc(x))
        return y, torch.nn.functional.mse_loss(y, target)


def trained(net):
    """An executor that has run once, and the list that gets an entry with each copy to the host."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    copies = []
    original = model.copyWeightsToHost

    def counted():
        copies.append(1)
        return original()

    model.copyWeightsToHost = counted
    model(X, T)
    return model, copies


READERS = {
    "parameters": lambda net, held: list(net.parameters()),
    "named_parameters": lambda net, held: dict(net.named_parameters()),
    "buffers": lambda net, held: list(net.buffers()),
    "state_dict": lambda net, held: net.state_dict(),
    "attribute": lambda net, held: net.fc.weight,
    "data": lambda net, held: net.fc.weight.data,
    "deepcopy": lambda net, held: copy.deepcopy(net),
    "pickle": lambda net, held: pickle.dumps(net),
    "torch.save": lambda net, held: torch.save(net, io.BytesIO()),
    "call": lambda net, held: net(X, T),
    "move": lambda net, held: net.to("cpu"),
    "held, str": lambda net, held: str(held["fc.weight"]),
    "held, numpy": lambda net, held: held["fc.weight"].detach().numpy(),
    "held, item": lambda net, held: held["fc.bias"][0].item(),
    "held, first of equal": lambda net, held: torch.equal(held["fc.weight"], torch.zeros(2, 3)),
    "held, second of equal": lambda net, held: torch.equal(torch.zeros(2, 3), held["fc.weight"]),
    "held, in a list": lambda net, held: torch.stack([torch.zeros(2, 3), held["fc.weight"]]),
    "held, keyword": lambda net, held: torch.add(torch.zeros(2), other=held["fc.bias"]),
    "held, deepcopy": lambda net, held: copy.deepcopy(held["fc.weight"]),
    "held, pickle": lambda net, held: pickle.dumps(held["fc.weight"]),
    "held buffer": lambda net, held: held["norm.running_mean"].sum(),
    "held buffer, deepcopy": lambda net, held: copy.deepcopy(held["norm.running_mean"]),
    "held buffer, pickle": lambda net, held: pickle.dumps(held["norm.running_mean"]),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_one_copy_at_the_first_read(read):
    net = Net()
    held = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    model, copies = trained(net)
    assert not copies, "training copied weights"
    for _ in range(2):
        read(net, held)
        assert len(copies) == 1
    model(X, T)
    assert len(copies) == 1
    read(net, held)
    assert len(copies) == 2


METADATA = {
    "shape": lambda weight: weight.shape,
    "dtype": lambda weight: weight.dtype,
    "size": lambda weight: weight.size(0),
    "numel": lambda weight: weight.numel(),
    "requires_grad": lambda weight: weight.requires_grad,
    "grad": lambda weight: weight.grad,
    "len": len,
}


@pytest.mark.parametrize("look", METADATA.values(), ids=METADATA)
def test_metadata_needs_no_copy(look):
    net = Net()
    weight = net.fc.weight
    _, copies = trained(net)
    look(weight)
    assert not copies


def test_weights_outlive_their_executor():
    net = Net()
    held = net.norm.bias
    before = [held.detach().clone(), net.fc.weight.detach().clone()]
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))
    model(X, T)
    del model
    gc.collect()
    assert not torch.equal(held, before[0])
    assert not torch.equal(net.fc.weight, before[1])
    torch.testing.assert_close(poptorch.inferenceModel(net, quiet_options())(X, T)[0],
                               copy.deepcopy(net)(X, T)[0], rtol=1e-5, atol=1e-5)


def test_held_tensors_look_like_any():
    net = Net()
    plain = repr(net.fc.weight), repr(net.norm.running_mean)
    poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))
    assert (repr(net.fc.weight), repr(net.norm.running_mean)) == plain
    assert str(net.fc.weight) == plain[0] and f"{net.norm.running_mean}" == plain[1]


def test_copies_are_plain_tensors_with_the_trained_values():
    net = Net()
    before = net.fc.weight.detach().clone()
    weight, mean = net.fc.weight, net.norm.running_mean
    trained(net)
    for tensor, kind in ((weight, torch.nn.Parameter), (mean, torch.Tensor)):
        for copied in (copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor))):
            assert type(copied) is kind and torch.equal(copied, tensor)
            assert copied.requires_grad == tensor.requires_grad
    assert not torch.equal(weight, before)
    assert all(type(x) is torch.Tensor for x in net.state_dict().values())


def test_tied_tensors_stay_tied_in_a_copy():
    net = Net()
    net.alias = net.fc.weight
    trained(net)
    copied = copy.deepcopy(net)
    assert copied.alias is copied.fc.weight
    assert type(copied.alias) is torch.nn.Parameter


def test_destroy_gives_the_tensors_their_classes_back():
    net = Net()
    model, _ = trained(net)
    assert isinstance(net.fc.weight, torch.nn.Parameter)
    model.destroy()
    assert type(net.fc.weight) is torch.nn.Parameter
    assert type(net.norm.running_mean) is torch.Tensor


def test_gradients_on_the_host_while_wrapped():
    net = Net()
    trained(net)
    net(X, T)[1].backward()
    assert net.fc.weight.grad.abs().sum() > 0
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    before = net.fc.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(net.fc.weight, before)


def test_a_held_parameter_is_not_read_by_copy_to_device():
    """It restores the host's (older) values on the device."""
    net = Net()
    weight = net.fc.weight
    before = weight.detach().clone()
    model, copies = trained(net)
    model.copyWeightsToDevice()
    assert not copies
    assert torch.equal(weight, before)


# -- a module that changes after it was compiled --------------------------------------------------

def replace_parameter(net):
    net.fc.weight = torch.nn.Parameter(torch.zeros(2, 3))


def replace_layer(net):
    net.fc = torch.nn.Linear(3, 2)


def replace_buffer(net):
    net.norm.running_mean = torch.zeros(2)


CHANGES = {
    "parameter": (replace_parameter, "self.fc.weight changed from a float32[2, 3] tensor to a"),
    "buffer": (replace_buffer, "self.norm.running_mean changed from a float32[2] tensor to a"),
    "dtype": (lambda net: net.double(),
              "self.fc.weight.dtype changed from torch.float32 to torch.float64"),
    "requires_grad": (lambda net: net.fc.bias.requires_grad_(False),
                      "self.fc.bias.requires_grad changed from True to False"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_module_is_compiled_again(change):
    apply, words = CHANGES[change]
    net = Net()
    model, _ = trained(net)
    apply(net)
    bias = net.fc.bias.detach().clone()
    x = X.to(net.fc.weight.dtype)
    model(X if change == "dtype" else x, T)
    assert model.programs()[-1].reason.startswith(words), model.programs()
    assert torch.equal(net.fc.bias, bias) or change != "requires_grad"


def test_converted_weights_are_not_copied_to_an_old_program():
    net = Net()
    model, _ = trained(net)
    net.double()
    with pytest.raises(Error, match=r"\[copyWeightsToDevice\] self.fc.weight.dtype changed from "
                                    r"torch.float32 to torch.float64 after the model was compiled"):
        model.copyWeightsToDevice()


def test_a_replaced_layer_in_inference():
    net = Net().eval()
    model = poptorch.inferenceModel(net, quiet_options())
    model(X, T)
    replace_layer(net)
    assert torch.allclose(model(X, T)[0], net(X, T)[0], atol=1e-6)
    assert model.programs()[-1].reason.startswith("self.fc changed from Linear(")


def test_a_frozen_parameter_may_thaw_in_inference():
    net = Net().eval()
    model = poptorch.inferenceModel(net, quiet_options())
    y, _ = model(X, T)
    net.fc.weight.requires_grad_(False)
    assert torch.equal(model(X, T)[0], y)
