"""Micro-batches joined into one item, and items cut into rows; nested in any way."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import numpy
import torch

from poptorch._capture.structure import children_of, join_path, rebuilt
from poptorch.custom_args import parser_of


def join(parts: list):
    """One item that holds the micro-batches ``parts`` one after the other along dimension 0.

    Dictionaries, lists, tuples, dataclasses and classes with a custom parser are joined member
    by member; lists without tensors (of strings, say) are put one after the other; other values
    must be the same in all parts.

    Raises:
        ValueError: The parts differ in structure, or in a value that is not a tensor.
    """
    return parts[0] if len(parts) == 1 else _combine(parts, _one_after_the_other, "")


def row_count(item) -> int:
    """How many rows (samples) an item has: the length of its tensors and lists.

    Raises:
        ValueError: It has none, or they have different lengths.
    """
    lengths = []

    def note(parts):
        lengths.append(len(parts[0]) if getattr(parts[0], "ndim", 1) else None)
        return parts[0]

    _combine([item], note, "")
    if not lengths or None in lengths or len(set(lengths)) > 1:
        found = sorted(set(map(str, lengths)))
        raise ValueError(f"[DataLoader] to put batches of another size together, each tensor of a "
                         f"batch must have the samples along dimension 0, got the lengths "
                         f"{', '.join(found) or 'none'}. Use rebatched_worker_size=1.")
    return lengths[0]


def rows(item, first: int, last: int):
    """The rows ``first`` up to, not including, ``last`` of an item."""
    return _combine([item], lambda parts: parts[0][first:last], "")


def combine_batch_tensors_gen(groups: Iterable) -> Iterator[torch.Tensor]:
    """Yields each group of tensors as one tensor, joined along dimension 0.

    Args:
        groups: tuples of tensors; those without dimensions are joined to a vector.
    """
    for group in groups:
        yield _one_after_the_other(group)


def _one_after_the_other(parts):
    first = parts[0]
    if isinstance(first, torch.Tensor):
        return torch.cat(tuple(parts)) if first.ndim else torch.stack(tuple(parts))
    if isinstance(first, numpy.ndarray):
        return numpy.concatenate(parts) if first.ndim else numpy.stack(parts)
    return [value for part in parts for value in part]


def _combine(parts: list, combine_rows: Callable, path: str):
    """``parts``, alike in structure, as one; ``combine_rows`` is given the leaves with rows."""
    first = parts[0]
    if isinstance(first, torch.Tensor | numpy.ndarray):
        _check_kind(parts, type(first), path)
        return combine_rows(parts)
    if parser_of(first) is not None:
        _check_kind(parts, type(first), path)
        tensors = [children_of(part) for part in parts]
        _check_same(tensors, len, "number of tensors", path)
        return rebuilt(first, {i: combine_rows([part[i] for part in tensors])
                               for i in tensors[0]})
    if isinstance(first, dict):
        _check_same(parts, lambda part: list(part), "keys", path)
        return rebuilt(first, {key: _combine([part[key] for part in parts], combine_rows,
                                             join_path(path, key)) for key in first})
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        _check_kind(parts, type(first), path)
        children = [children_of(part) for part in parts]
        return rebuilt(first, {name: _combine([part[name] for part in children], combine_rows,
                                              join_path(path, name)) for name in children[0]})
    if type(first) is list and not any(_has_tensor(value) for value in first):
        _check_kind(parts, list, path)
        return combine_rows(parts)
    if isinstance(first, list | tuple):
        _check_same(parts, len, "length", path)
        return rebuilt(first, {i: _combine(list(members), combine_rows, join_path(path, i))
                               for i, members in enumerate(zip(*parts))})
    _check_same(parts, lambda part: part, "value", path)
    return first


def _has_tensor(value) -> bool:
    if isinstance(value, torch.Tensor | numpy.ndarray) or parser_of(value) is not None:
        return True
    if isinstance(value, dict):
        return any(map(_has_tensor, value.values()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(_has_tensor(getattr(value, f.name)) for f in dataclasses.fields(value))
    return isinstance(value, list | tuple) and any(map(_has_tensor, value))


def _check_kind(parts, kind: type, path: str) -> None:
    for part in parts:
        if not isinstance(part, kind):
            raise _differ("type", kind.__name__, type(part).__name__, path)


def _check_same(parts, of: Callable, what: str, path: str) -> None:
    _check_kind(parts, type(parts[0]), path)
    expected = of(parts[0])
    for part in parts[1:]:
        if of(part) != expected:
            raise _differ(what, expected, of(part), path)


def _differ(what, one, other, path) -> ValueError:
    where = f" of {path}" if path else ""
    return ValueError(f"[DataLoader] the {what}{where} differs between micro-batches that are "
                      f"joined to one item: {one} and {other}. Let the collate function return "
                      f"the same structure for each micro-batch.")
