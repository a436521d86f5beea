"""Tensors without data that ``forward`` has put where they cannot stay."""

from poptorch._base.logging import logger
from poptorch._base.torch_private import tracing as private
from poptorch._base.value_snapshot import Snapshot, attributes_of, has_slots, objects_within
from poptorch._capture.graph.unknown_sizes import UnknownSize

WITHOUT_DATA = (private.FakeTensor, UnknownSize)


def warn_of_kept(path: str, place: str = "") -> None:
    """Warns of one, once it is gone."""
    logger.warning(
        "[capture] forward keeps a tensor in %s, but its values are on the device: afterwards it "
        "is as it was before. Return the tensor; for a state that lasts, use register_buffer and "
        "copy_().%s", path, f"\n  at {place}" if place else "")


def holds_fake(value, is_deep: bool = False) -> bool:
    """Whether there is a tensor without data in a container; or, ``is_deep``, behind objects."""
    seen, left = set(), [value]
    while left:
        for _, part in objects_within(left.pop(), ""):
            if isinstance(part, WITHOUT_DATA):
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
