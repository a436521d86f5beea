"""Micro-batches joined into one item, and items cut into rows; nested in any way."""

from collections.abc import Iterable, Iterator

import numpy
import torch

from poptorch._containers import holds
from poptorch._pytree import Mismatch, Structure
from poptorch._snapshot import same

_ARRAYS = (torch.Tensor, numpy.ndarray)


def join(parts: list):
    """One item that holds the micro-batches ``parts`` one after the other along dimension 0.

    Containers (see ``_containers.py``) are joined member by member; lists without tensors (of
    strings, say) are put one after the other; other values must be the same in all parts.

    Raises:
        ValueError: The parts differ in structure, or in a value that is not a tensor.
        poptorch.Error: A container holds itself, or tensors beside its parts.
    """
    if len(parts) == 1:
        return parts[0]
    _, structure = _taken_apart(parts[0])
    columns = zip(*(_leaves_like(structure, part) for part in parts))
    joined = []
    for (path, constant), column in zip(structure.leaves(), columns):
        _check_alike(column, path, is_constant=constant is not None)
        if constant is None:
            joined.append(_one_after_the_other(column))
    return structure.unflatten(joined)


def row_count(item) -> int:
    """How many rows (samples) an item has: the length of its tensors and lists.

    Raises:
        ValueError: It has none, or they have different lengths.
    """
    lengths = [len(leaf) if getattr(leaf, "ndim", 1) else None for leaf in _taken_apart(item)[0]]
    if not lengths or None in lengths or len(set(lengths)) > 1:
        found = sorted(set(map(str, lengths)))
        raise ValueError(f"[DataLoader] to put batches of another size together, each tensor of a "
                         f"batch must have the samples along dimension 0, got the lengths "
                         f"{', '.join(found) or 'none'}. Use rebatched_worker_size=1.")
    return lengths[0]


def rows(item, first: int, last: int):
    """The rows ``first`` up to, not including, ``last`` of an item."""
    leaves, structure = _taken_apart(item)
    return structure.unflatten(leaf[first:last] for leaf in leaves)


def combine_batch_tensors_gen(batches: Iterable) -> Iterator[torch.Tensor]:
    """Yields, for each position in a batch, the tensors there of all batches as one.

    Args:
        batches: for each batch the list of its tensors, all of one length. Tensors are joined
            along dimension 0; those without dimensions become a vector.

    Raises:
        ValueError: A batch has more tensors than another.
    """
    for parts in zip(*batches, strict=True):
        yield _one_after_the_other(parts)


def _one_after_the_other(parts):
    first = parts[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(tuple(parts)) if first.ndim else torch.stack(tuple(parts))
    if isinstance(first, numpy.ndarray):
        return numpy.concatenate(parts) if first.ndim else numpy.stack(parts)
    return [value for part in parts for value in part]


def _taken_apart(item) -> tuple[list, Structure]:
    """What of an item has rows, and the structure around it."""
    return Structure.of(item, "DataLoader", "an item", _has_rows)


def _has_rows(value) -> bool:
    """Whether a value has one row for each sample: a tensor, an array, a list of other things."""
    return isinstance(value, _ARRAYS) or type(value) is list and not holds(value, _ARRAYS)


def _leaves_like(structure: Structure, part) -> list:
    try:
        return structure.flatten_like(part)
    except Mismatch as mismatch:
        one, other = mismatch.expected, mismatch.got
        if mismatch.what == "type":
            one, other = one.__name__, other.__name__
        raise _differ(mismatch.what, one, other, mismatch.path) from None


def _check_alike(column: tuple, path: str, *, is_constant: bool) -> None:
    """Checks what stands at one place of each part."""
    first = column[0]
    for value in column[1:]:
        if not isinstance(value, type(first)):
            raise _differ("type", type(first).__name__, type(value).__name__, path)
        if is_constant and not same(value, first):
            raise _differ("value", first, value, path)


def _differ(what, one, other, path) -> ValueError:
    where = f" of {path}" if path else ""
    return ValueError(f"[DataLoader] the {what}{where} differs between micro-batches that are "
                      f"joined to one item: {one} and {other}. Let the collate function return "
                      f"the same structure for each micro-batch.")
