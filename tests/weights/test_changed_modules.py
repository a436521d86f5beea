"""A module that changes after it was compiled: what changes its program compiles it again."""

import threading

import pytest
import torch
from torch import nn

import poptorch
from poptorch import Error
from tests.helpers import quiet_options


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0.0))
        self.plain = nn.Linear(4, 4, bias=False)
        self.slope, self.name, self.calls = 2.0, "net", 0
        self.scale = torch.tensor(3.0)
        self.layers[0].register_forward_hook(lambda layer, args, out: out + 1)

    def forward(self, x):
        self.calls += 1
        y = self.plain(self.layers(x)) * self.slope * self.scale
        return y, poptorch.identity_loss((y * y).mean(), "none")


def wrap(net, training):
    if training:
        return poptorch.trainingModel(net, quiet_options())
    return poptorch.inferenceModel(net, quiet_options())


def exchange_hook(net):
    net.layers[0]._forward_hooks.clear()
    net.layers[0].register_forward_hook(lambda layer, args, out: out * 2)


def replace_hook(net):
    (key,) = net.layers[0]._forward_hooks
    net.layers[0]._forward_hooks[key] = lambda layer, args, out: out * 2


def reorder(net):
    layers = net.layers._modules
    layers["0"] = layers.pop("0")


CHANGES = {
    "layer": (lambda net: net.layers.append(nn.ReLU()),
              "self.layers.2 changed from nothing to ReLU"),
    "inserted layer": (lambda net: net.layers.insert(0, nn.ReLU()), "self.layers.2 changed from"),
    "layer in a leaf": (lambda net: net.plain.add_module("extra", nn.ReLU()),
                        "self.plain.extra changed from nothing to ReLU()"),
    "removed layer": (lambda net: net.layers.pop(1),
                      "self.layers.1 changed from LeakyReLU(negative_slope=0.0) to nothing"),
    "parameter": (lambda net: setattr(net, "more", nn.Parameter(torch.ones(1))),
                  "self.more changed from nothing to a float32[1] tensor"),
    "bias": (lambda net: setattr(net.plain, "bias", nn.Parameter(torch.ones(4))),
             "self.plain.bias changed from None to a float32[4] tensor"),
    "hook": (lambda net: net.plain.register_forward_hook(lambda layer, args, out: out * 0),
             "self.plain._forward_hooks["),
    "hook of the root": (lambda net: net.register_forward_pre_hook(lambda layer, args: args),
                         "self._forward_pre_hooks["),
    "removed hook": (lambda net: net.layers[0]._forward_hooks.clear(),
                     "self.layers.0._forward_hooks["),
    "exchanged hook": (exchange_hook, "self.layers.0._forward_hooks changed from {"),
    "replaced hook": (replace_hook, "self.layers.0._forward_hooks["),
    "order of layers": (reorder, "self.layers changed from namespace(0=Linear"),
    "shape": (lambda net: setattr(net.plain.weight, "data", torch.ones(6, 4)),
              "self.plain.weight.shape[0] changed from 4 to 6"),
    "number": (lambda net: setattr(net, "slope", 5.0),
               "self.slope changed from 2.0 to 5.0, test_changed_modules.py:"),
    "argument of a layer": (lambda net: setattr(net.layers[1], "negative_slope", 0.5),
                            "self.layers.1.negative_slope changed from 0.0 to 0.5"),
    "tensor": (lambda net: setattr(net, "scale", torch.tensor(1.0)),
               "self.scale changed from a float32[] tensor to a float32[] tensor"),
    "class": (lambda net: setattr(net.layers[1], "__class__", nn.ReLU),
              "the class of self.layers.1 changed from <class"),
    "class of the root": (lambda net: setattr(net, "__class__", type("Other", (Net,), {})),
                          "the class of self changed from <class"),
    "forward": (lambda net: setattr(net.plain, "forward", lambda x: x),
                "self.plain.forward changed from None to <function"),
}


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("change", CHANGES)
def test_the_model_is_compiled_again(change, training):
    apply, words = CHANGES[change]
    net, x = Net(), torch.randn(2, 4)
    model = wrap(net, training)
    model(x), model(x)
    apply(net)
    for _ in range(2):
        expected = net(x)[0].detach()
        torch.testing.assert_close(model(x)[0], expected)
    assert model.programs()[-1].reason.startswith(words), model.programs()
    assert len(model.programs()) == (1 if change == "shape" else 2)


def test_an_attribute_that_is_gone():
    net, x = Net(), torch.randn(2, 4)
    model = wrap(net, False)
    y, _ = model(x)
    del net.slope
    with pytest.raises(AttributeError, match="slope"):
        model(x)
    net.slope = 2.0
    assert torch.equal(model(x)[0], y) and len(model.programs()) == 1


def test_backward_hooks_matter_in_training_only():
    for training in (False, True):
        net, x = Net(), torch.randn(2, 4)
        model = wrap(net, training)
        model(x)
        net.plain.register_full_backward_hook(lambda *_: None)
        model(x)
        assert len(model.programs()) == 1 + training


def test_hooks_of_gradients_matter_in_training_only():
    for training in (False, True):
        net, x = Net(), torch.randn(2, 4)
        first = net.plain.weight.register_hook(lambda grad: grad * 2)
        model = wrap(net, training)
        model(x)
        handle = net.layers[0].bias.register_hook(lambda grad: grad * 0)
        before = net.layers[0].bias.clone()
        model(x)
        if training:
            assert torch.equal(net.layers[0].bias, before)
            assert "the hooks of self.layers.0.bias[" in model.programs()[-1].reason
        handle.remove()
        model(x)
        assert len(model.programs()) == 1 + training
        first.remove()
        net.plain.weight.register_hook(lambda grad: grad * 3)
        model(x)
        assert len(model.programs()) == 1 + 2 * training


def test_hooks_of_all_modules():
    net, x = Net(), torch.randn(2, 4)
    model = wrap(net, False)
    y, _ = model(x)
    handle = nn.modules.module.register_module_forward_hook(
        lambda layer, args, out: out * 2 if layer is net.plain else out)
    try:
        assert torch.equal(model(x)[0], net(x)[0])
    finally:
        handle.remove()
    assert torch.equal(model(x)[0], y) and len(model.programs()) == 2


def test_a_capture_in_another_thread_is_no_change():
    model, x = wrap(Net(), False), torch.randn(2, 4)
    expected, _ = model(x)
    found = []

    class Other(nn.Module):
        def forward(self, y):
            thread = threading.Thread(target=lambda: found.append(model(x)[0]))
            thread.start()
            thread.join()
            return y + 1

    wrap(Other(), False)(torch.ones(2))
    found.append(model(x)[0])
    assert torch.equal(found[0], expected) and torch.equal(found[1], expected)


def test_what_forward_does_not_read_may_change():
    net, x = Net(), torch.randn(2, 4)
    model = wrap(net, False)
    y, _ = model(x)
    net.name, net.epoch, net.calls = "other", 3, 17
    model.other = 5
    net.eval()
    nn.Linear(2, 2).register_forward_hook(lambda *_: None)
    handle = net.register_state_dict_pre_hook(lambda *_: None)
    handle.remove()
    assert torch.equal(model(x)[0], y) and net.calls == 17


def test_put_back_the_first_program_runs_again():
    net, x = Net(), torch.randn(2, 4)
    model = wrap(net, False)
    y, _ = model(x)
    handle = net.plain.register_forward_hook(lambda layer, args, out: out)
    net.slope = 4.0
    assert torch.equal(model(x)[0], net(x)[0])
    handle.remove()
    net.slope = 2.0
    assert torch.equal(model(x)[0], y) and len(model.programs()) == 2


def test_values_that_may_not_change():
    net, x = Net(), torch.randn(2, 4)
    model = poptorch.inferenceModel(net, quiet_options().recompilation(values=False))
    y, _ = model(x)
    net.slope = 4.0
    for _ in range(2):
        with pytest.raises(Error) as caught:
            model(x)
        assert "[call] self.slope changed from 2.0 to 4.0, test_changed" in caught.value.message
        assert (" after the model was compiled, and Options.recompilation(values=False) forbids to "
                "compile it again. Set it back, or") in caught.value.message
    net.slope = 2.0
    assert torch.equal(model(x)[0], y)


def test_the_limit_of_programs():
    net, x = Net(), torch.randn(2, 4)
    model = poptorch.inferenceModel(net, quiet_options().recompilation(limit=2))
    for slope in (2.0, 3.0, 2.0):
        net.slope = slope
        assert torch.equal(model(x)[0], net(x)[0])
    net.slope = 4.0
    with pytest.raises(Error) as caught:
        model(x)
    assert ("[call] the model has 2 programs, as many as Options.recompilation(limit=2) allows, "
            "and needs one more: self.slope changed from 2.0 to 4.0") in caught.value.message
    assert "\n  1: the first call\n  2: self.slope changed from 2.0 to 3.0" in caught.value.message
    net.slope = 3.0
    assert torch.equal(model(x)[0], net(x)[0])
