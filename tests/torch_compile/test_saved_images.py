"""Images that a forward program keeps for its backward program: both have them channels-last."""

import copy
import re

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import check_narrow, quiet_options


def images():
    return torch.randn(2, 3, 8, 8)


def network(pool=None):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1),
                         nn.ReLU(), pool or nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(5))


def gradients(net, run, x):
    net.zero_grad()
    run(x).square().sum().backward()
    return [parameter.grad for parameter in net.parameters()]


def check_gradients(net, run, x):
    narrow, wide = copy.deepcopy(net), copy.deepcopy(net).double()
    check_narrow(gradients(net, run, x), [gradients(narrow, narrow, x)],
                 gradients(wide, wide, x.double()))


@pytest.mark.parametrize(("pool", "gradients"), [
    (nn.MaxPool2d(2), ["[2,4,4,8]"]), (nn.AdaptiveAvgPool2d(1), [])])
def test_a_backward_program_copies_no_saved_image(pool, gradients, tmp_path, monkeypatch):
    net, x = network(pool), images()
    net(x)
    run = torch.compile(net, backend="poptorch", options=quiet_options())
    result = run(x)
    monkeypatch.setenv("POPTORCH_DUMP_IR", str(tmp_path))
    result.sum().backward()
    program = (tmp_path / "5_lower.ir").read_text()
    assert "convolution_backward" in program
    copied = re.findall(r"= contiguous .* : \w+(\[[\d,]*\])", program)
    # The linear layer's gradient, and those of weights, which are row-major as in PyTorch.
    assert sorted(copied) == [*gradients, "[8,3,3,3]", "[8,8,3,3]"]


def contiguous(saved):
    return saved.contiguous()


def strided(saved):
    wide = torch.empty(*saved.shape, 2, dtype=saved.dtype)
    wide[..., 0] = saved
    return wide[..., 0]


@pytest.mark.parametrize("pack", [contiguous, strided])
def test_hooks_may_change_their_layout(pack):
    net, x = network(), images()
    net(x)
    run = poptorch.compile(copy.deepcopy(net), quiet_options())
    shapes = []

    def noted(saved):
        shapes.append(tuple(saved.shape))
        return pack(saved)

    def within_hooks(x):
        with torch.autograd.graph.saved_tensors_hooks(noted, lambda saved: saved):
            return run(x)

    for _ in range(2):  # the first call compiles
        check_gradients(run, within_hooks, x)
    assert (2, 8, 8, 8) in shapes
