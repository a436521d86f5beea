"""The guards of the layers of a module."""

import torch
from torch import nn

from poptorch._guards.guard import GuardSet
from poptorch._guards.module_guards import guards_of, layers_of


def guards(net, training=True):
    return list(guards_of(net, dict(net.named_parameters()), training, frozenset()))


def stack(depth):
    return nn.Sequential(*(nn.Linear(2, 2) for _ in range(depth)))


def test_their_number_does_not_depend_on_that_of_layers():
    for training in (False, True):
        assert len(guards(stack(1), training)) == len(guards(stack(50), training))


def changes(net, change):
    """What the guards say after a change, and whether the quick check had seen it."""
    found = guards(net)
    seen = GuardSet(found, list(net.parameters()), True, [part for _, part in layers_of(net)],
                    lambda: None)
    change(net)
    texts = [one.text for one in (guard.change() for guard in found) if one is not None]
    return texts, not seen.holds()


def test_a_change_of_one_layer_of_many_names_it():
    for change, words in [
        (lambda net: setattr(net[7], "forward", abs), "self.7.forward changed from None to <"),
        (lambda net: net[7].weight.requires_grad_(False),
         "self.7.weight.requires_grad changed from True to False"),
        (lambda net: net[7].weight.register_hook(abs), "the hooks of self.7.weight["),
        (lambda net: net[7].register_buffer("more", torch.ones(1)),
         "self.7.more changed from nothing to a float32[1] tensor"),
        (lambda net: net[7].register_forward_hook(lambda *_: None), "self.7._forward_hooks["),
        (lambda net: net.add_module("8", nn.ReLU()), "self.8 changed from nothing to ReLU()"),
        (lambda net: net[7].double(),
         "self.7.weight.dtype changed from torch.float32 to torch.float64"),
    ]:
        texts, is_seen = changes(stack(8), change)
        assert is_seen and texts and texts[0].startswith(words), texts


def test_a_parameter_that_becomes_a_buffer():
    def change(net):
        weight = net[1].weight
        del net[1].weight
        net[1].register_buffer("weight", weight)

    texts, is_seen = changes(stack(2), change)
    assert is_seen and "self.1.weight changed from a float32[2, 2] tensor to nothing" in texts
