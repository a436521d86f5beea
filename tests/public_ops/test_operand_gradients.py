"""What PyTorch's operations on functions read has a gradient, zeros where nothing depends on it."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan

import poptorch
from tests.helpers import check_equal_bits, quiet_options
from tests.public_ops.scans import scan_by_python

RESULTS = {
    "scan, rows": lambda a, b, c: scan(lambda x, row: (row * 2, row * 3), a, b)[1],
    "scan, rows in reverse": lambda a, b, c: scan(lambda x, row: (row * 2, row * 3), a, b,
                                                  reverse=True)[1],
    "scan, carried": lambda a, b, c: scan(lambda x, row: (x * 2, row * c), a, b)[0],
    "scan, detached": lambda a, b, c: scan(lambda x, row: (x * 2, c.detach() * 1), a, b)[1],
    "map": lambda a, b, c: map_rows(lambda row: (row * 2, row.detach() * c), b)[0],
    "map, detached": lambda a, b, c: map_rows(lambda row: row.detach() * c.detach(), b),
    "cond": lambda a, b, c: torch.cond(a.sum() > 0, lambda x, y: (x * 2, y * c),
                                       lambda x, y: (x * 3, y * 2), (a, b))[0],
    "cond, detached": lambda a, b, c: torch.cond(
        a.sum() > 0, lambda x, y: x.detach() * 2, lambda x, y: x.detach() * 3, (a, b)),
    "cond, not used": lambda a, b, c: torch.cond(
        a.sum() > 0, lambda x, y: (y * c, x * 2)[1], lambda x, y: x * 1, (a, b)),
    "scan, no gradient": lambda a, b, c: torch.linalg.vector_norm(  # autograd gives none for it
        scan(lambda x, row: (x * c, row * 3), a, b)[1], 0),
    "map, no gradient": lambda a, b, c: torch.linalg.vector_norm(
        map_rows(lambda row: row * c, b), 0),
    "cond, no gradient": lambda a, b, c: torch.linalg.vector_norm(torch.cond(
        a.sum() > 0, lambda x, y: x * c, lambda x, y: x * 3, (a, b)), 0),
    "for_loop, no gradient": lambda a, b, c: torch.linalg.vector_norm(
        poptorch.for_loop(2, lambda x: [x * c], [b])[0], 0),
    "for_loop": lambda a, b, c: poptorch.for_loop(2, lambda x, y: [x * 2, y * c], [a * 1, b])[0],
}


class Net(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name
        self.a, self.b, self.c = (nn.Parameter(torch.rand(2)), nn.Parameter(torch.rand(3, 2)),
                                  nn.Parameter(torch.rand(2)))

    def forward(self, x):
        found = RESULTS[self.name](self.a, self.b, self.c)
        return poptorch.identity_loss(found.sum() + (self.a[0] * x).sum(), "sum")


def gradients_of(net):
    """The gradients of one step: ours, and eager's."""
    eager = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    with poptorch.testing.keep_gradients():
        ours = poptorch.trainingModel(net, quiet_options(), optimizer)
        ours(torch.ones(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.compile
        eager(torch.ones(1)).backward()
    return poptorch.testing.gradients(ours), {
        name: x.grad for name, x in eager.named_parameters() if x.grad is not None}


@pytest.mark.sampled
@pytest.mark.parametrize("name", RESULTS)
def test_gradients_are_those_of_torch(name):
    check_equal_bits(*gradients_of(Net(name)))


GROWN = 1e19  # a number of 2 or 3 overflows in the third round
INFINITE = {
    "carried": lambda a, b, c: poptorch.for_loop(
        3, lambda x, y: [x * c * GROWN, torch.minimum(x, c)], [a, a])[1],
    "a chain": lambda a, b, c: poptorch.for_loop(
        4, lambda x, y, z: [x * c * GROWN, torch.relu(x * -1), y * c], [a, a, a])[2],
    "rows": lambda a, b, c: scan_by_python(
        lambda x, row: (x * c, torch.exp(row * 1e4) * c), a, b)[0],
    "a sum": lambda a, b, c: poptorch.for_loop(
        3, lambda x, y: [x * c * GROWN, torch.minimum(x, c) + (y * c).sin()], [a, a])[1],
    "in turns": lambda a, b, c: poptorch.for_loop(5, lambda x, y: [y * c, x * c], [a, a])[0],
    "joined": lambda a, b, c: poptorch.for_loop(
        3, lambda x, y: [x * c * GROWN, torch.cat([torch.minimum(x, c)[:1], y[1:] * c[1:]])],
        [a, a])[1],
    "a branch": lambda a, b, c: poptorch.cond(
        a.sum() < 1e9, lambda x, y: [x * GROWN * GROWN * GROWN * c, y * c], [a, a],
        lambda x, y: [x, y], [a, a])[1],
}


@pytest.mark.parametrize("name", INFINITE)
def test_what_nothing_reads_has_no_gradient_where_it_is_infinite(name):
    """Zeros in its place would give NaN."""
    class Infinite(Net):
        def forward(self, x):
            found = INFINITE[name](self.a, self.b, self.c)
            return poptorch.identity_loss(found.sum() + (self.a[0] * x).sum(), "sum")

    net = Infinite(name)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 2
    found, expected = gradients_of(net)
    for key, gradient in expected.items():
        assert gradient.isfinite().all(), key
        torch.testing.assert_close(found[key], gradient, rtol=1e-5, atol=1e-5)
