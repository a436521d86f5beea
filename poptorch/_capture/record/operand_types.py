"""Whether PyTorch takes an operation with such types and numbers. Its rules for tensors without
data look at shapes only; so it is asked, with tensors of few elements, wherever more is involved
than tensors of one floating-point type."""

import contextlib
import functools

import torch

from poptorch._base.pytree.structure import map_only
from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph import replay

_KEPT = 4096  # answers
_accepted: set = set()  # of the process, as torch's answers do not change
_ANY_TYPE = ("_to_copy", "copy_", "clone", "detach", "empty", "empty_strided", "lift_fresh")


class OperandTypes:
    """Tries operations in PyTorch, of each kind once."""

    def __init__(self):
        self._is_off = False

    @contextlib.contextmanager
    def unasked(self):
        """What runs in it is no operation of the program's, but a step of one."""
        before, self._is_off = self._is_off, True
        try:
            yield
        finally:
            self._is_off = before

    def check(self, func, args: tuple, kwargs: dict) -> None:
        """Raises what PyTorch raises for an operation whatever the values of its tensors are."""
        if self._is_off or not _may_refuse(func) or _fits_by_values(func, args):
            return
        tensors, numbers = [], []
        _collect(args, tensors, numbers)
        _collect(kwargs.values(), tensors, numbers)
        if _is_plain({t.dtype for t in tensors} | ({kwargs.get("dtype")} - {None}), numbers):
            return
        few = map_only(torch.Tensor, _Few, (tuple(args), kwargs))
        key = func, torch.get_default_dtype(), repr(few)
        if key in _accepted:
            return
        made = map_only(_Few, _Few.tensor, few)
        if replay.refusal(func, *made) is not None:  # it may be for the sizes
            error = replay.refusal(func, args, kwargs)
            if error is not None:
                raise error
            return
        if len(_accepted) >= _KEPT:
            _accepted.clear()
        _accepted.add(key)


class _Few:
    """A tensor with at most two elements along each dimension."""

    def __init__(self, tensor: torch.Tensor):
        self._sizes, self._dtype = [min(n, 2) for n in tensor.shape], tensor.dtype

    def __repr__(self) -> str:
        return f"{self._dtype}{self._sizes}"

    def tensor(self) -> torch.Tensor:
        """It, with any values."""
        with private.without_modes():
            return torch.empty(self._sizes, dtype=self._dtype)


@functools.cache
def _may_refuse(func) -> bool:
    """Whether an operation computes: views and copies take any type."""
    is_view = any(r.alias_info is not None and not r.alias_info.is_write
                  for r in func._schema.returns)
    return func.namespace == "aten" and not is_view and (
        func.overloadpacket.__name__ not in _ANY_TYPE)


def _fits_by_values(func, args: tuple) -> bool:
    """Whether it depends on values, of a mask or of lengths, if PyTorch takes the sizes."""
    if func.overloadpacket.__name__ in ("segment_reduce", "_segment_reduce_backward"):
        return True
    if func.overloadpacket.__name__ not in ("index_put", "index_put_"):
        return False
    x, indices, values = args[:3]
    return x.dtype == values.dtype and any(index is not None and index.dtype is torch.bool
                                           for index in indices)


def _collect(values, tensors: list, numbers: list) -> None:
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            _collect(value, tensors, numbers)
        elif isinstance(value, (int, float)):
            numbers.append(value)


def _is_plain(dtypes: set, numbers: list) -> bool:
    """Whether all have one floating-point type that holds the numbers."""
    if not dtypes:
        return True
    dtype = next(iter(dtypes))
    if len(dtypes) > 1 or not dtype.is_floating_point:
        return False
    most = torch.finfo(dtype).max
    return all(abs(x) <= most or abs(x) == float("inf") or x != x for x in numbers)
