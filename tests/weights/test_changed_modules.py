"""A module that changes after it was compiled: what would change its program is an error."""

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
    "layer": (lambda net: net.layers.append(nn.ReLU()), "layers.2: the layer was added"),
    "inserted layer": (lambda net: net.layers.insert(0, nn.ReLU()), "the layer"),
    "layer in a leaf": (lambda net: net.plain.add_module("extra", nn.ReLU()),
                        "plain.extra: the layer was added"),
    "removed layer": (lambda net: net.layers.pop(1), "LeakyReLU layers.1: the layer that was"),
    "parameter": (lambda net: setattr(net, "more", nn.Parameter(torch.ones(1))),
                  "more: the parameter was added"),
    "bias": (lambda net: setattr(net.plain, "bias", nn.Parameter(torch.ones(4))),
             "bias: there was none when the module was compiled, there is one of shape (4,)"),
    "hook": (lambda net: net.plain.register_forward_hook(lambda layer, args, out: out * 0),
             "plain: a hook (forward_hooks) was added after the module was compiled"),
    "hook of the root": (lambda net: net.register_forward_pre_hook(lambda layer, args: args),
                         "the module: a hook (forward_pre_hooks) was added"),
    "removed hook": (lambda net: net.layers[0]._forward_hooks.clear(),
                     "layers.0: a hook (forward_hooks) was removed"),
    "exchanged hook": (exchange_hook, "layers.0: a hook (forward_hooks) was removed"),
    "replaced hook": (replace_hook, "layers.0: a hook (forward_hooks) was replaced"),
    "order of layers": (reorder, "layers: its layers were 0, 1 when the module was compiled, they "
                                 "are 1, 0. Put them in that order again"),
    "shape": (lambda net: setattr(net.plain.weight, "data", torch.ones(6, 4)),
              "plain.weight: it was compiled with the shape (4, 4), it has the shape (6, 4)"),
    "number": (lambda net: setattr(net, "slope", 5.0),
               "slope: it was 2.0 when the module was compiled, it is 5.0"),
    "argument of a layer": (lambda net: setattr(net.layers[1], "negative_slope", 0.5),
                            "layers.1.negative_slope: it was 0.0 when the module was"),
    "deleted": (lambda net: delattr(net, "slope"), "slope: the attribute that was compiled in "
                                                   "no longer exists. Set it to 2.0"),
    "tensor": (lambda net: setattr(net, "scale", torch.tensor(1.0)),
               "scale: the tensor that was compiled in was replaced"),
    "class": (lambda net: setattr(net.layers[1], "__class__", nn.ReLU),
              "layers.1: its class was LeakyReLU when the module was compiled, it is ReLU. Set"),
    "class of the root": (lambda net: setattr(net, "__class__", type("Other", (Net,), {})),
                          "the module: its class was Net when the module was compiled, it is"),
    "forward": (lambda net: setattr(net.plain, "forward", lambda x: x),
                "plain: forward was replaced after the module was compiled"),
}


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("change", CHANGES)
def test_it_is_an_error(change, training):
    apply, words = CHANGES[change]
    net, x = Net(), torch.randn(2, 4)
    model = wrap(net, training)
    model(x)
    model(x)
    apply(net)
    for _ in range(2):
        with pytest.raises(Error) as caught:
            model(x)
        assert words in caught.value.message and "destroy()" in caught.value.message
    if change == "deleted":
        net.slope = 1.0
    model.destroy()
    expected = net(x)[0].detach()
    torch.testing.assert_close(model(x)[0], expected)


def test_backward_hooks_matter_in_training_only():
    for training in (False, True):
        net, x = Net(), torch.randn(2, 4)
        model = wrap(net, training)
        model(x)
        net.plain.register_full_backward_hook(lambda *_: None)
        if training:
            with pytest.raises(Error, match=r"plain: a hook \(backward_hooks\) was added"):
                model(x)
        else:
            model(x)


def test_hooks_of_gradients_matter_in_training_only():
    for training in (False, True):
        net, x = Net(), torch.randn(2, 4)
        first = net.plain.weight.register_hook(lambda grad: grad * 2)
        model = wrap(net, training)
        model(x)
        handle = net.layers[0].bias.register_hook(lambda grad: grad * 0)
        if training:
            with pytest.raises(Error, match=r"layers.0.bias: a hook \(register_hook\) was added"):
                model(x)
        handle.remove()
        model(x)
        first.remove()
        net.plain.weight.register_hook(lambda grad: grad * 3)
        if training:
            with pytest.raises(Error, match=r"plain.weight: a hook \(register_hook\) was "):
                model(x)
        else:
            model(x)


def test_hooks_of_all_modules():
    net, x = Net(), torch.randn(2, 4)
    model = wrap(net, False)
    y, _ = model(x)
    handle = nn.modules.module.register_module_forward_hook(lambda layer, args, out: out * 2)
    try:
        with pytest.raises(Error, match=r"all modules: a hook \(global_forward_hooks\) was added"):
            model(x)
    finally:
        handle.remove()
    assert torch.equal(model(x)[0], y)


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


def test_put_back_it_runs_again():
    net, x = Net(), torch.randn(2, 4)
    model = wrap(net, False)
    y, _ = model(x)
    handle = net.plain.register_forward_hook(lambda layer, args, out: out)
    net.slope = 4.0
    with pytest.raises(Error):
        model(x)
    handle.remove()
    net.slope = 2.0
    assert torch.equal(model(x)[0], y)
