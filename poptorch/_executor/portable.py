"""Python objects as JSON: what a file holds instead of a pickle.

A pickle is a program: reading it runs what it says. This form is data. It names classes and
functions, which are looked up among those that the reading program has imported already; an object
is made by its class's ``__new__`` and given its attributes, and nothing else is called.

    net = Net()         =>  {"object": "net:Net", "state": {"dict": [["training", true], ...]}}
    torch.float32       =>  {"torch": "float32"}
    a tensor            =>  {"tensor": "fc.weight", ...}; its data stand elsewhere, by this name

Lists, dictionaries, sets and objects are numbered in the order in which they begin; one that is
met again is ``{"ref": number}``, so shared parts stay shared.
"""

import base64
import collections
import copyreg
import enum
import math
import pathlib
import sys
import types

import torch
from torch.nn.utils import parametrize

from poptorch import blocks
from poptorch._executor import instrument, watched
from poptorch.errors import Error

_PLAIN = (type(None), bool, int, str)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_TORCH = (torch.dtype, torch.memory_format, torch.layout)
# Classes of the standard library that are data and nothing else.
_DATA = {cls: f"{cls.__module__}:{cls.__qualname__}" for cls in (
    bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, object, type(None),
    collections.OrderedDict, collections.defaultdict, collections.deque, collections.Counter,
    types.SimpleNamespace, pathlib.PosixPath, pathlib.PurePosixPath)}
# What objects are made by that have no plain state: these are called when a file is read.
_MAKERS = {f"{f.__module__}:{f.__qualname__}": f for f in (
    complex, collections.OrderedDict, collections.defaultdict, collections.deque,
    collections.Counter, types.SimpleNamespace, pathlib.PosixPath, pathlib.PurePosixPath,
    torch.Size, blocks.BeginBlock)}
_MAKERS["torch:device"] = torch.device
# Where functions of torch may come from: those that compute.
_TORCH_FUNCTIONS = ("torch", "torch.nn.functional", "torch._C._nn", "torch.special")


class Encoder:
    """Turns objects into JSON values; see :class:`Decoder` for the way back.

    Args:
        named: names that tensors have already, by tensor name.

    Attributes:
        tensors: every tensor that was met and is not among ``named``, by the name given to it.
    """

    def __init__(self, named: dict[str, torch.Tensor] | None = None):
        self.tensors: dict[str, torch.Tensor] = {}
        self._names = {id(tensor): name for name, tensor in (named or {}).items()}
        self._kept = [named]

    def document(self, value, what: str):
        """One JSON value, with numbers of its own.

        Args:
            value: any object made of data, modules, tensors, classes and top-level functions.
            what: what an error message calls it.

        Raises:
            poptorch.Error: Some part of it is not such an object.
        """
        self._numbers: dict[int, int] = {}
        return self._value(value, what)

    def _value(self, value, path: str):
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, enum.Enum):
            return {"enum": self._reference(kind, path), "name": value.name}
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, type):
            return {"class": self._reference(value, path)}
        if isinstance(value, _FUNCTIONS):
            return {"function": self._reference(value, path)}
        if isinstance(value, _TORCH):
            return {"torch": str(value).removeprefix("torch.")}
        if kind is tuple or kind is frozenset:
            return {kind.__name__: self._items(value, path)}
        if kind is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        if kind is slice:
            return {"slice": self._items((value.start, value.stop, value.step), path)}
        return self._shared(value, path)

    def _items(self, values, path: str) -> list:
        return [self._value(item, f"{path}[{i}]") for i, item in enumerate(values)]

    def _pairs(self, pairs, path: str) -> list:
        return [[self._value(key, f"{path}, a key"), self._value(item, f"{path}.{key}")]
                for key, item in pairs]

    def _shared(self, value, path: str):
        """What has an identity: met again, it must be the same object."""
        if id(value) in self._numbers:
            return {"ref": self._numbers[id(value)]}
        self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        if type(value) is list:
            return {"list": self._items(value, path)}
        if type(value) is dict:
            return {"dict": self._pairs(value.items(), path)}
        if type(value) is set:
            return {"set": self._items(sorted(value, key=repr), path)}
        return self._object(value, path)

    def _object(self, value, path: str):
        if isinstance(value, torch.nn.Module) and parametrize.is_parametrized(value):
            return self._parametrized(value, path)
        try:
            function, args, *rest = value.__reduce_ex__(4)
        except (TypeError, AttributeError, RuntimeError, ValueError) as error:
            raise _refused(path, value, str(error)) from error
        state, items, pairs = (*rest, None, None, None)[:3]
        if function in (copyreg.__newobj__, instrument.new):
            out = {"object": self._reference(args[0], path), "args": self._items(args[1:], path)}
        else:
            name = f"{function.__module__}:{function.__qualname__}"
            if name not in _MAKERS:
                raise _refused(path, value, f"it is made by {name}")
            out = {"make": name, "args": self._items(args, path)}
        if state is not None:
            out["state"] = self._value(state, path)
        if items is not None:
            out["items"] = self._items(items, path)
        if pairs is not None:
            out["pairs"] = self._pairs(pairs, path)
        return out

    def _parametrized(self, value: torch.nn.Module, path: str) -> dict:
        """A module with computed parameters (a weight norm, say): torch gave it a class of its own,
        which a pickle refuses and which the reader makes anew. Its hook for state dictionaries
        older than that class stays behind: a function inside of torch's weight_norm."""
        kind = type(value).__bases__[0] if instrument.is_instrumented(value) else type(value)
        state = {**vars(value)}
        state["_load_state_dict_pre_hooks"] = collections.OrderedDict(
            (number, hook) for number, hook in state["_load_state_dict_pre_hooks"].items()
            if getattr(hook.hook, "__module__", "") != "torch.nn.utils.parametrizations")
        self._kept.append(state)
        return {"object": self._reference(kind.__bases__[0], path), "args": [],
                "state": self._value(state, path), "parametrized": list(value.parametrizations)}

    def _tensor(self, tensor: torch.Tensor, path: str) -> dict:
        kind = watched.plain_class(tensor)
        if kind not in (torch.Tensor, torch.nn.Parameter) or tensor.is_sparse \
                or tensor.is_quantized or tensor.device.type != "cpu":
            raise _refused(path, tensor, "only dense tensors on the CPU can be written")
        name = self._names.get(id(tensor))
        if name is None:
            name = self._names[id(tensor)] = f"tensor.{len(self.tensors)}"
            self.tensors[name] = tensor
            self._kept.append(tensor)
        out = {"tensor": name, "requires_grad": tensor.requires_grad,
               "parameter": isinstance(tensor, torch.nn.Parameter)}
        if tensor.__dict__:
            out["attributes"] = self._pairs(tensor.__dict__.items(), path)
        return out

    def _reference(self, value, path: str) -> str:
        module, name = value.__module__, value.__qualname__
        if isinstance(value, types.BuiltinFunctionType) and name not in vars(
                sys.modules.get(module or "", sys)):
            module = next((m for m in _TORCH_FUNCTIONS if m in sys.modules
                           and vars(sys.modules[m]).get(value.__name__) is value), module)
            name = value.__name__
        if module is None or _found(module, name) is not value:
            raise _refused(path, value, f"{module}.{name} does not lead to it")
        return f"{module}:{name}"


class Decoder:
    """Makes objects of what :class:`Encoder` wrote.

    Args:
        tensors: the data of tensors, by name. A tensor of one name is one object in all documents.

    Raises:
        poptorch.Error: A class is not imported, or may not come from a file.
    """

    def __init__(self, tensors: dict[str, torch.Tensor]):
        self._data = tensors
        self._made: dict[str, torch.Tensor] = {}

    def document(self, value):
        """The object that one JSON value describes."""
        self._shared: list = []
        return self._value(value)

    def _value(self, value):
        if not isinstance(value, (dict, list)):
            return value
        kind = next((key for key in value if key in _READERS), None)
        if kind is None:
            raise ValueError(f"an entry of kind {next(iter(value), '')!r}")
        return _READERS[kind](self, value)

    def _items(self, values: list) -> list:
        return [self._value(item) for item in values]

    def _pairs(self, pairs: list):
        return [(self._value(key), self._value(item)) for key, item in pairs]

    def _container(self, made, add, parts):
        """Numbers a container before its parts, which may refer to it."""
        self._shared.append(made)
        add(made, parts)
        return made

    def _object(self, value):
        number = len(self._shared)
        self._shared.append(None)
        args = self._items(value["args"])
        if "make" in value:
            made = _MAKERS[value["make"]](*args)
        else:
            cls = _class(value["object"])
            made = cls.__new__(cls, *args)
        self._shared[number] = made
        if "state" in value:
            _set_state(made, self._value(value["state"]))
        if "parametrized" in value:
            _parametrize(made, value["parametrized"])
        for item in self._items(value.get("items", [])):
            made.append(item)
        for key, item in self._pairs(value.get("pairs", [])):
            made[key] = item
        return made

    def _ref(self, value):
        found = self._shared[value["ref"]]
        if found is None:
            raise ValueError("an object that is part of what it is made of")
        return found

    def _tensor(self, value):
        name = value["tensor"]
        if name not in self._made:
            tensor = self._data[name]
            if value["parameter"]:
                tensor = torch.nn.Parameter(tensor, requires_grad=False)
            self._made[name] = tensor.requires_grad_(value["requires_grad"])
            for key, item in self._pairs(value.get("attributes", [])):
                tensor.__dict__[key] = item
        return self._made[name]

    def _enum(self, value):
        cls = _class(value["enum"])
        if not isinstance(cls, enum.EnumMeta):
            raise ValueError(f"{value['enum']} is no enumeration")
        return cls.__members__[value["name"]]

    def _torch(self, value):
        found = vars(torch)[value["torch"]]
        if not isinstance(found, _TORCH):
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
    "slice": lambda self, v: slice(*self._items(v["slice"])),
    "float": lambda self, v: float(v["float"]),
    "bytes": lambda self, v: base64.b64decode(v["bytes"]),
    "class": lambda self, v: _class(v["class"]),
    "function": lambda self, v: _function(v["function"]),
    "torch": Decoder._torch,
    "enum": Decoder._enum,
    "tensor": Decoder._tensor,
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


def _parametrize(made: torch.nn.Module, names: list[str]) -> None:
    """Does what register_parametrization does to the class of a module that has all else."""
    if not isinstance(made, torch.nn.Module):
        raise ValueError(f"a {type(made).__name__} with computed parameters")
    parametrize._inject_new_class(made)
    for name in names:
        parametrize._inject_property(made, name)


def _found(module: str, name: str):
    """What stands under that name in an imported module; None if nothing does.

    Only tables are read: a module's ``__getattr__`` may import.
    """
    found = sys.modules.get(module)
    for part in name.split("."):
        found = None if found is None else vars(found).get(part)
        if not isinstance(found, (type, *_FUNCTIONS)):
            return None
    return found


def _imported(reference: str):
    module, _, name = reference.partition(":")
    found = _found(module, name)
    if found is None:
        raise Error(f"[load] the file needs {module}.{name}, which this program has not imported. "
                    f"Files import nothing themselves: import {module} before loading.")
    return found


def _class(reference: str) -> type:
    cls, module = _imported(reference), reference.partition(":")[0]
    top = module.partition(".")[0]
    allowed = isinstance(cls, type)
    if top in sys.stdlib_module_names:
        allowed = allowed and _DATA.get(cls) == reference
    elif top == "torch":
        allowed = allowed and (module.startswith(("torch.nn.", "torch.optim."))
                               or cls in (torch.Size, torch.Tensor))
    if not allowed:
        raise _forbidden(reference)
    return cls


def _function(reference: str):
    function, module = _imported(reference), reference.partition(":")[0]
    top = module.partition(".")[0]
    allowed = isinstance(function, _FUNCTIONS) and top not in sys.stdlib_module_names
    if not allowed or (top == "torch" and module not in _TORCH_FUNCTIONS):
        raise _forbidden(reference)
    return function


def _forbidden(reference: str) -> Error:
    return Error(f"[load] the file names {reference.replace(':', '.')}, which is not a class for "
                 f"data or models. Do not use this file: poptorch does not write such names.")


def _refused(path: str, value, why: str) -> Error:
    return Error(f"[save] {path} is {value!r:.80} of {type(value).__name__}, which cannot be put "
                 f"into a file: {why}. Move classes and functions to the top level of a module and "
                 f"leave out what is not data, or pass export_model=False.")
