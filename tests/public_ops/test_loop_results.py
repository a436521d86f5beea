"""The memory layout of results of loops and branches, and shared memory: as in eager."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops import map, scan, while_loop

import poptorch
from poptorch import cond, for_loop
from tests.helpers import quiet_options

RESULTS = {
    "one twice": lambda x, y: for_loop(1, lambda a, b: [a, a], [x, y]),
    "views": lambda x, y: for_loop(1, lambda a, b: [a, a.view(2, 3)], [x, y]),
    "arguments changed": lambda x, y: for_loop(2, lambda a, b: (lambda c: [c, c])(a.mul_(2) + b),
                                               [x, y]),
    "outside": lambda x, y: [*for_loop(1, lambda a: [x], [y]), x],
    "transposed": lambda x, y: [*cond(x.sum() > 0, lambda a: a.t().contiguous().t(), [x],
                                      lambda a: a + 1, [x]), x],
    "of a branch": lambda x, y: cond(x.sum() > 0, lambda a: (a, a), [x], lambda a: (a, y), [x]),
    "outside of a branch": lambda x, y: [*cond(x.sum() > 0, lambda: x, [], lambda: y, []), x, y],
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_share_no_memory(name):
    """Changed in place, and read by position, they are as in eager."""
    class Results(nn.Module):
        def forward(self, x, y):
            found = RESULTS[name](x * 1, y * 1)
            found[0].add_(10)
            return *found, found[0].as_strided((4,), (1,))

    ours = poptorch.inferenceModel(Results(), quiet_options())
    x, y = torch.rand(2, 3), torch.rand(2, 3)
    for scale in (1, -1):
        torch.testing.assert_close(ours(scale * x, y), Results()(scale * x, y))


TORCH = {
    "while_loop": lambda x, y: while_loop(lambda n, v: n > 0, lambda n, v: (n - 1, v * 2),
                                          (torch.tensor(2), x))[1],
    "while_loop's condition": lambda x, y: while_loop(
        lambda v: v.as_strided((1,), (1,), 1).sum() < 10, lambda v: (v * 2,), (x,))[0],
    "scan": lambda x, y: scan(lambda v, row: (v + row, row * 1), x, y)[0],
    "scan's body": lambda x, y: scan(lambda v, row: (v * 1, v.as_strided((2,), (1,), 1) * row[0]),
                                     x, y)[1],
    "map": lambda x, y: map(
        lambda row: x.as_strided((1, 3, 2, 1), (6, 1, 3, 3)) * row[0, 0], y),
    "map's one row": lambda x, y: map(
        lambda row: x.as_strided((1, 3, 2, 1), (6, 1, 3, 3)) * row[0, 0], y[:1]),
    "cond": lambda x, y: torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v + 1, (x,)),
    "cond's branch": lambda x, y: torch.cond(
        x.sum() > 0, lambda v: v.as_strided((2,), (1,), 1) * 2, lambda v: v[0] * 1, (x,)),
}


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("name", TORCH)
def test_results_of_torch_lie_in_memory_as_what_they_begin_with(name, trained):
    class Places(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.rand(2))

        def forward(self, x, y):
            with torch.set_grad_enabled(torch.is_grad_enabled() and "while" not in name):
                found = TORCH[name](x * self.w, y)
            places = found.as_strided((found.numel(),), (1,))
            return found, places, poptorch.identity_loss((places * self.w[0]).sum(), "sum")

    net = Places()
    x, y = torch.rand(2, 3).t(), torch.rand(4, 3, 2)
    with torch.no_grad():  # with gradients torch compiles what is not as here
        expected = net(x, y)
    if trained:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        ours = poptorch.trainingModel(net, quiet_options(), optimizer)
    else:
        ours = poptorch.inferenceModel(net, quiet_options())
    torch.testing.assert_close(ours(x, y), expected)
