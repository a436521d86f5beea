"""Results of decompositions have eager's strides, also of dimensions of one element."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import poptorch
from poptorch._capture import capture
from poptorch._capture.decompose import resampling  # noqa: F401  (adds to the table)
from poptorch._capture.decompose.results import OWN_BUFFERS
from poptorch._capture.decompose.table import DECOMPOSITIONS
from tests.capture.common import Function, check_training, tensors_of
from tests.capture.decompose.decomposition_cases import CASES, Numbers
from tests.capture.reference import evaluate

LAYOUTS = 5  # of the operands of each case
# Their kernels take all operands for contiguous; since torch 2.15 the last two take images, too.
MISREADING = {torch.ops.aten._weight_norm_interface.default,
              torch.ops.aten._weight_norm_interface_backward.default,
              torch.ops.aten.reflection_pad1d_backward.default,
              torch.ops.aten.replication_pad1d_backward.default}


class Lying(Numbers):
    """Tensors with any memory layout, and with dimensions of one element.

    Args:
        rng: chooses.
        dtype: of the tensors.
    """

    def __init__(self, rng: random.Random, dtype: torch.dtype):
        super().__init__(dtype, special=False)
        self._rng = rng
        self._ones, self._more = set(), 0

    def draw(self) -> None:
        """Chooses the sizes that are 1, and the dimensions of one element before all others."""
        share = self._rng.choice((0.0, 0.3, 0.6))
        self._ones = {size for size in range(2, 10) if self._rng.random() < share}
        self._more = self._rng.choice((0, 0, 1, 2))

    def positive(self, *sizes) -> torch.Tensor:
        return self(*sizes).abs() + 0.5

    def __call__(self, *sizes, scale: float = 2.0) -> torch.Tensor:
        sizes = [1 if size in self._ones else size for size in sizes]
        sizes = [1] * self._more * (len(sizes) > 1) + sizes
        order = self._rng.sample(range(len(sizes)), len(sizes))
        x = super().__call__(*(sizes[dim] for dim in order), scale=scale)
        return self._part(x.permute([order.index(dim) for dim in range(len(sizes))]))

    def _part(self, x):
        """The same sizes in a larger memory, or a smaller one, now and then."""
        if not x.dim() or self._rng.random() < 0.6:
            return x
        dim = self._rng.randrange(x.dim())
        if self._rng.random() < 0.5:
            return torch.cat([x, x], dim).narrow(dim, 0, x.shape[dim])
        return x.narrow(dim, 0, min(1, x.shape[dim])).expand(x.shape)


def strides_of(overload, leaves, spec):
    """A function of the tensors among the arguments, and where it puts strides of results."""
    looks = []

    def forward(_, *tensors):
        tensors = iter(tensors)
        args, kwargs = pytree.tree_unflatten(
            [next(tensors) if torch.is_tensor(leaf) else leaf for leaf in leaves], spec)
        found = [x for index, x in enumerate(tensors_of(overload(*args, **kwargs)))
                 if (overload, index) not in OWN_BUFFERS]
        looks[:] = [x.stride() for x in found]
        return [x.as_strided([x.numel()], [1], 0) for x in found]  # in memory order

    return forward, looks


def drawn_cases(overload, rng, dtype):
    """Arguments that eager takes, as leaves and a specification."""
    numbers = Lying(rng, dtype)
    for _ in range(LAYOUTS):
        for *args, kwargs in CASES[overload](numbers):
            try:
                overload(*args, **kwargs)
            except (RuntimeError, ValueError, IndexError):
                continue
            yield pytree.tree_flatten((args, kwargs))
        numbers.draw()


@pytest.mark.sampled
@pytest.mark.parametrize("overload", list(DECOMPOSITIONS), ids=str)
def test_results_lie_as_in_eager(overload):
    rng, compared = random.Random(torch.seed()), 0
    dtype = torch.int32 if overload is torch.ops.aten.lcm.default else torch.float32
    for leaves, spec in drawn_cases(overload, rng, dtype):
        tensors = tuple(leaf for leaf in leaves if torch.is_tensor(leaf))
        forward, looks = strides_of(overload, leaves, spec)
        memory, expected = forward(None, *tensors), list(looks)
        captured = capture(Function(forward), tensors, training=False)
        assert looks == expected, [(tuple(x.shape), x.stride()) for x in tensors]
        if overload not in MISREADING:
            found = tensors_of(evaluate(captured, list(tensors))[0])
            torch.testing.assert_close(found, memory, equal_nan=True)
        compared += 1
    assert compared


class LogSigmoid(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1).double())

    def forward(self, x):
        y = F.logsigmoid(self.weight + x)
        return y, poptorch.identity_loss((y * y).sum(), "none")


def test_the_gradient_of_logsigmoid_of_one_element():
    """Its buffer has no elements by the rule for fake tensors."""
    check_training(LogSigmoid(), torch.ones(1, dtype=torch.float64))
