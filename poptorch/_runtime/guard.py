"""Notices that a module no longer is the one that was compiled."""

from operator import is_

import torch
from torch.nn.modules import module as torch_module

from poptorch import _C
from poptorch._base.hidden_subclass import plain_access
from poptorch._base.module_subclass import plain_class
from poptorch._base.value_snapshot import Snapshot, attribute_of, is_compared
from poptorch._capture.graph.module_clones import HOOKS
from poptorch._capture.graph.module_paths import ModulePaths
from poptorch._guards.attribute_reads import table_of
from poptorch._runtime.arguments import other_value
from poptorch._runtime.modes import CompiledModes
from poptorch._translate import Program
from poptorch._weights import instrument
from poptorch.errors import Error

_WRITTEN, _CONVERTED = _C.TensorWatch.WRITTEN, _C.TensorWatch.CONVERTED


class ModuleGuard:
    """A module as it was when it was compiled, as far as its program depends on that.

    Each call checks it: two looks in C++ show whether anything at all is another. What it is,
    and whether the program depends on it, is found out only then.

    Args:
        module: the module.
        program: what translate made, with the tensors that it reads or writes.
        training: whether what belongs to the backward pass matters.
        attributes: what ``forward`` read of the module and of objects that it holds: the one that
            has the attribute, or has it not, its name, and its path.
        argument_attributes: the same of objects in arguments.
        modes: of the layers, which the program was made with.

    Attributes:
        modes: as given.
    """

    def __init__(self, module: torch.nn.Module, program: Program, training: bool, attributes,
                 argument_attributes, modes: CompiledModes):
        states = program.states
        kept = {id(tensor) for tensor in states.values()}
        self.modes = modes
        self._training = training
        # The host has a value of these for each group or each replica, as copies were made.
        self._grouped = program.weight_groups
        # Those of TorchScript have tables of C++, to which nothing is added.
        self._parts = [(path, part) for path, part in module.named_modules()
                       if not isinstance(part, torch.jit.ScriptModule)]
        self._tables, places = [], []
        for path, part in self._parts:
            tables = (part._modules, part._parameters, part._buffers)
            self._tables += tables
            places += [(table, key, held, f"{path}.{key}".lstrip("."))
                       for table in tables for key, held in table.items()
                       if held is None or isinstance(held, torch.nn.Module) or id(held) in kept]
        # Tables of modules, the keys in them, and what was there; and its path.
        tables, keys, self._held, self._paths = zip(*places) if places else ((), (), (), ())
        self._places = tables, keys
        self._keys = [list(table) for table in self._tables]
        self._states = [(path, tensor, _type_of(tensor)) for path, tensor in states.items()]
        self._tensors = _C.TensorWatch([tensor for _, tensor, _ in self._states], training)
        self._hooks = [(path, kind, {key: table[key] for key in hook_keys(table)})
                       for path, kind, table in self._hook_tables()]
        found = [(table_of(holder, name), name, path, is_of_argument)
                 for is_of_argument, places in enumerate((attributes, argument_attributes))
                 for holder, name, path in places]
        self._attributes = [one for one in found if one[1] in one[0]]
        # What forward asked for, and found in the class or nowhere.
        self._missed = [one for one in found if one[1] not in one[0]]
        # Of these, what the class has, with the classes.
        self._of_classes = [(type(holder), name, path, Snapshot(value))
                            for holder, name, path in (*attributes, *argument_attributes)
                            if name not in table_of(holder, name)
                            and is_compared(value := attribute_of(type(holder), name))]
        self._classes = [plain_class(type(part)) for _, part in self._parts]
        self._forwards = [(path, vars(part), vars(part).get("forward"))
                          for path, part in self._parts]
        self._watch()

    def _hook_tables(self) -> list[tuple]:
        """Path, kind and table of all hooks that there may be."""
        kinds = HOOKS if self._training else HOOKS[:2]
        found = [(path or "the module", kind, getattr(part, kind))
                 for path, part in self._parts for kind in kinds]
        found += [("all modules", f"global{kind}", getattr(torch_module, f"_global{kind}"))
                  for kind in kinds]
        if self._training:
            found += [(path, "register_hook", tensor._backward_hooks or {})
                      for path, tensor, _ in self._states]
        return found

    def _watch(self) -> None:
        """Takes note of the objects that everything but tensors consists of."""
        self._snapshots = [Snapshot(held[name]) for held, name, *_ in self._attributes]
        # Those with containers that are not looked into in C++.
        self._slow = [number for number, one in enumerate(self._snapshots) if not one.is_quick]
        containers = [*self._tables, *(table for _, _, table in self._hook_tables()),
                      *(one for snapshot in self._snapshots for one in snapshot.containers)]
        places = [(held, name) for held, name, *_ in self._attributes]
        places += [(held, name) for held, name, *_ in self._missed]
        places += [(held, "forward") for _, held, _ in self._forwards]
        places += self.modes.places()
        self._items = _C.ItemWatch(list({id(one): one for one in containers}.values()), places,
                                   [part for _, part in self._parts])

    def check(self) -> bool:
        """Checks that the module still is as it was compiled.

        Returns:
            Whether a tensor was written on the host, or lies elsewhere, since :meth:`note_written`.

        Raises:
            poptorch.Error: A layer, a tensor, a hook or an attribute that ``forward`` depends on
                came, went or was replaced or changed, or a tensor's dtype, shape or (in training)
                ``requires_grad`` is another; or an object in an argument changed.
        """
        changes = self._tensors.look()
        if changes & _CONVERTED:
            self._check_converted()
        if not self._items.is_same():
            self._check_items()
        for number in self._slow:
            self._check_attribute(number)
        for cls, name, path, snapshot in self._of_classes:
            found = snapshot.difference(attribute_of(cls, name), path)
            if found is not None:
                path, was, now = found
                raise _error(f"{path}: it was {was} in the class {cls.__qualname__} when the "
                             f"module was compiled, it is {now}. Set it back")
        return bool(changes & _WRITTEN)

    def note_written(self) -> None:
        """Takes note that the program has all writes to its tensors."""
        self._tensors.note(_WRITTEN)

    def _check_converted(self) -> None:
        for path, tensor, known in self._states:
            with plain_access():
                now = _type_of(tensor)
            for what, was, found in zip(_CONVERSIONS, known, now):
                if was != found and self._matters(what, path):
                    raise _error(f"{path}: {_CONVERSIONS[what].format(was, found)}")
        self._check_hooks()
        self._tensors.note(_CONVERTED)
        self._watch()

    def _matters(self, what: str, path: str) -> bool:
        return self._training if what == "requires_grad" \
            else what != "shape" or path not in self._grouped

    def _check_items(self) -> None:
        if not all(map(is_, map(dict.get, *self._places), self._held)):
            raise self._replaced()
        if list(map(list, self._tables)) != self._keys:
            self._check_keys()
        self._check_hooks()
        for number in range(len(self._attributes)):
            self._check_attribute(number)
        for held, name, path, _ in self._missed:
            if name in held:
                raise _error(f"{path}: there was no such attribute of the object itself when the "
                             f"module was compiled. Remove it")
        for path, held, forward in self._forwards:
            if held.get("forward") is not forward:
                raise _error(f"{path or 'the module'}: forward was replaced after the module was "
                             f"compiled. Put it back")
        self.modes.warn()
        for (path, part), known in zip(self._parts, self._classes):
            now = plain_class(type(part))
            if now is not known:
                raise _error(f"{path or 'the module'}: its class was {known.__qualname__} when the "
                             f"module was compiled, it is {now.__qualname__}. Set __class__ back")
        self._watch()

    def _check_keys(self) -> None:
        for (path, part), *known in zip(self._parts, *[iter(self._keys)] * 3):
            tables = (part._modules, part._parameters, part._buffers)
            for what, table, keys in zip(("layer", "parameter", "buffer"), tables, known):
                added = [key for key in table if key not in keys]
                gone = [key for key in keys if key not in table]
                for did, undo, names in (("added", "Remove it", added),
                                         ("removed", "Put it back", gone)):
                    if names:
                        name = f"{path}.{names[-1]}".lstrip(".")
                        raise _error(f"{name}: the {what} was {did} after the module was "
                                     f"compiled. {undo}")
                if what == "layer" and list(table) != keys:
                    raise _error(f"{path or 'the module'}: its layers were {', '.join(keys)} when "
                                 f"the module was compiled, they are {', '.join(table)}. Put them "
                                 f"in that order again")

    def _check_hooks(self) -> None:
        for (path, kind, hooks), (_, _, table) in zip(self._hooks, self._hook_tables()):
            keys = tuple(hooks)
            if hook_keys(table) != keys:
                did = "removed" if any(key not in table for key in keys) else "added"
                undo = "Remove it" if did == "added" else "Put it back"
                raise _error(f"{path}: a hook ({kind.strip('_')}) was {did} after the module was "
                             f"compiled. {undo}")
            if any(table[key] is not hook for key, hook in hooks.items()):
                raise _error(f"{path}: a hook ({kind.strip('_')}) was replaced after the module "
                             f"was compiled. Put it back")

    def _check_attribute(self, number: int) -> None:
        held, name, path, is_of_argument = self._attributes[number]
        snapshot = self._snapshots[number]
        if name not in held and is_of_argument:
            raise other_value(path, snapshot.text(), "nothing")
        if name not in held:
            raise _error(f"{path}: the attribute that was compiled in no longer exists. Set it to "
                         f"{snapshot.text()}")
        now = held[name]
        found = snapshot.difference(now, path)
        if found is None:
            return
        path, was, now = found
        if is_of_argument:
            raise other_value(path, was, now)
        if isinstance(snapshot.value, torch.Tensor):
            raise _error(f"{path}: the tensor that was compiled in was replaced. Put it back; "
                         f"for a value that changes use register_buffer and copy_()")
        raise _error(f"{path}: it was {was} when the module was compiled, it is {now}. Set it back")

    def _replaced(self) -> Error:
        for table, key, held, path in zip(*self._places, self._held, self._paths):
            now = table.get(key)
            if now is not held:
                return _of_another(path, held, now)
        raise AssertionError("[weights] a part of the module was replaced and put back during a "
                             "call. Call the model again.")


# What of a tensor is compiled in, and what is said if it is another.
_CONVERSIONS = {
    "dtype": "it was compiled as {}, it is {}. Convert it back",
    "shape": "it was compiled with the shape {}, it has the shape {}. Give it its shape back",
    "requires_grad": "it was compiled with requires_grad={}, it has requires_grad={}. Set it back",
}


def hook_keys(hooks: dict) -> tuple:
    """The keys of hooks, without those that a capture in another thread has added."""
    return tuple(key for key, hook in list(hooks.items())
                 if not isinstance(getattr(hook, "__self__", None), ModulePaths))


def _type_of(tensor: torch.Tensor) -> tuple:
    return tensor.dtype, tuple(tensor.shape), tensor.requires_grad


def _of_another(path: str, held, now) -> Error:
    if held is None:
        return _error(f"{path}: there was none when the module was compiled, there is one of shape "
                      f"{tuple(now.shape)}. Remove it")
    if isinstance(held, torch.nn.Module):
        return _error(f"{type(held).__name__} {path}: the layer that was compiled was replaced, "
                      f"there is {now}. Put it back")
    found = "nothing" if now is None else f"another tensor of shape {tuple(now.shape)}"
    return _error(f"{path}: the tensor of shape {tuple(held.shape)} that was compiled was "
                  f"replaced, there is {found}. To change values use copy_() and "
                  f"copyWeightsToDevice()")


def _error(what: str) -> Error:
    return Error(f"[weights] {what}; or call destroy(), and the next call compiles the module as "
                 f"it is.")
