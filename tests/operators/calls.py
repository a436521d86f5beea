"""Calls of PyTorch's operators, with the arguments that PyTorch's own tests have for them."""

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils import _pytree as pytree

import poptorch

# Where `make operators` installs what torch's own tests need, in addition to other packages.
FOLDER = Path(__file__).resolve().parents[2] / "build" / "operators"


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        function: the operator, or a module.
        arguments: a pair of its positional arguments and those by name.
        is_differentiable: whether it has gradients that are compared. Those at NaN and infinity
            are of one formula or another.
    """

    function: Callable
    arguments: tuple
    is_differentiable: bool

    def __str__(self):
        positional, named = pytree.tree_map(_described, self.arguments)
        return f"{positional} {named}"


class Calling(torch.nn.Module):
    """A call as a module.

    Args:
        call: the call.
        dtype: of the floating-point numbers, and what is written for other floating-point types.
        trained: whether its floating-point tensors are parameters, and forward gives a loss.
    """

    def __init__(self, call: Call, dtype: torch.dtype, trained: bool):
        super().__init__()
        self._function, self._trained = call.function, trained
        if isinstance(call.function, torch.nn.Module):
            self._function = copy.deepcopy(call.function).to(dtype).train(trained)
        leaves, self._spec = pytree.tree_flatten(call.arguments)
        leaves = [_of_type(leaf, dtype) for leaf in leaves]
        self.weights = torch.nn.ParameterList(x for x in leaves if trained and _is_floating(x))
        self.tensors = [x for x in leaves if isinstance(x, torch.Tensor)
                        and not (trained and x.is_floating_point())]
        self._leaves = [_Place(trained and x.is_floating_point()) if isinstance(x, torch.Tensor)
                        else x for x in leaves]

    def forward(self, *tensors):
        given, weights = iter(tensors), iter(self.weights)
        leaves = [next(weights if x.is_weight else given) if isinstance(x, _Place) else x
                  for x in self._leaves]
        positional, named = pytree.tree_unflatten(leaves, self._spec)
        out = self._function(*positional, **named)
        if not self._trained:
            return out
        parts = [x for x in pytree.tree_leaves(out) if isinstance(x, torch.Tensor)
                 and (x.is_floating_point() or x.is_complex()) and x.requires_grad]
        return poptorch.identity_loss(sum(map(_weighted_sum, parts)), "none")


@dataclass(frozen=True)
class _Place:
    """Where a tensor stands in the arguments."""

    is_weight: bool


def _is_floating(x) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def _of_type(x, dtype: torch.dtype):
    if x.is_floating_point if isinstance(x, torch.dtype) else _is_floating(x):
        return dtype if isinstance(x, torch.dtype) else x.detach().clone().to(dtype)
    is_complex = isinstance(x, torch.Tensor) and x.is_complex()
    return x.to(torch.complex128) if is_complex and dtype is torch.float64 else x


def _weighted_sum(x):
    """A sum with another factor for each element."""
    if x.is_complex():
        x = torch.view_as_real(x)
    factors = torch.linspace(0.5, 1.5, max(x.numel(), 1), dtype=x.dtype)[:x.numel()]
    return (x * factors.view(x.shape)).sum()


def _described(x) -> str:
    return f"{str(x.dtype)[6:]}{list(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)


@contextlib.contextmanager
def torchs_samples() -> Iterator[list]:
    """torch's data of operators and modules for its tests; those have an argument parser of their
    own, and a package that it does without elsewhere."""
    before, sys.argv = sys.argv, sys.argv[:1]
    sys.path.append(str(FOLDER))
    try:
        # They take seconds, and the package.
        from torch.testing._internal.common_methods_invocations import op_db

        # They take seconds, and the package.
        from torch.testing._internal.common_modules import module_db
        yield [*op_db, *module_db]
    finally:
        sys.argv = before
        sys.path.remove(str(FOLDER))


def calls_of(info, seed: int, count: int, dtype: torch.dtype = torch.float32) -> list[Call]:
    """Up to ``count`` calls of an operator or a module.

    Args:
        info: an ``OpInfo`` or a ``ModuleInfo`` of torch.
        seed: of the numbers, and of the choice.
        count: how many.
        dtype: of the floating-point numbers.
    """
    torch.manual_seed(seed)
    if hasattr(info, "module_cls"):
        return _calls_of_module(info, count, dtype)
    if dtype not in info.supported_dtypes("cpu"):
        return []
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    chosen = torch.randperm(len(samples))[:count].tolist()
    is_differentiable = info.supports_autograd \
        and dtype in info.supported_backward_dtypes("cpu")
    arguments = [((samples[i].input, *samples[i].args), samples[i].kwargs) for i in chosen]
    return [Call(info.op, x, is_differentiable and _is_finite(x)) for x in arguments]


def _is_finite(arguments) -> bool:
    leaves = filter(_is_floating, pytree.tree_leaves(arguments))
    return all(x.to_dense().isfinite().all() for x in leaves)


def _calls_of_module(info, count: int, dtype: torch.dtype) -> list[Call]:
    """Also in types that PyTorch's tests leave out, where it has kernels for them."""
    samples = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False,
                                      training=True)
    chosen = torch.randperm(len(samples))[:count].tolist()
    found = []
    for sample in (samples[i] for i in chosen):
        made, given = sample.constructor_input, sample.forward_input
        module = info.module_cls(*made.args, **made.kwargs)
        if info.is_lazy:  # a call gives its parameters shapes
            module.to(dtype)(*given.args, **given.kwargs)
        found.append(Call(module, (given.args, given.kwargs), _is_finite(given.args)))
    return found
