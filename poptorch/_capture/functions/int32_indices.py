"""int32 tensors where PyTorch takes int64 alone: classes and positions.

Integer results of an executor are int32, and go on as classes and positions of the next call. So a
function that asks for int64 is called again with int64 copies of its int32 arguments.
"""

import itertools
import re
from collections.abc import Iterator

import torch

from poptorch._base.pytree.structure import map_only

_ASKS_FOR_INT64 = re.compile(r"\b(Long|LongTensor|long(?! int)|int64)\b")
_COMPARES = re.compile("same|match")  # two types, which neither has to be


def in_int64(func, args: tuple, kwargs: dict, error: Exception) -> Iterator[tuple[tuple, dict]]:
    """Arguments for the next attempts of a call: with one int32 tensor in int64, the last one
    first, then with two and so on; none where PyTorch does not ask for int64.

    Args:
        func: the function.
        args, kwargs: the arguments that it refused.
        error: the refusal.
    """
    given, kept = _tensors((args, kwargs)), _changed(func, args, kwargs)
    if not _is_for_places(str(error), given) or any(map(_is_function, (*args, *kwargs.values()))):
        return
    given = [x for x in reversed(given) if x.dtype is torch.int32 and not _is_among(x, kept)]
    for count in range(1, len(given) + 1):
        for chosen in itertools.combinations(given, count):
            yield map_only(torch.Tensor, lambda x: x.long() if _is_among(x, chosen) else x,
                           (tuple(args), kwargs))


def _is_for_places(words: str, given: list[torch.Tensor]) -> bool:
    """Whether a refusal asks for int64, and not for what another tensor has."""
    return _ASKS_FOR_INT64.search(words) is not None and not _COMPARES.search(words) and not (
        "scalar type" in words and any(x.dtype is torch.int64 for x in given))


def _tensors(value) -> list[torch.Tensor]:
    found = []
    map_only(torch.Tensor, found.append, value)
    return found


def _is_among(tensor: torch.Tensor, others) -> bool:
    return any(tensor is other for other in others)


def _is_function(leaf) -> bool:
    """Whether an argument may run code of the user's, which is not to run twice."""
    return callable(leaf) and not isinstance(leaf, torch.Tensor)


def _changed(func, args, kwargs) -> list:
    """The tensors that a function writes to: it would write to a copy instead."""
    name = getattr(func, "__name__", "")
    is_in_place = name.endswith("_") and not name.endswith("__") or name == "__setitem__"
    return _tensors((args[:1] if is_in_place else (), kwargs.get("out")))
