"""What eager says nothing of: writes whose result depends on the order of its loops."""

import numpy
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from poptorch._base.layout import lies_on_itself, positions
from poptorch._capture.decompose.functional_ops import mutated_arguments
from tests.fuzz.programs.vocabulary.base import Rejected


class Determined(TorchDispatchMode):
    """Rejects writes of several values to one place, and those to places that are read, too."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        written = [args[position] if position < len(args) else kwargs.get(name)
                   for position, name in mutated_arguments(func)]
        written = [t for t in pytree.tree_leaves(written) if isinstance(t, torch.Tensor)]
        is_fill = func.overloadpacket.__name__ in ("fill_", "zero_")
        if not is_fill and any(lies_on_itself(t.shape, t.stride()) for t in written):
            raise Rejected
        read = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if any(_meet(one, other) for one in written for other in read):
            raise Rejected
        is_elementwise = torch.Tag.pointwise in func.tags or func is torch.ops.aten.copy_.default
        if not is_elementwise and any(sum(_lie_alike(one, other) for other in read) > 1
                                      for one in written):
            raise Rejected
        return func(*args, **kwargs)


def _meet(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors share some of their memory, in another order or only a part of it."""
    if not _share_memory(one, other) or _lie_alike(one, other):
        return False
    return numpy.intersect1d(_places(one), _places(other)).size > 0


def _share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


def _lie_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether each element of two tensors is one in memory."""
    return (_share_memory(one, other) and one.shape == other.shape
            and one.stride() == other.stride()
            and one.storage_offset() == other.storage_offset())


def _places(x: torch.Tensor):
    return positions(list(x.shape), list(x.stride()), x.storage_offset())
