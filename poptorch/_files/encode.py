"""Python objects as JSON: what a file holds instead of a pickle.

A pickle is a program: reading it runs what it says. This form is data. It names classes and
functions, which are looked up among those that the reading program has imported already; an object
is made by its class's ``__new__`` and given its attributes, and nothing else is called.
docs/internals/file_format.md has a table of the forms.
"""

import base64
import collections
import copyreg
import enum
import functools
import math
import operator
import sys
import types

import numpy
import torch
from torch.nn.utils import parametrize

from poptorch._annotations import block_class
from poptorch._base import module_subclass
from poptorch._base.layout import copied_strides, memory_of, overlap
from poptorch._files import names
from poptorch._optimizer.rows import has_own_step
from poptorch._own_step.base import attributes_of
from poptorch._weights.watched import plain_class
from poptorch.errors import Error

_PLAIN = (type(None), bool, int, str)


class Encoder:
    """Turns objects into JSON values; see :class:`poptorch._files.decode.Decoder` for the way back.

    ``named`` are tensors that have names already; ``tensors`` has the others that were met, by the
    names given to them.
    """

    def __init__(self, named: dict[str, torch.Tensor] | None = None):
        self.tensors: dict[str, torch.Tensor] = {}
        self._names = {id(tensor): name for name, tensor in (named or {}).items()}
        self._kept = [named]
        self._begun: set[str] = set()  # names of tensors whose attributes are being written
        # The tensors that were met, by identity, and by memory with what an error calls them.
        self._in_memory: dict[int | None, list[tuple[str, torch.Tensor]]] = {}

    def document(self, value, what: str):
        """One JSON value, with numbers of its own; ``what`` is its name in messages.

        An Error unless all parts are data, modules, tensors, classes and top-level functions.
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
            return {"enum": self._reference(kind, path), "names": _member_names(value, path)}
        if kind is torch.Tensor and value.is_meta and not value.requires_grad:
            dtype = str(value.dtype).removeprefix("torch.")
            return {"meta": list(value.shape), "torch": dtype}
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, type):
            return {"class": self._reference(value, path)}
        if isinstance(value, names.FUNCTIONS):
            return {"function": self._reference(value, path)}
        if isinstance(value, names.VALUES):
            return {"torch": str(value).removeprefix("torch.")}
        if kind is tuple:
            return {"tuple": self._items(value, path)}
        if kind is frozenset:
            return {"frozenset": self._items(sorted(value, key=repr), path)}
        if kind is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        if value is Ellipsis:
            return {"ellipsis": True}
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
        if type(value) is numpy.ndarray or isinstance(value, numpy.generic):
            return self._array(value, path)
        return self._object(value, path)

    def _array(self, value, path: str):
        is_scalar = isinstance(value, numpy.generic)
        if value.dtype.kind not in "biuf":
            raise _refused(path, value, f"its dtype is {value.dtype}")
        # A copy where torch takes no array: it is read only, or has a negative stride.
        copied = is_scalar or not value.flags.writeable or min(value.strides, default=0) < 0
        try:
            tensor = torch.from_numpy(numpy.array(value) if copied else value)
        except (TypeError, ValueError) as error:
            raise _refused(path, value, str(error)) from error
        return {"array": self._tensor(tensor, path), "scalar": is_scalar}

    def _object(self, value, path: str):
        if isinstance(value, torch.nn.Module) and parametrize.is_parametrized(value):
            return self._parametrized(value, path)
        try:
            reduced = value.__reduce_ex__(4)
        except (TypeError, AttributeError, RuntimeError, ValueError) as error:
            raise _refused(path, value, str(error)) from error
        if isinstance(reduced, str):
            raise _refused(path, value, f"it stands for what a module has under the name {reduced}")
        function, args, *rest = reduced
        state, items, pairs = (*rest, None, None, None)[:3]
        block = ()
        if function is block_class.rebuilt:
            function, args, *block = args
        if function in (copyreg.__newobj__, module_subclass.new):
            out, args = {"object": self._reference(args[0], path)}, args[1:]
        else:
            name = f"{function.__module__}:{function.__qualname__}"
            if name not in names.MAKERS:
                raise _refused(path, value, f"it is made by {name}")
            out = {"make": name}
        if args:
            out["args"] = self._items(args, path)
        if has_own_step(value) and type(value).__getstate__ is torch.optim.Optimizer.__getstate__:
            state = attributes_of(value)
        if block:
            out["block"] = self._items(block, path)
        if state is not None:
            out["state"] = self._value(state, path)
        # Most objects are tables of a layer's hooks, and empty.
        if items := self._items(items or (), path):
            out["items"] = items
        if pairs := self._pairs(pairs or (), path):
            out["pairs"] = pairs
        return out

    def _parametrized(self, value: torch.nn.Module, path: str) -> dict:
        """A module with computed parameters (a weight norm, say).

        Torch gave it a class of its own, which a pickle refuses and which the reader makes again.
        Its hook for state dictionaries older than that class stays behind: a function inside of
        torch's weight_norm.
        """
        kind = module_subclass.plain_class(type(value))
        state = {**vars(value)}
        state["_load_state_dict_pre_hooks"] = collections.OrderedDict(
            (number, hook) for number, hook in state["_load_state_dict_pre_hooks"].items()
            if getattr(hook.hook, "__module__", "") != "torch.nn.utils.parametrizations")
        self._kept.append(state)
        out = {"object": self._reference(module_subclass.plain_class(kind.__bases__[0]), path),
               "state": self._value(state, path),
               "parametrized": list(value.parametrizations)}
        if block_class.begins_block(value):
            out["block"] = self._items((value._user_id, value._ipu_id), path)
        return out

    def _tensor(self, tensor: torch.Tensor, path: str) -> dict:
        kind = plain_class(tensor)
        if kind not in (torch.Tensor, torch.nn.Parameter) or tensor.is_sparse \
                or tensor.is_quantized or tensor.device.type != "cpu":
            raise _refused(path, tensor, "only dense tensors on the CPU can be written")
        name = self._names.get(id(tensor))
        self._check_memory(tensor, name or path)
        if name is None:
            # No path of a module begins with a dot.
            name = self._names[id(tensor)] = f".tensor.{len(self.tensors)}"
            self.tensors[name] = tensor
            self._kept.append(tensor)
        out = {"tensor": name, "requires_grad": tensor.requires_grad,
               "parameter": isinstance(tensor, torch.nn.Parameter)}
        if not tensor.is_contiguous() and (order := _order(tensor)) != list(range(tensor.dim())):
            out["order"] = order
        if tensor.__dict__ and name not in self._begun:  # its attributes may lead to it
            self._begun.add(name)
            out["attributes"] = self._pairs(tensor.__dict__.items(), path)
            self._begun.remove(name)
        return out

    def _check_memory(self, tensor: torch.Tensor, path: str) -> None:
        """Checks that no two tensors share memory."""
        others = self._in_memory.setdefault(memory_of(tensor), [])
        if any(other is tensor for _, other in others):
            return
        for other_path, other in others:
            if overlap(other, tensor):
                raise Error(f"[save] {path} shares memory with {other_path}, and a file has a "
                            f"copy of each. Make them one tensor of the module, give {path} a "
                            f"clone(), or pass export_model=False.")
        others.append((path, tensor))

    def _reference(self, value, path: str) -> str:
        module, name = value.__module__, value.__qualname__
        if isinstance(value, types.BuiltinFunctionType) and name not in vars(
                sys.modules.get(module or "", sys)):
            module = next((m for m in names.TORCH_FUNCTIONS if m in sys.modules
                           and vars(sys.modules[m]).get(value.__name__) is value), module)
            name = value.__name__
        if module is None or names.found(module, name) is not value:
            raise _refused(path, value, f"it is not what {module}.{name} gives when a file is "
                           f"loaded")
        return f"{module}:{name}"


def _member_names(value: enum.Enum, path: str) -> list[str]:
    """The name of a member, or those of the flags that it combines."""
    kind = type(value)
    if value.name in kind.__members__:
        return [value.name]
    found = list(value) if isinstance(value, enum.Flag) else []
    if not isinstance(value, enum.Flag) or functools.reduce(operator.or_, found, kind(0)) != value:
        raise _refused(path, value, "it is no member of its class")
    return [member.name for member in found]


def _order(tensor: torch.Tensor) -> list[int]:
    """The dimensions of a tensor in the order in which a copy stores them."""
    strides = copied_strides(tensor)
    return sorted(range(tensor.dim()), key=lambda dim: -strides[dim])


def _refused(path: str, value, why: str) -> Error:
    return Error(f"[save] {path} is {value!r:.80} of {type(value).__name__}, which cannot be put "
                 f"into a file: {why}. Move classes and functions to the top level of a module and "
                 f"leave out what is not data, or pass export_model=False.")
