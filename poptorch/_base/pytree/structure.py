"""Nested arguments, results and batches: taken apart into leaves, and put together again."""

import copy
import enum
import itertools
import types
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy
import torch

from poptorch._base import schema
from poptorch._base.pytree import hidden_tensors
from poptorch._base.pytree.containers import (
    FIELDS,
    MAPPING,
    PARSED,
    REGISTERED,
    SEQUENCE,
    WITHOUT_ATTRIBUTES,
    HiddenTensors,
    Node,
    State,
    holds,
    kind_of,
    set_state,
    state_of,
)
from poptorch._base.value_snapshot import Objects, Snapshot, same
from poptorch.errors import Error

# Of containers in containers. Not Python's limit of recursion: where that is reached, whatever
# Python calls in between (finalizers of objects that it frees) fails.
MAX_DEPTH = 100


# Data that can be changed, and is not taken apart.
_CHANGEABLE = (set, bytearray, array, numpy.ndarray)


class _TooDeep(Exception):
    """Containers are nested too deeply, or one holds itself."""


class Constant:
    """A leaf that does not vary; ``is_copied``: each tree has a copy of it."""

    __slots__ = ("is_copied", "value")

    def __init__(self, value):
        self.value, self.is_copied = value, False


class Mismatch(Exception):
    """A tree has another structure, at ``keys``.

    ``what`` is ``"type"``, ``"keys"``, ``"length"``, ``"context"`` (values of a container other
    than its parts) or ``"attribute"`` (such a value in an attribute, with both sides as text).
    """

    def __init__(self, what: str, expected, got):
        super().__init__(what, expected, got)
        self.keys: list = []
        self.what, self.expected, self.got = what, expected, got

    @property
    def path(self) -> str:
        return ".".join(map(str, self.keys))


def _is_tensor(value) -> bool:
    return isinstance(value, torch.Tensor)


class Structure:
    """A tree without those of its leaves that vary: tensors, unless it is said otherwise.

    Its parts are a ``Node`` for a container (see ``containers.py``), a ``Constant``, or None for a
    leaf that varies.
    """

    def __init__(self, root: Node | Constant | None):
        self._root = root

    @classmethod
    def of(cls, tree, where: str = "capture", name: str = "a result",
           varies: Callable = _is_tensor) -> tuple[list, "Structure"]:
        """The leaves of ``tree`` that vary, and its structure.

        ``varies`` is asked of each value before it is taken apart. A container that holds itself,
        or tensors outside of its parts, is an Error, which begins with ``where`` and calls the tree
        ``name``.
        """
        leaves: list = []
        return leaves, cls(_guarded(tree, where, name, varies, leaves))

    @classmethod
    def of_named(cls, trees: dict[str, object], where: str) -> tuple[list, "Structure"]:
        """As :meth:`of` for a dictionary; an error names the entry that it is about."""
        leaves: list = []
        children = [_guarded(tree, where, name, _is_tensor, leaves)
                    for name, tree in trees.items()]
        return leaves, cls(Node(dict, MAPPING, dict.fromkeys(trees), None, None, children))

    @property
    def paths(self) -> list[str]:
        return [path for path, part in self.leaves() if part is None]

    def leaves(self) -> list[tuple[str, Constant | None]]:
        """Path and constant of each leaf, in order; None for one that varies. Paths of different
        keys may read alike, as of ``1`` and ``"1"``: ``.value`` is added to the later ones."""
        found: list = []
        _walk(self._root, "", found)
        paths: dict[str, Constant | None] = {}
        for path, part in found:
            while path in paths:
                path += ".value"
            paths[path] = part
        return list(paths.items())

    def unflatten(self, leaves: Iterable):
        """The tree with ``leaves`` in place of those that vary."""
        return _built(self._root, iter(leaves))

    def copy_data(self, held) -> None:
        """Lets each tree have copies of the data in leaves that can be changed, unless ``held``
        leads to them."""
        found = [part for _, part in self.leaves() if part is not None
                 and type(part.value) in _CHANGEABLE]
        kept = hidden_tensors.reached(held, {id(part.value) for part in found}) if found else ()
        for part in found:
            part.is_copied = id(part.value) not in kept

    def flatten_like(self, tree) -> list:
        """What stands in ``tree`` where this has leaves, constants included; or a
        :class:`Mismatch`."""
        found: list = []
        _collect(self._root, tree, found)
        return found

    def paired(self, tree) -> list[tuple[str, Node | Constant, object]]:
        """Path, container or constant, and what stands for it in a tree that was made by
        :meth:`unflatten`, as far as that is of this structure."""
        found: list = []
        _pair(self._root, tree, "", found)
        return found

    def nodes(self) -> list[Node]:
        """The containers that may have attributes besides their parts, each before its parts."""
        found, left = [], [self._root]
        while left:
            part = left.pop()
            if isinstance(part, Node):
                left += reversed(part.children)
                if part.cls not in WITHOUT_ATTRIBUTES:
                    found.append(part)
        return found

    def comparing(self, read: Mapping[int, set[str]] | None = None) -> "Structure":
        """This, able to compare but not to make: it refers to no object of the tree.

        ``read`` has the attributes to compare of each container in :meth:`nodes`: ``"__dict__"``
        stands for all; None: all of all.
        """
        numbers = itertools.count()
        return Structure(_bare(self._root, lambda: read.get(next(numbers), ()) if read is not None
                               else {"__dict__"}))

    def to_data(self, constants: Iterable | None = None) -> tuple | None:
        """This as nested tuples of classes and constants, without any object of the tree.

        ``constants`` replace those of the leaves, in order. What is more than data, or was changed
        since :meth:`comparing` was called, is an Error.
        """
        if constants is None:
            constants = [part.value for _, part in self.leaves() if part is not None]
        return _plain(self._root, iter(constants))

    @classmethod
    def from_data(cls, data, where: str) -> "Structure":
        """The structure that :meth:`to_data` described; a ValueError names ``where`` data of
        another form stand."""
        return cls(_filled(data, where))


def join_path(path: str, key) -> str:
    """The readable path of entry ``key`` of what stands at ``path`` (empty: the top)."""
    return f"{path}.{key}" if path else str(key)


def map_only(kind: type, function: Callable, tree):
    """``tree`` with what ``function`` makes of each leaf of a class."""
    leaves, structure = Structure.of(tree, varies=lambda value: isinstance(value, kind))
    return structure.unflatten(map(function, leaves))


def is_closed(leaf) -> bool:
    """Whether a leaf is an iterator, or a collection of tensors that is not taken apart."""
    if isinstance(leaf, Collection) and not isinstance(leaf, (str, bytes)):
        return holds(list(leaf), torch.Tensor)
    return isinstance(leaf, Iterator)


def tensor_attributes(leaf, kind: type = torch.Tensor) -> list[str]:
    """Names of the attributes of a leaf that are tensors, of a class."""
    return [name for name, item in getattr(leaf, "__dict__", {}).items() if isinstance(item, kind)]


# -- taking apart and putting together ---------------------------------------------------------


def _guarded(tree, where: str, name: str, varies: Callable, leaves: list):
    try:
        return _described(tree, varies, leaves, 0)
    except _TooDeep:
        raise Error(f"[{where}] {name} is a {type(tree).__name__} that holds itself, "
                    f"or is nested more than {MAX_DEPTH} levels deep. Use lists, tuples and "
                    f"dictionaries of tensors that do not hold one another.") from None
    except HiddenTensors as hidden:
        kind, what = hidden.args
        raise Error(f"[{where}] {name} is or contains a {kind}: {what} holds tensors that are not "
                    f"among its parts. Put them among the parts, or register a parser for the "
                    f"class with poptorch.registerCustomArgParser.") from None


def _described(value, varies: Callable, leaves: list, depth: int):
    if varies(value):
        leaves.append(value)
        return None
    cls = type(value)
    kind = kind_of(cls)
    if kind is None:
        return Constant(value)
    if depth == MAX_DEPTH:
        raise _TooDeep
    parts, context = kind.flatten(value)
    try:
        template = kind.template(value, parts)
    except HiddenTensors as hidden:
        raise HiddenTensors(cls.__name__, *hidden.args) from None
    children = []
    for part in parts:
        children.append(_described(part, varies, leaves, depth + 1))
    return Node(cls, kind, kind.keys(value, parts), context, template, children)


def _built(part, leaves: Iterator):
    if part is None:
        return next(leaves)
    if type(part) is Constant:
        return copy.copy(part.value) if part.is_copied else part.value
    return part.kind.make(part, [next(leaves) if child is None else _built(child, leaves)
                                 for child in part.children])


def _walk(part, path: str, found: list) -> None:
    if isinstance(part, Node):
        for key, child in zip(part.keys, part.children):
            _walk(child, join_path(path, key), found)
    else:
        found.append((path, part))


def _pair(part, value, path: str, found: list) -> None:
    if part is None:
        return
    found.append((path, part, value))
    if isinstance(part, Node) and type(value) is part.cls:
        parts = part.kind.flatten(value)[0]
        for key, child, item in zip(part.keys, part.children, parts):
            _pair(child, item, join_path(path, key), found)


def _collect(part, value, found: list) -> None:
    if not isinstance(part, Node):
        found.append(value)
        return
    if type(value) is not part.cls:  # not a subclass either: what is made is of the class
        raise Mismatch("type", part.cls, type(value))
    parts, context = part.kind.flatten(value)
    if part.kind is MAPPING:
        if value.keys() != part.keys.keys():
            raise Mismatch("keys", list(part.keys), list(value))
        parts = [value[key] for key in part.keys]
    elif len(parts) != len(part.children):
        if isinstance(value, dict):
            raise Mismatch("keys", list(part.keys), list(part.kind.keys(value, parts)))
        raise Mismatch("length", len(part.children), len(parts))
    if context is not part.context and not same(context, part.context):
        raise Mismatch("context", part.context, context)
    if part.beside:
        _compare_beside(part, value)
    for key, child, item in zip(part.keys, part.children, parts):
        try:
            _collect(child, item, found)
        except Mismatch as mismatch:
            mismatch.keys.insert(0, key)
            raise


def _compare_beside(part: Node, value) -> None:
    state = state_of(value)
    now = {**state.attributes, **state.slots}
    for name, snapshot in part.beside.items():
        found = snapshot.difference(now[name], name) if name in now \
            else (name, snapshot.text(), "nothing")
        if found is not None:
            mismatch = Mismatch("attribute", *found[1:])
            mismatch.keys.append(found[0])
            raise mismatch


def _bare(part, names_of: Callable):
    """A part without its source, except attributes of some names."""
    if not isinstance(part, Node):
        return part
    names = names_of() if part.cls not in WITHOUT_ATTRIBUTES else ()
    state = State(*({name: value for name, value in table.items()
                     if "__dict__" in names or name in names} for table in _state_beside(part)))
    bare = Node(part.cls, part.kind, part.keys, part.context, state if any(state) else None, [])
    bare.beside = {name: Snapshot(value, Objects.ALIKE)
                   for table in state for name, value in table.items()}
    bare.children += [_bare(child, names_of) for child in part.children]
    return bare


def _state_beside(part: Node) -> State:
    """What a container has in attributes that are not among its parts."""
    template = part.template
    if template is None or isinstance(template, State):
        return template or State({}, {})
    return State(*({name: value for name, value in table.items()
                    if not holds(value, torch.Tensor)} for table in state_of(template)))


# -- as data -----------------------------------------------------------------------------------

_KINDS = {"parser": PARSED, "registered": REGISTERED, "mapping": MAPPING, "sequence": SEQUENCE,
          "dataclass": FIELDS}
_NAMES = {id(kind): name for name, kind in _KINDS.items()}
_PART = ({*_KINDS}, type, tuple, object, tuple | None, tuple)
_DATA = (type(None), bool, int, float, complex, str, bytes, torch.dtype, enum.Enum)
# Called without arguments, these make something empty.
_FACTORIES = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)


def _is_data(value) -> bool:
    left, seen = [value], set()
    while left:
        item = left.pop()
        if type(item) in (list, tuple, torch.Size, dict, set, frozenset):
            if id(item) not in seen:
                left += [*item, *item.values()] if type(item) is dict else item
            seen.add(id(item))
        elif not isinstance(item, _DATA) and not any(item is kind for kind in _FACTORIES):
            return False
    return True


def changed_since_compilation(what: str, was, now) -> Error:
    """The error of saving a program that was compiled for another value."""
    return Error(f"[save] {what} changed from {was} to {now} after compilation, so the saved file "
                 f"would not match it. Set it back, or call the model first.")


def _check_as_it_was(part: Node, name: str, value) -> None:
    found = part.beside[name].difference(value, name)
    if found is not None:
        path, was, now = found
        what = f"{path} of a {part.cls.__name__} among the arguments"
        raise changed_since_compilation(what, was, now)


def _plain(part, constants: Iterator) -> tuple | None:
    if part is None:
        return None
    if type(part) is Constant:
        return "constant", next(constants)
    if not _is_data(part.context):
        raise Error(f"[save] a {part.cls.__name__} among the arguments or results has besides its "
                    f"parts {part.context!r:.80}, which cannot be put into a file. Let it be made "
                    f"of numbers, strings, built-in classes, and lists and dictionaries of them.")
    state = None if part.template is None else tuple(_state_beside(part))
    for table in state or ():
        for name in table.keys() & part.beside.keys():
            _check_as_it_was(part, name, table[name])
    return (_NAMES[id(part.kind)], part.cls, tuple(part.keys), part.context, state,
            tuple(_plain(child, constants) for child in part.children))


def _filled(data, where: str):
    """The part that :func:`_plain` described. Makes no container, and so calls no function of its
    class but ``__new__`` of one with a parser."""
    if data is None:
        return None
    if isinstance(data, tuple) and data[:1] == ("constant",):
        schema.check(data, ({"constant"}, object), where)
        return Constant(data[1])
    schema.check(data, _PART, where)
    name, cls, keys, context, state, children = data
    kind, template = _KINDS[name], None
    if kind_of(cls) is not kind:
        raise ValueError(f"{where} is a container of kind {name} and of {cls}, which is none here. "
                         f"Register the class before loading, as it was when the file was written")
    if len(keys) != len(children) or len(dict.fromkeys(keys)) != len(keys):
        raise ValueError(f"{where} has {len(children)} parts with the keys {keys!r:.60}")
    if kind is FIELDS and keys != tuple(kind.keys(cls, ())):
        raise ValueError(f"{where} has the fields {keys!r:.60}, {cls} has others")
    if not _is_data(context):
        raise ValueError(f"{where} has {context!r:.60} besides its parts, which is more than data")
    if state is not None:
        schema.check(state, (dict, dict), where)
        template = State(*state)
        for slot in template.slots:
            if not isinstance(getattr(cls, slot, None), types.MemberDescriptorType):
                raise ValueError(f"{where} has the attribute {slot!r:.60}, {cls} has no such slot")
        if kind is PARSED:
            template = cls.__new__(cls)
            set_state(template, State(*state))
    return Node(cls, kind, dict.fromkeys(keys) if kind is MAPPING else keys, context, template,
                [_filled(child, join_path(where, key)) for key, child in zip(keys, children)])
