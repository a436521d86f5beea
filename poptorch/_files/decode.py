"""Python objects from the JSON that :mod:`poptorch._files.encode` makes of them."""

import base64
import enum
import functools
import operator

import torch
from torch.nn.utils import parametrize

from poptorch import blocks
from poptorch._annotations import block_class
from poptorch._files import names

_ENCODED = (dict, list)  # other values of JSON are what they stand for


class Decoder:
    """Makes objects of what :class:`poptorch._files.encode.Encoder` wrote.

    ``tensors`` has the data of tensors. One of one name is one object in all documents.
    """

    def __init__(self, tensors: dict[str, torch.Tensor]):
        self._data = tensors
        self._made: dict[str, torch.Tensor] = {}

    def document(self, value):
        """The object that one JSON value describes."""
        self._shared: list = []
        return self._value(value)

    def _value(self, value):
        if not isinstance(value, _ENCODED):
            return value
        for key in value:
            if key in _READERS:
                return _READERS[key](self, value)
        raise ValueError(f"an entry of kind {next(iter(value), '')!r}")

    def _items(self, values: list) -> list:
        read = self._value
        return [read(item) if isinstance(item, _ENCODED) else item for item in values]

    def _pairs(self, pairs: list):
        read = self._value
        return [(read(key) if isinstance(key, _ENCODED) else key,
                 read(item) if isinstance(item, _ENCODED) else item) for key, item in pairs]

    def _container(self, made, add, parts):
        """Numbers a container before its parts, which may refer to it."""
        self._shared.append(made)
        add(made, parts)
        return made

    def _object(self, value):
        number = len(self._shared)
        self._shared.append(None)
        args = self._items(value.get("args", ()))
        if "make" in value:
            made = names.MAKERS[value["make"]](*args)
        else:
            cls = names.object_class(value["object"])
            made = cls.__new__(cls, *args)
        self._shared[number] = made
        if len(value) == 1:
            return made
        if "state" in value:
            _set_state(made, self._value(value["state"]))
        for kind in ("parametrized", "block"):
            if kind in value and not isinstance(made, torch.nn.Module):
                raise ValueError(f"a {type(made).__name__} with {kind!r}")
        if "parametrized" in value:  # as register_parametrization does to a module's class
            parametrize._inject_new_class(made)
            for name in value["parametrized"]:
                parametrize._inject_property(made, name)
        if "block" in value:
            user_id, ipu_id = self._items(value["block"])
            blocks.check_ids("load", user_id, ipu_id)
            block_class.annotate(made, user_id, ipu_id)
        for item in self._items(value.get("items", [])):
            made.append(item)
        for key, item in self._pairs(value.get("pairs", [])):
            made[key] = item
        return made

    def _ref(self, value):
        found = self._shared[value["ref"]]
        if found is None:
            raise ValueError("an object that contains itself")
        return found

    def _tensor(self, value):
        name = value["tensor"]
        if name not in self._made:
            tensor = self._data[name]
            if "order" in value:  # contiguous with its dimensions in this order
                order = value["order"]
                tensor = tensor.permute(order).contiguous().permute(
                    [order.index(dim) for dim in range(len(order))])
            if value["parameter"]:
                tensor = torch.nn.Parameter(tensor, requires_grad=False)
            self._made[name] = tensor.requires_grad_(value["requires_grad"])
            for key, item in self._pairs(value.get("attributes", [])):
                tensor.__dict__[key] = item
        return self._made[name]

    def _array(self, value):
        data = self._tensor(value["array"]).numpy()
        self._shared.append(data[()] if value["scalar"] else data)
        return self._shared[-1]

    def _enum(self, value):
        cls = names.class_of(value["enum"])
        if not isinstance(cls, enum.EnumMeta):
            raise ValueError(f"{value['enum']} is no enumeration")
        members = [cls.__members__[name] for name in value["names"]]
        return members[0] if len(members) == 1 else functools.reduce(operator.or_, members, cls(0))

    def _torch(self, value):
        found = vars(torch)[value["torch"]]
        if not isinstance(found, names.VALUES):
            raise ValueError(f"torch.{value['torch']} is no dtype, layout or memory format")
        return found


_READERS = {
    "list": lambda self, v: self._container(
        [], lambda made, parts: made.extend(self._items(parts)), v["list"]),
    "dict": lambda self, v: self._container(
        {}, lambda made, parts: made.update(self._pairs(parts)), v["dict"]),
    "set": lambda self, v: self._container(
        set(), lambda made, parts: made.update(self._items(parts)), v["set"]),
    "tuple": lambda self, v: tuple(self._items(v["tuple"])),
    "frozenset": lambda self, v: frozenset(self._items(v["frozenset"])),
    "ellipsis": lambda self, v: Ellipsis,
    "float": lambda self, v: float(v["float"]),
    "bytes": lambda self, v: base64.b64decode(v["bytes"]),
    "class": lambda self, v: names.class_of(v["class"]),
    "function": lambda self, v: names.function_of(v["function"]),
    "meta": lambda self, v: torch.empty(v["meta"], dtype=self._torch(v), device="meta"),
    "torch": Decoder._torch,
    "enum": Decoder._enum,
    "tensor": Decoder._tensor,
    "array": Decoder._array,
    "object": Decoder._object,
    "make": Decoder._object,
    "ref": Decoder._ref,
}


def _set_state(made, state) -> None:
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return
    plain, slots = state if isinstance(state, tuple) else (state, None)
    made.__dict__.update(plain or {})
    for name, value in (slots or {}).items():
        object.__setattr__(made, name, value)
