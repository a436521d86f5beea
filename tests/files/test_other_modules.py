"""A program from a file for another module than that which it was compiled for."""

import copy
import pickle

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import RunningTotal
from tests.helpers import quiet_options as options

X = torch.ones(2, 3)


class Net(nn.Module):
    """Layers, and a loss for training."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        y = self.layers(x)
        return y, poptorch.identity_loss(y.sum(), "sum")


def linear(bias=True):
    return nn.Linear(3, 3, bias=bias)


def tied(is_tied=True):
    net = Net(linear(), linear())
    if is_tied:
        net.layers[1].weight = net.layers[0].weight
    return net


def with_hook(kind="register_forward_hook"):
    net = Net(linear(), linear())
    getattr(net.layers[1], kind)(lambda *_: None)
    return net


def patched():
    net = Net(linear())
    net.layers[0].forward = lambda x: x * 2
    return net


def frozen():
    net = Net(linear(), linear())
    net.layers[1].requires_grad_(False)
    return net


def half(dtype=torch.half):
    return nn.Sequential(linear()).to(dtype)


# The module of the file, the other one, and what is said.
INFERENCE = {
    "one more bias": (lambda: Net(linear(False)), lambda: Net(linear()),
                      "layers.0.bias is a parameter or buffer of this module alone"),
    "no bias": (lambda: Net(linear()), lambda: Net(linear(False)),
                "layers.0.bias is a parameter or buffer of the file's module alone"),
    "one more layer": (lambda: Net(linear()), lambda: Net(linear(), nn.ReLU()),
                       "layers.1 is a layer of this module alone"),
    "another layer": (lambda: Net(linear(), nn.ReLU()), lambda: Net(linear(), nn.Tanh()),
                      "layers.1 was a ReLU when the program was compiled, it is a Tanh here"),
    "another order": (lambda: nn.ModuleDict({"a": linear(), "b": linear()}),
                      lambda: nn.ModuleDict({"b": linear(), "a": linear()}),
                      "the layers of the file's module are in the order , a, b, here , b, a"),
    "ties": (tied, lambda: tied(False), "layers.1.weight was layers.0.weight when the program was "
                                        "compiled, it is a tensor of its own here"),
    "no ties": (lambda: tied(False), tied, "layers.1.weight was a tensor of its own when the .* "
                                           "was compiled, it is layers.0.weight here"),
    "a dtype": (half, lambda: half(torch.bfloat16),
                "0.bias is torch.bfloat16 in the module and torch.float16 in the file"),
    "another dtype": (half, lambda: half(torch.float32),
                      "0.bias is torch.float32 in the module and torch.float16 in the file"),
    "a hook": (with_hook, lambda: Net(linear(), linear()),
               "layers.1 had 1 forward hooks when the program .*, it has 0 forward hooks here"),
    "a forward": (patched, lambda: Net(linear()), "layers.0 had a forward of its own when the "
                                                  "program .*, it has the forward of its class"),
}
TRAINING = {
    "frozen": (frozen, lambda: Net(linear(), linear()),
               "layers.1.weight had requires_grad=False when the .*, it has requires_grad=True"),
    "a hook": (lambda: with_hook("register_full_backward_hook"),
               lambda: Net(linear(), linear()),
               "layers.1 had 1 backward hooks when the program .*, it has 0 backward hooks here"),
}


def training(net):
    trained = [tensor for tensor in net.parameters() if tensor.requires_grad]
    return poptorch.trainingModel(net, options(), torch.optim.SGD(trained, lr=0.1))


def inference(net):
    return poptorch.inferenceModel(net, options())


def forward_of_all(self, x):
    for layer in self.values():
        x = layer(x)
    return x


@pytest.mark.parametrize(("wrap", "name"), [*((inference, name) for name in INFERENCE),
                                            *((training, name) for name in TRAINING)])
def test_another_module_is_refused(wrap, name, tmp_path, monkeypatch):
    monkeypatch.setattr(nn.ModuleDict, "forward", forward_of_all)
    make, other, words = (INFERENCE if wrap is inference else TRAINING)[name]
    x = X.half() if "dtype" in name else X
    path = wrap(make()).compileAndExport(tmp_path / "net.poptorch", x, export_model=False)
    model = wrap(other())
    with pytest.raises(poptorch.Error, match=rf"^\[loadExecutable\] .*net.poptorch: {words}.* Wrap "
                                             r"a module of the same (class and )?settings\.$"):
        model.loadExecutable(path)
    assert not model.isCompiled()
    again = wrap(make())
    again.loadExecutable(path)
    assert again.isCompiled()


def test_what_a_program_does_not_depend_on_may_differ(tmp_path):
    path = inference(Net(linear()).train()).compileAndExport(tmp_path / "net", X,
                                                             export_model=False)
    other = Net(linear()).eval().requires_grad_(False)  # nothing in it asks for the mode
    other.layers[0].register_full_backward_hook(lambda *_: None)
    model = inference(other)
    model.loadExecutable(path)
    assert torch.equal(model(X)[0], inference(other)(X)[0])


def drops(model):
    return (model(torch.ones(64)) == 0).any().item()


COPIES = {"load": lambda model, folder: poptorch.load(model.save(folder / "net.poptorch")),
          "deepcopy": lambda model, _: copy.deepcopy(model),
          "pickle": lambda model, _: pickle.loads(pickle.dumps(model))}


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("how", COPIES)
def test_copies_are_compiled_in_the_same_modes(how, is_training, tmp_path):
    net = nn.Sequential(nn.Dropout(0.5)).train(is_training)
    model = inference(net)
    model.compile(torch.ones(64))
    net.train(not is_training)
    again = COPIES[how](model, tmp_path)
    assert drops(model) is drops(again) is is_training
    again.destroy()
    assert drops(again) is is_training and again.model[0].training is not is_training
    again.destroy()
    again.train(not is_training)
    assert drops(again) is not is_training


@pytest.mark.parametrize(("value", "expected"), [(0.0, [9, 2]), (18.0, [27, 6]), (100, [109, 102])])
def test_buffers_of_each_replica_are_those_of_a_module_with_the_value_of_the_first(
        tmp_path, value, expected):
    opts, x = options(replicationFactor=2, broadcastBuffers=False), torch.tensor([9.0, 2.0])
    model = poptorch.inferenceModel(RunningTotal(), opts)
    model(x), model(x)
    path = model.save(tmp_path / "net.poptorch", export_model=False)
    net = RunningTotal()
    net.total.fill_(value)
    again = poptorch.inferenceModel(net, opts)
    again.loadExecutable(path)
    assert again(x).tolist() == expected


@pytest.mark.parametrize("wrap", [training, inference])
@pytest.mark.parametrize("mode", [True, False], ids=["training mode", "evaluation mode"])
def test_a_module_in_the_other_mode(wrap, mode, tmp_path, caplog):
    """The program computes in the mode that it was compiled for, and a warning says so."""
    def net(mode):
        return Net(linear(), nn.Dropout(0.9)).train(mode)

    path = wrap(net(mode)).compileAndExport(tmp_path / "net.poptorch", X, export_model=False)
    caplog.clear()
    module = net(not mode)
    model = wrap(module)
    model.loadExecutable(path)
    words = {True: "training mode", False: "evaluation mode"}
    assert [record.getMessage() for record in caplog.records] == [
        f"[train] Dropout layers.1 runs in {words[mode]}, for which it was compiled, and is in "
        f"{words[not mode]} now: the compiled model computes as before. Call train() or eval() of "
        f"the executor to change its mode."]
    assert bool((model(X)[0] == 0).any()) is mode
    assert len(model.programs()) == 1 and module.training is not mode
    y, _ = (model.eval() if mode else model.train())(X)
    assert bool((y == 0).any()) is not mode and len(model.programs()) == 2


def test_a_failed_load_leaves_the_modes(tmp_path):
    path = inference(Net(nn.Dropout(0.5)).train()).compileAndExport(
        tmp_path / "net.poptorch", X, export_model=False)
    model = inference(Net(nn.Dropout(0.5), nn.ReLU()).eval())
    with pytest.raises(poptorch.Error, match="layers.1 is a layer of this module alone"):
        model.loadExecutable(path)
    assert torch.equal(model(X)[0], X)
