"""Arguments of other shapes, types, structures and values under Options.recompilation(shapes=True).
"""

import copy

import pytest
import torch
from torch import nn

import poptorch
from poptorch import Error
from tests.helpers import quiet_options


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, y=None, scale=1.0):
        self.calls += 1
        out = self.fc(x.float()) * scale
        if isinstance(y, dict):
            y = y["target"]
        loss = out.square().mean() if y is None else nn.functional.mse_loss(out, y)
        return out, poptorch.identity_loss(loss, "none")


def options():
    return quiet_options().recompilation(shapes=True)


CALLS = [
    ((torch.randn(4, 3),), {}), ((torch.randn(3, 3),), {}), ((torch.randn(4, 5, 3),), {}),
    ((torch.ones(4, 3, dtype=torch.int32),), {}), ((torch.randn(4, 3), torch.randn(4, 2)), {}),
    ((torch.randn(4, 3),), {"scale": 2.0}), ((torch.randn(4, 3), {"target": torch.ones(4, 2)}), {}),
    ((torch.randn(4, 3),), {})]


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_training_with_any_arguments_is_that_of_eager(optimizer):
    net = Net()
    eager = copy.deepcopy(net)
    model = poptorch.trainingModel(net, options(), optimizer(net.parameters(), lr=0.05))
    own = optimizer(eager.parameters(), lr=0.05)
    for args, kwargs in CALLS * 2:
        _, loss = model(*args, **kwargs)
        own.zero_grad()
        _, expected = eager(*args, **kwargs)
        expected.backward()
        own.step()
        torch.testing.assert_close(loss, expected.detach())
    for path, value in eager.state_dict().items():
        torch.testing.assert_close(net.state_dict()[path], value, atol=1e-5, rtol=1e-4)
    assert len(model.programs()) == 7 and net.calls == 16


def test_inference_beside_training():
    net = Net()
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.1))
    inference = poptorch.inferenceModel(net, options())
    for args, kwargs in CALLS:
        model(*args, **kwargs)
        calls = int(net.calls)
        with torch.no_grad():
            expected = copy.deepcopy(net)(*args, **kwargs)[0]
        torch.testing.assert_close(inference(*args, **kwargs)[0], expected)
        assert calls <= int(net.calls)


def test_programs_tell_their_signature_and_reason():
    model = poptorch.inferenceModel(Net(), options())
    for args, kwargs in CALLS[:2]:
        model(*args, **kwargs)
    first, second = model.programs()
    assert first.signature == "x: float32[4, 3], y: None, scale: 1.0" and first.seconds > 0
    assert first.reason == "the first call"
    assert second.reason == "x: expected torch.Size([4, 3]) but got torch.Size([3, 3])"


def test_combined_batch_sizes_are_checked():
    model = poptorch.inferenceModel(Net(), options().deviceIterations(2))
    model(torch.randn(4, 3))
    assert model(torch.randn(6, 3))[0].shape == (6, 2)
    with pytest.raises(Error, match="x: the first dimension must hold"):
        model(torch.randn(3, 3))
    assert model(torch.randn(4, 3))[0].shape == (4, 2) and len(model.programs()) == 2


def test_strides_that_forward_depends_on():
    class Strided(nn.Module):
        def forward(self, x):
            return x.as_strided((6,), (1,)) * 2

    model = poptorch.inferenceModel(Strided(), options())
    x = torch.arange(6.0).reshape(2, 3)
    for value in (x, x.t().contiguous().t(), x):
        assert torch.equal(model(value), Strided()(value))
    assert len(model.programs()) == 2


def test_the_default_is_an_error_that_names_the_option():
    model = poptorch.inferenceModel(Net(), quiet_options())
    model(torch.randn(4, 3))
    for _ in range(2):
        with pytest.raises(Error) as caught:
            model(torch.randn(3, 3))
        assert caught.value.message == (
            "[arguments] x: expected torch.Size([4, 3]) but got torch.Size([3, 3]). The model is "
            "compiled for the shapes and types of its first call: for a last batch of another "
            "size, use drop_last=True in the DataLoader, or pad the batch to 4. Set "
            "Options.recompilation(shapes=True) to compile the model again for other arguments, "
            "or call destroy() first.")


def test_what_cannot_be_compiled_leaves_the_programs_as_they_were():
    net = Net()
    model = poptorch.inferenceModel(net, options())
    y = model(torch.ones(4, 3))[0]
    for _ in range(2):
        with pytest.raises(Exception, match="shapes cannot be multiplied|mat1"):
            model(torch.ones(4, 4))
        assert model.isAttachedToDevice()
    assert torch.equal(model(torch.ones(4, 3))[0], y) and len(model.programs()) == 1


def test_an_object_in_an_argument():
    class Config:
        scale = 2.0

    class Scaled(nn.Module):
        def forward(self, x, config):
            return x * config.scale

    config, x = Config(), torch.ones(2)
    model = poptorch.inferenceModel(Scaled(), options())
    for scale in (1.0, 3.0, 1.0):
        config.scale = scale
        assert torch.equal(model(x, config), x * scale)


def test_random_numbers_go_on():
    torch.manual_seed(0)
    model = poptorch.inferenceModel(nn.Dropout(0.5), options().randomSeed(3))
    other = poptorch.inferenceModel(nn.Dropout(0.5), options().randomSeed(3))
    sizes = [64, 32, 64, 64]
    found = [model(torch.ones(size)) for size in sizes]
    assert not torch.equal(found[2], found[3]) and not torch.equal(found[0], found[2])
    assert all(torch.equal(other(torch.ones(size)), y) for size, y in zip(sizes, found))
    assert model.rng_state == other.rng_state == [3, 4]
