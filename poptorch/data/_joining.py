"""Micro-batches joined into one item, and items cut into rows; nested in any way.

What has rows, one for each sample: tensors and arrays; lists without tensors (of strings, say);
and what torch's default_collate makes of texts where samples are sequences: a tuple of the texts
that stand at one place of each sample.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy
import torch

from poptorch._base.pytree.containers import holds
from poptorch._base.pytree.structure import Mismatch, Structure
from poptorch._base.value_snapshot import same

_ARRAYS = (torch.Tensor, numpy.ndarray)


def join(parts: list):
    """One item that holds the micro-batches ``parts`` one after the other along dimension 0.

    Containers are joined member by member; what has rows is put one after
    the other, tensors without dimensions as a vector; other values must be the same in all parts.
    """
    leaves, structure = _taken_apart(parts[0])
    if len(parts) == 1 and all(getattr(leaf, "ndim", 1) for leaf in leaves):
        return parts[0]
    columns = zip(*(_leaves_like(structure, part) for part in parts))
    counts = [_sample_count(part) for part in parts]
    joined = []
    for (path, constant), column in zip(structure.leaves(), columns):
        has_rows = constant is None and not _is_constant(column, counts)
        _check_alike(column, path, is_constant=not has_rows)
        if constant is None:
            joined.append(_one_after_the_other(column) if has_rows else column[0])
    return structure.unflatten(joined)


def row_count(item) -> int:
    """How many rows (samples) an item has: the length of its tensors and lists, but for empty
    lists where there is something else."""
    leaves = _taken_apart(item)[0]
    # An empty list is what default_collate makes of samples that hold empty lists.
    told = [leaf for leaf in leaves if not (type(leaf) is list and not leaf)] or leaves
    lengths = [len(leaf) if getattr(leaf, "ndim", 1) else None for leaf in told]
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
    return type(first)(value for part in parts for value in part)


def _taken_apart(item) -> tuple[list, Structure]:
    """What of an item has rows, and the structure around it."""
    count = _sample_count(item)

    def has_rows(value) -> bool:
        if type(value) is list:
            return not holds(value, _ARRAYS) and not _are_places(value, count)
        return isinstance(value, _ARRAYS) or _is_texts(value, tuple, count)

    return Structure.of(item, "DataLoader", "an item", has_rows)


def _sample_count(item) -> int | None:
    """The number of samples in an item, if all its tensors agree on it; else None."""
    arrays, _ = Structure.of(item, "DataLoader", "an item", lambda v: isinstance(v, _ARRAYS))
    lengths = {len(array) for array in arrays if array.ndim}
    return lengths.pop() if len(lengths) == 1 else None


def _is_texts(value, kind: type, count: int | None) -> bool:
    """Whether a value is a text of each sample."""
    return (type(value) is kind and len(value) > 0 and count in (None, len(value))
            and all(isinstance(text, (str, bytes)) for text in value))


def _are_places(entries: Iterable, count: int | None) -> bool:
    """Whether each entry is a place of samples, but for containers without entries: so is what
    default_collate makes of samples that are sequences."""
    places = [entry for entry in entries if not isinstance(entry, (list, Mapping)) or entry]
    return len(places) > 0 and all(_is_place(entry, count) for entry in places)


def _is_place(entry, count: int | None) -> bool:
    """Whether all samples have their share in what stands at one place."""
    if type(entry) is list:
        return _are_places(entry, count)
    if isinstance(entry, Mapping):
        others = [value for value in entry.values() if not _is_texts(value, list, count)]
        return not others or _are_places(others, count)
    if isinstance(entry, tuple) and hasattr(entry, "_fields"):
        return _are_places(entry, count)
    return _is_texts(entry, tuple, count)


def _is_constant(column: tuple, counts: list) -> bool:
    """Whether tuples, one of each part, have another length than there are samples."""
    return isinstance(column[0], tuple) and not all(
        count in (None, len(value)) for value, count in zip(column, counts))


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
