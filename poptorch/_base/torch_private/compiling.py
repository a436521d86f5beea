"""Private names of torch that a backend of torch.compile needs. Importing them takes seconds."""

from collections.abc import Callable

import torch
from torch._dynamo.backends.common import aot_autograd as aot_autograd
from torch._functorch.partitioners import (
    min_cut_rematerialization_partition as min_cut_rematerialization_partition,
)


def boxed(function):
    """Marks a function that takes its arguments in one list, which it may empty."""
    function._boxed_call = True
    return function


def dimension_order(traced: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions of a traced tensor, from the largest stride; None: row-major."""
    strides = [stride if isinstance(stride, int) else stride.node.hint
               for stride in traced.stride()]
    order = tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))
    return None if order == tuple(range(len(strides))) else order


def set_call(module: torch.nn.Module, make: Callable[[Callable], Callable]) -> None:
    """Lets calls of a module run ``make(call)``, where ``call`` runs its hooks and ``forward``.

    ``Module.compile`` does the same, but does not trace the modules of torch.nn.
    """

    def call(*args, **kwargs):
        return module._call_impl(*args, **kwargs)

    module._compiled_call_impl = make(call)
