"""Which objects are containers, what their parts are, and how one is built from other parts.

By class, in this order:

    a class with a parser           poptorch.registerCustomArgParser; its subclasses follow
    registered in torch's pytree    torch.utils._pytree.register_pytree_node: results of torch such
                                    as torch.return_types.max, deque, what libraries and programs
                                    have registered; subclasses do not follow
    dict, list, tuple               and subclasses: OrderedDict, defaultdict, named tuples
    dataclasses
"""

import collections
import dataclasses
import operator
from collections.abc import Callable
from typing import NamedTuple

import torch

from poptorch._base.torch_private.basic import (
    SUPPORTED_NODES,
    is_constant_class,
    is_namedtuple_class,
)
from poptorch._base.value_snapshot import Snapshot
from poptorch.custom_args import parser_for


class Kind(NamedTuple):
    """How containers of a kind are taken apart and made.

    ``flatten`` gives the parts of a container, and the other values that must be equal for two
    containers to match. ``keys`` gives names of the parts: keys of a dictionary, as a dictionary;
    names of fields; positions. ``template`` gives what ``make`` needs in addition to the parts.
    """

    flatten: Callable
    keys: Callable
    template: Callable
    make: Callable


class Node:
    """A container without its parts. The functions of its kind returned ``keys``, ``context`` and
    ``template``. ``beside`` has the attributes, other than parts, that must be equal for another
    container to match."""

    __slots__ = ("cls", "kind", "keys", "context", "template", "children", "beside")

    def __init__(self, cls: type, kind: Kind, keys, context, template, children: list):
        self.cls, self.kind, self.keys = cls, kind, keys
        self.context, self.template, self.children = context, template, children
        self.beside: dict[str, Snapshot] = {}


class State(NamedTuple):
    """Attributes of a container besides its parts: those in its dictionary, and those in slots."""

    attributes: dict
    slots: dict


class HiddenTensors(Exception):
    """A container holds tensors that are not among its parts; the argument says where."""


def kind_of(cls: type) -> Kind | None:
    """How objects of a class are taken apart; None: they are leaves."""
    if parser_for(cls) is not None:
        return PARSED
    if cls in SUPPORTED_NODES and cls not in _STANDARD and not is_namedtuple_class(cls):
        return None if is_constant_class(cls) else REGISTERED
    if issubclass(cls, dict):
        return MAPPING
    if issubclass(cls, (list, tuple)):
        return SEQUENCE
    return FIELDS if dataclasses.is_dataclass(cls) else None


def holds(tree, kind) -> bool:
    """Whether an object of a class, or of one of several, is among the leaves of ``tree``."""
    left, seen = [tree], {}  # which keeps the objects, so that none has the identity of another
    while left:
        value = left.pop()
        if isinstance(value, kind):
            return True
        found = kind_of(type(value))
        if found is not None and id(value) not in seen:
            seen[id(value)] = value
            left += found.flatten(value)[0]
    return False


def state_of(value) -> State:
    """All attributes of an object."""
    state = object.__getstate__(value)
    plain, slots = state if isinstance(state, tuple) else (state, None)
    return State(dict(plain or {}), dict(slots or {}))


def set_state(made, state: State | None) -> None:
    """Gives an object attributes, whatever its class thinks of that."""
    if state is None:
        return
    if state.attributes:
        made.__dict__.update(state.attributes)
    for name, value in state.slots.items():
        object.__setattr__(made, name, value)


WITHOUT_ATTRIBUTES = frozenset({dict, list, tuple, torch.Size, collections.defaultdict})
# torch's own rule for torch.Size gives a tuple.
_STANDARD = frozenset({dict, list, tuple, torch.Size, collections.OrderedDict,
                       collections.defaultdict})


def _positions(value, parts) -> range:
    return range(len(parts))


def _beside(value, parts, names=()) -> State | None:
    """The attributes of a container but those of some names, which are its parts. An attribute that
    is one of the parts is for the class to set again with the part."""
    if type(value) in WITHOUT_ATTRIBUTES:
        return None
    state = state_of(value)
    for table in state:
        for name in [name for name in table if name in names]:
            del table[name]
        for name in [name for name, item in table.items() if holds(item, torch.Tensor)]:
            if not any(table[name] is part for part in parts):
                raise HiddenTensors(f"its attribute {name}")
            del table[name]
    return state if any(state) else None


# -- classes with a parser ---------------------------------------------------------------------


def _flatten_parsed(value):
    return list(parser_for(type(value)).yieldTensors(value)), None


def _make_parsed(node: Node, parts: list):
    return parser_for(node.cls).reconstruct(node.template, iter(parts))


PARSED = Kind(_flatten_parsed, _positions, lambda value, parts: value, _make_parsed)


# -- classes registered in torch's pytree -------------------------------------------------------


def _flatten_registered(value):
    parts, context = SUPPORTED_NODES[type(value)].flatten_fn(value)
    return list(parts), context


def _keys_of_registered(value, parts):
    # Of what it returns only names are used: for dataclasses the rest is not what unflatten takes.
    with_keys = SUPPORTED_NODES[type(value)].flatten_with_keys_fn
    if with_keys is not None:
        keys = [str(getattr(key, "idx", getattr(key, "key", getattr(key, "name", key))))
                for key, _ in with_keys(value)[0]]
        if len(keys) == len(parts):
            return keys
    if isinstance(value, dict) and len(value) == len(parts) \
            and all(map(operator.is_, value.values(), parts)):
        return [str(key) for key in value]
    return range(len(parts))


def _check_registered(value, parts) -> None:
    if holds(_flatten_registered(value)[1], torch.Tensor):
        raise HiddenTensors("the context that is registered for it in torch.utils._pytree")


def _make_registered(node: Node, parts: list):
    return SUPPORTED_NODES[node.cls].unflatten_fn(parts, node.context)


REGISTERED = Kind(_flatten_registered, _keys_of_registered, _check_registered, _make_registered)


# -- dictionaries, lists and tuples, dataclasses -----------------------------------------------


def _flatten_mapping(value):
    factory = value.default_factory if isinstance(value, collections.defaultdict) else None
    return list(value.values()), factory


def _make_mapping(node: Node, parts: list):
    cls = node.cls
    if cls is dict:
        return dict(zip(node.keys, parts))
    made = cls.__new__(cls)  # not its constructor, which may have any arguments
    set_state(made, node.template)
    if node.context is not None:
        made.default_factory = node.context
    for key, part in zip(node.keys, parts):
        made[key] = part
    return made


def _make_sequence(node: Node, parts: list):
    cls = node.cls
    if cls is tuple or cls is list:
        return cls(parts)
    if issubclass(cls, list):
        made = cls.__new__(cls)
        made.extend(parts)
    else:
        try:  # not by a constructor of the program's, which may have any arguments
            made = tuple.__new__(cls, parts)
        except TypeError:  # one of a class of C has to be called
            made = cls(parts)
    set_state(made, node.template)
    return made


def _fields(value, parts=()) -> list[str]:
    return [field.name for field in dataclasses.fields(value)]


def _make_dataclass(node: Node, parts: list):
    made = node.cls.__new__(node.cls)
    set_state(made, node.template)
    for name, part in zip(node.keys, parts):
        object.__setattr__(made, name, part)  # it may be frozen
    return made


MAPPING = Kind(_flatten_mapping, lambda value, parts: dict.fromkeys(value), _beside, _make_mapping)
SEQUENCE = Kind(lambda value: (value, None), _positions, _beside, _make_sequence)
FIELDS = Kind(lambda value: ([getattr(value, name) for name in _fields(value)], None), _fields,
              lambda value, parts: _beside(value, parts, _fields(value)), _make_dataclass)
