"""The blocks that the present capture has begun."""

import threading

import torch

from poptorch._annotations import annotations
from poptorch._annotations.annotations import BlockUse
from poptorch._base import capture_context


class _State(threading.local):
    """The number of the next block without a name, and the blocks of the forward pass, in order."""

    next_auto_id = 0
    uses: tuple[BlockUse, ...] = ()


_state = _State()


def uses() -> tuple[BlockUse, ...]:
    """All blocks that the present capture's forward pass began, in order."""
    return _state.uses


def reset() -> None:
    """Removes all blocks and restarts the numbering."""
    restart_numbers()
    _state.uses = ()


def restart_numbers() -> None:
    """Lets the next block without a name be number 0."""
    _state.next_auto_id = 0


def begin(user_id: str | int | None, ipu_id: int | None, is_scoped: bool = False,
          layer: torch.nn.Module | None = None):
    """Begins a block in a capture; returns what :func:`_annotations.end` takes."""
    capture = capture_context.current()
    recorder = capture.recorder
    module = recorder.module if layer is None else capture.path_of(layer)
    place = recorder.places.here()
    if recorder.in_backward:
        place, _ = recorder.places.in_backward()
        known = _begun_before(user_id, ipu_id, place, module)
        if known is not None:
            return annotations.begin("block", known)
    if user_id is None:
        user_id = _state.next_auto_id
        _state.next_auto_id += 1
    use = BlockUse(str(user_id), ipu_id, place, module, is_scoped)
    _state.uses += (use,)
    return annotations.begin("block", use)


def _begun_before(user_id, ipu_id, place, module: str) -> BlockUse | None:
    """The block of the forward pass that a recomputation begins again."""
    for use in reversed(_state.uses):
        if user_id is not None and use.user_id == str(user_id):
            return use
        if user_id is None and (use.ipu_id, use.place, use.module) == (ipu_id, place, module):
            return use
    return None
