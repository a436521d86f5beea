"""int32 tensors where PyTorch takes int64 alone: classes and positions.

Integer results of an executor are int32, and go on as classes and positions of the next call. So a
function that asks for int64 is called again with what it is given in int64.
"""

import itertools
import re
from collections.abc import Iterator

import torch
from torch.utils import _pytree as pytree

_ASKS_FOR_INT64 = re.compile(r"\blong\b|LongTensor|int64", re.IGNORECASE)


def in_int64(func, args: tuple, kwargs: dict, error: Exception) -> Iterator[tuple[tuple, dict]]:
    """Arguments for the next attempts of a call: with one int32 tensor in int64, the last one
    first, then with two and so on; none where PyTorch does not ask for int64.

    Args:
        func: the function.
        args: what it refused.
        kwargs: likewise, by name.
        error: the refusal.
    """
    leaves, spec = pytree.tree_flatten((tuple(args), kwargs))
    if not _ASKS_FOR_INT64.search(str(error)) or any(map(_is_function, leaves)):
        return
    changed = _changed(func, args, kwargs)
    given = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)
             and leaf.dtype is torch.int32 and not any(leaf is x for x in changed)]
    for count in range(1, len(given) + 1):
        for chosen in itertools.combinations(reversed(given), count):
            yield pytree.tree_unflatten(
                [leaf.long() if i in chosen else leaf for i, leaf in enumerate(leaves)], spec)


def _is_function(leaf) -> bool:
    """Whether an argument may run code of the user's, which is not to run twice."""
    return callable(leaf) and not isinstance(leaf, torch.Tensor)


def _changed(func, args, kwargs) -> list:
    """The tensors that a function writes to, of which a copy would get the values."""
    name = getattr(func, "__name__", "")
    is_in_place = name.endswith("_") and not name.endswith("__") or name == "__setitem__"
    return [*(args[:1] if is_in_place else ()), *pytree.tree_leaves(kwargs.get("out"))]
