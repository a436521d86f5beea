"""Annotations: what a program says of the operations that it runs, besides what they compute.

While ``forward`` is captured, each recorded operation takes the annotations that are entered. One
row of ``KINDS`` says everything about a kind of them. Whatever capture makes of an operation (its
decomposition, its functional form, a cast) has its annotations; the operations of its gradient have
those of the kinds that say so. Translate writes them as attributes of the IR, and
``csrc/ops/annotations.def`` says what passes do with these.

Outside of a capture annotations do nothing.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from poptorch._base import capture_context


@dataclass(frozen=True)
class BlockUse:
    """A block as ``forward`` began it, at ``place`` in ``module``. With ``is_scoped`` it ends with
    a ``with`` statement or a function, so that what comes after it is outside of all blocks."""

    user_id: str
    ipu_id: int | None
    place: tuple[str, int] | None = None
    module: str = ""
    is_scoped: bool = False


@dataclass(frozen=True)
class Kind:
    """One kind of annotation; ``name`` is that of the attribute in the IR too.

    ``merged`` gives the value inside of an outer and an inner one; ``attribute`` a value as the IR
    has it (None: the kind is no attribute). ``of_gradients``: the operations of a gradient are
    annotated as the operation is. ``has_open_end``: a value may outlast the function that entered
    it.
    """

    name: str
    type: type
    merged: Callable = lambda outer, inner: inner
    attribute: Callable | None = lambda value: value
    of_gradients: bool = True
    has_open_end: bool = False


def as_attribute(value):
    """Nested dictionaries and lists as lists; what the IR has no form for by its ``repr``."""
    if isinstance(value, dict):
        return [[str(key), as_attribute(item)] for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [as_attribute(item) for item in value]
    is_plain = value is None or type(value) in (bool, str, float)
    return value if is_plain or type(value) is int and abs(value) < 2**63 else repr(value)


KINDS = {kind.name: kind for kind in (
    Kind("block", BlockUse, attribute=lambda use: use.user_id, has_open_end=True),
    # The names of the scopes, outermost first. They stand before the module path of the place.
    Kind("scope", tuple, merged=lambda outer, inner: outer + inner, attribute=None),
    # Hints of the user's, by name.
    Kind("attributes", dict, merged=lambda outer, inner: {**outer, **inner},
         attribute=as_attribute),
    # The share of a tile's memory that an operation may take for itself, 0 to 1.
    Kind("available_memory", float),
    # In how many parts a product is computed: ``(dimension, parts)``. The products of its gradient
    # have other dimensions.
    Kind("serialization", tuple, attribute=list, of_gradients=False),
    # Convolutions that are computed together: their number, how they share the tiles, whether they
    # begin on different ones, those kept for each, the type of partial sums, and how much longer
    # than the fastest a plan may take.
    Kind("multi_conv", int),
    Kind("plan_type", str),
    Kind("dithering", bool),
    Kind("reserved_tiles", int),
    Kind("partials_type", str),
    Kind("cycle_back_off", float),
)}


@dataclass(frozen=True)
class Annotations:
    """The annotations of one operation, by kind.

    ``surrounding`` are those from outside of functions under ``torch.utils.checkpoint``: such a
    function enters its own again when it is recomputed.
    """

    values: dict = field(default_factory=dict)
    surrounding: dict = field(default_factory=dict)

    def get(self, kind: str):
        """The value of a kind; None without one."""
        return self.values.get(kind)

    @cached_property
    def of_gradient(self) -> "Annotations":
        """Those of the operations of the gradient."""
        return Annotations(_of_gradients(self.values), _of_gradients(self.surrounding))

    def path(self, module: str) -> str:
        """A module path behind the name scopes: ``encoder/layers.0``."""
        scopes = self.values.get("scope")
        return "/".join((*scopes, module)) if scopes else module

    def attributes(self) -> dict:
        """The attributes of the ops in the IR, by name."""
        return {name: KINDS[name].attribute(value) for name, value in self.values.items()
                if KINDS[name].attribute is not None}


NONE = Annotations()


def _of_gradients(values: dict) -> dict:
    return {name: value for name, value in values.items() if KINDS[name].of_gradients}


@dataclass(frozen=True)
class _Entry:
    """A value that is entered, merged with what was entered before; the part of it from outside of
    ``torch.utils.checkpoint``; and the number of the recomputation that entered it (0: the
    forward pass)."""

    value: object
    surrounding: object
    recompute: int


class _State(threading.local):
    """What is entered in one capture, by kind; and what the forward pass makes of it."""

    entries: dict[str, _Entry] = {}
    now: Annotations = NONE


_state = _State()


def reset() -> None:
    """Leaves everything that is entered."""
    _set({})


def current() -> Annotations:
    """The annotations of what the forward pass runs now."""
    return _state.now


def in_recomputation(origin: Annotations, recompute: int) -> Annotations:
    """The annotations of what a recomputation in the backward pass runs now.

    ``origin`` are those of the operation whose gradient asked for the recomputation of that number.
    What was entered elsewhere does not count.
    """
    values = dict(origin.surrounding)
    values.update((name, value) for name, value in origin.values.items()
                  if KINDS[name].has_open_end)
    for name, entry in _state.entries.items():
        if entry.recompute == recompute:
            values[name] = _merged(name, values.get(name), entry.value)
    return Annotations(values, origin.surrounding)


def begin(kind: str, value):
    """Annotates what runs from now on in this capture; returns what :func:`end` takes."""
    recorder, wanted = capture_context.current().recorder, KINDS[kind].type
    if not isinstance(value, wanted):
        raise recorder.error(f"[annotations] a value of {kind} is expected to be of class "
                             f"{wanted.__name__}, got {type(value).__name__} {value!r}.")
    recompute = recorder.places.in_backward()[1] if recorder.in_backward else 0
    outer = saved = _state.entries.get(kind)
    if outer is None or outer.recompute != recompute:
        outer = _Entry(None, None, recompute)
    value = _merged(kind, outer.value, value)
    is_inside = recompute == 0 and recorder.places.is_under_checkpoint()
    entry = _Entry(value, outer.surrounding if is_inside else value, recompute)
    _set({**_state.entries, kind: entry})
    return saved


def end(kind: str, saved) -> None:
    """Puts back what :func:`begin` found."""
    entries = {**_state.entries, kind: saved}
    if saved is None:
        del entries[kind]
    _set(entries)


@contextlib.contextmanager
def entered(kind: str, value):
    """A context in which operations are annotated with a value of a kind."""
    if not capture_context.is_capturing():
        yield
        return
    saved = begin(kind, value)
    try:
        yield
    finally:
        end(kind, saved)


def _merged(kind: str, outer, inner):
    return inner if outer is None else KINDS[kind].merged(outer, inner)


def _set(entries: dict[str, _Entry]) -> None:
    _state.entries = entries
    forward = {name: entry for name, entry in entries.items() if entry.recompute == 0}
    _state.now = Annotations(
        {name: entry.value for name, entry in forward.items()},
        {name: entry.surrounding for name, entry in forward.items()
         if entry.surrounding is not None})
