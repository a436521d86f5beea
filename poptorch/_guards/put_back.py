"""Tensors without data that ``forward`` has put where they cannot stay."""

import torch

from poptorch._base.logging import logger
from poptorch._base.pytree.structure import Structure
from poptorch._base.torch_private import fake_tensors
from poptorch._base.value_snapshot import Snapshot, attributes_of, has_slots, objects_within
from poptorch._capture.graph.unknown_sizes import has_no_data
from poptorch.errors import Error


def warn_of_kept(path: str, place: str = "", is_emptied: bool = False) -> None:
    """Warns of one, once it is gone; ``is_emptied``: see :func:`emptied`."""
    left = "holds tensors without data (device meta)" if is_emptied else "is as it was before"
    logger.warning(
        "[capture] forward keeps a tensor in %s, but its values are on the device: afterwards it "
        "%s. Return the tensor; for a state that lasts, use register_buffer and "
        "copy_().%s", path, left, f"\n  at {place}" if place else "")


def emptied(value):
    """A container with tensors of the device meta in place of those without data; None for another
    value."""
    if has_no_data(value):
        return None
    try:
        leaves, structure = Structure.of(value)
    except Error:  # it holds itself, or tensors besides its parts
        return None
    found = structure.unflatten(
        torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
        if fake_tensors.is_fake(leaf) else leaf for leaf in leaves)
    return None if holds_fake(found, is_deep=True) else found


def holds_fake(value, is_deep: bool = False) -> bool:
    """Whether there is a tensor without data in a container; or, ``is_deep``, behind objects."""
    seen, left = set(), [value]
    while left:
        for _, part in objects_within(left.pop(), ""):
            if has_no_data(part):
                return True
            if is_deep and id(part) not in seen:
                seen.add(id(part))
                left += attributes_of(part).values()
    return False


def refill(before: Snapshot) -> bool:
    """Gives containers what they had, where ``forward`` has put tensors without data; whether it
    has."""
    filled = [(held, parts) for held, parts in before.held if holds_fake(held)]
    for held, parts in filled:
        _fill(held, parts)
    return bool(filled)


def _fill(container, parts: list[tuple]) -> None:
    if has_slots(container):
        for name in attributes_of(container):
            object.__delattr__(container, name)
        for name, value in parts:
            object.__setattr__(container, name, value)
        return
    container.clear()
    if isinstance(container, dict):
        container.update(parts)
    else:
        getattr(container, "update" if isinstance(container, set) else "extend")(
            [part for _, part in parts])
