"""Searches among points in space."""

import math
from collections.abc import Sequence
from fractions import Fraction

import torch

from poptorch import _C
from poptorch._base.capture_context import is_capturing
from poptorch._capture.library import without_gradient  # noqa: F401  (declares the operations)
from poptorch._capture.library.evaluated import evaluated
from poptorch._capture.library.layers import ops
from poptorch._capture.library.value_checks import checked
from poptorch.errors import Error

_I64 = {"index_dtype": _C.DType("i64")}
# float32 has the integers of a smaller absolute value.
_INTEGERS_BELOW = 2**24


def nearest(x: torch.Tensor, y: torch.Tensor, batch_x: torch.Tensor | list[int] | None = None,
            batch_y: torch.Tensor | list[int] | None = None) -> torch.Tensor:
    """Finds for each point of ``x`` the nearest point of ``y``, by the Euclidean distance.

    Several examples may stand behind each other, in which case each point is compared with those of
    its own example only. No gradient flows through it. Outside of poptorch it does the same.

    Args:
        x: points, ``[N, F]``, or ``[N]`` for numbers on a line. Integers must be less than 2**24,
            and more than -2**24.
        y: points, ``[M, F]`` or ``[M]``, at least one.
        batch_x, batch_y: the example of each point, whole numbers ``[N]`` and ``[M]``, tensors or
            lists, in any order. None, the default: all belong to one. Give both or none.

    Returns:
        Positions in ``y``, int64 ``[N]``. Of points at an equal distance the first one is taken.

    Raises:
        poptorch.Error: An argument is wrong; or, when it runs, an integer is too large, or a point
            of ``x`` is of an example that has no point in ``y``.

    Example:
        >>> import poptorch, torch
        >>> x = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
        >>> y = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
        >>> poptorch.nearest(x, y)
        tensor([0, 0, 1, 1])
        >>> poptorch.nearest(x, y, [0, 0, 1, 1], [1, 0])
        tensor([1, 1, 0, 0])
    """
    x, y = (_points("nearest", name, points) for name, points in (("x", x), ("y", y)))
    if x.shape[1] != y.shape[1] or not len(y):
        raise Error(f"[nearest] x has the sizes {list(x.shape)} and y {list(y.shape)}. Give points "
                    f"with as many coordinates, and at least one in y.")
    if (batch_x is None) is not (batch_y is None):
        raise Error(f"[nearest] {'batch_y' if batch_x is None else 'batch_x'} is given alone. Give "
                    f"the examples of both, or of none.")
    dtype = torch.promote_types(x.dtype, y.dtype)
    x, y = x.detach().to(dtype), y.detach().to(dtype)
    batches = [None if batch is None else _batch(name, batch, len(points))
               for name, batch, points in (("batch_x", batch_x, x), ("batch_y", batch_y, y))]
    if is_capturing():
        return ops.nearest(x, y, *batches)
    return evaluated("nearest", [x, y, *batches], _I64)[0]


def fps(src: torch.Tensor, ptr: Sequence[int], ratio: float = 0.5,
        random_start: bool = False) -> torch.Tensor:
    """Samples points that are far from each other (farthest point sampling).

    Of each example a first point is taken, then again and again the point that is farthest from
    the nearest of those taken, by the Euclidean distance. No gradient flows through it. Outside of
    poptorch it does the same.

    Args:
        src: points, ``[N, F]``, or ``[N]`` for numbers on a line; examples stand behind each other.
            Integers must be less than 2**24, and more than -2**24.
        ptr: where the examples begin, and N: example i has the points ``ptr[i]`` to
            ``ptr[i + 1]``. Numbers, or a tensor that does not change: they are compiled in.
        ratio: the part of the points that is taken, more than 0 and at most 1: of an example of n
            points ``ceil(ratio * n)``.
        random_start: whether the first point is drawn; else it is the first one of the example.

    Returns:
        Positions in ``src``, int64, for each example in the order in which they were taken. Of
        points at an equal distance the first one is taken.

    Raises:
        poptorch.Error: An argument is wrong; or, when it runs, an integer is too large.

    Example:
        >>> import poptorch, torch
        >>> src = torch.tensor([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0], [2.0, 0.0], [7.0, 7.0]])
        >>> poptorch.fps(src, [0, 4, 5], ratio=0.5)
        tensor([0, 2, 4])
    """
    src = _points("fps", "src", src).detach()
    ptr = _ptr(ptr, len(src))
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 1:
        raise Error(f"[fps] ratio is {ratio!r}. Use a number that is more than 0 and at most 1.")
    sizes = [end - begin for begin, end in zip(ptr, ptr[1:])]
    part = _meant(ratio)
    counts = [math.ceil(part * size) for size in sizes]
    starts = None
    if random_start:
        many = torch.tensor(sizes)
        drawn = (torch.rand(len(sizes), dtype=torch.float32) * many).long()
        starts = drawn.minimum(many - 1).clamp(min=0)
    if is_capturing():
        return ops.fps(src, starts, ptr, counts)
    return evaluated("fps", [src, starts], {"ptr": ptr, "counts": counts, **_I64})[0]


def _points(where: str, name: str, points: torch.Tensor) -> torch.Tensor:
    if points.dim() not in (1, 2) or points.is_complex() or points.dtype is torch.bool:
        raise Error(f"[{where}] {name} is of {points.dtype} and sizes {list(points.shape)}. Give "
                    f"real points, one in each row.")
    points = points if points.dim() == 2 else points.unsqueeze(1)
    if points.is_floating_point():
        return points
    floats = points.float()
    if points.element_size() <= 2:
        return floats
    # What is less after rounding was less before, and then nothing was rounded.
    is_exact = (floats.abs() < _INTEGERS_BELOW).all()
    words = (f"[{where}] {name} is of {points.dtype} and has a number beyond "
             f"{_INTEGERS_BELOW - 1}: distances are of float32, which does not have all integers "
             f"there. Pass points of floating point, closer to the origin if need be.")
    if is_capturing():
        return checked(floats, is_exact, words)
    if not is_exact:
        raise Error(words)
    return floats


def _meant(ratio: float) -> Fraction:
    """The simple fraction that a number stands for: 0.07 * 100 is more than 7 in floats."""
    simple = Fraction(ratio).limit_denominator(2**24)
    return simple if float(simple) == ratio else Fraction(ratio)


def _batch(name: str, batch, count: int) -> torch.Tensor:
    if not isinstance(batch, torch.Tensor):
        batch = torch.tensor(batch)
    if batch.is_floating_point() or batch.dtype is torch.bool or batch.shape != (count,):
        raise Error(f"[nearest] {name} is of {batch.dtype} and sizes {list(batch.shape)}, but the "
                    f"number of the example is needed for each of {count} points.")
    return batch.long()


def _ptr(ptr, count: int) -> list[int]:
    if isinstance(ptr, torch.Tensor):
        ptr = ptr.reshape(-1).tolist()
    ptr = list(ptr)
    fits = len(ptr) > 0 and all(isinstance(p, int) and not isinstance(p, bool) for p in ptr) \
        and ptr[0] == 0 and ptr[-1] == count and sorted(ptr) == ptr
    if not fits:
        raise Error(f"[fps] ptr is {ptr}, but there are {count} points. Let it rise from 0 to "
                    f"{count}.")
    return ptr
