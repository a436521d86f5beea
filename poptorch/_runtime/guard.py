"""Notices that a module no longer is the one that was compiled."""

from itertools import repeat
from operator import is_, itemgetter

import torch
from torch.utils.hooks import RemovableHandle

from poptorch._transparent import plain_access
from poptorch.errors import Error

# Hooks that are part of forward, then those of the backward pass.
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
# Asked of each tensor in each call, in the quickest way.
_dtype = torch.Tensor.dtype.__get__
_requires_grad = torch.Tensor.requires_grad.__get__


class ModuleGuard:
    """A module as it was when it was compiled, as far as its program depends on that.

    Each call asks for it, so what is compared is prepared, and compared by few operations in C.

    Args:
        module: the module.
        states: the tensors that the program reads or writes.
        training: whether what belongs to the backward pass matters.
        attributes: module, name and path of the plain attributes that ``forward`` depends on.
    """

    def __init__(self, module: torch.nn.Module, states, training: bool, attributes=()):
        kept = {id(tensor) for tensor in states}
        self._training = training
        self._parts = list(module.named_modules())
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
        states = [(held, path) for held, path in zip(self._held, self._paths)
                  if isinstance(held, torch.Tensor)]
        self._states = [held for held, _ in states]
        self._state_paths = [path for _, path in states]
        with plain_access():
            self._dtypes = list(map(_dtype, self._states))
            self._requires_grad = list(map(_requires_grad, self._states))
        self._sizes = list(map(len, self._tables))
        self._keep_hooks()
        self._keep_attributes(attributes)

    def _keep_hooks(self) -> None:
        # (path, kind, table of hooks)
        self._hooks = [(path, kind, getattr(part, kind)) for path, part in self._parts
                       for kind in (_HOOKS if self._training else _HOOKS[:2])]
        self._hook_keys = [tuple(table) for _, _, table in self._hooks]
        # Hooks may go from these only; where one came, torch's number of hooks has grown.
        self._used_hooks = [table for _, _, table in self._hooks if table]
        self._used_sizes = list(map(len, self._used_hooks))
        self._hooks_made = RemovableHandle.next_id

    def _keep_attributes(self, attributes) -> None:
        by_module: dict[int, tuple[dict, list]] = {}
        self._tensors = []
        for module, name, path in attributes:
            held = vars(module)
            if isinstance(held.get(name), torch.Tensor):
                self._tensors.append((held, name, held[name], path))
            elif name in held:
                by_module.setdefault(id(module), (held, []))[1].append((name, path))
        self._configured = []
        for held, names in by_module.values():
            keys = [name for name, _ in names]
            get = itemgetter(*keys, keys[0])  # a tuple, also of one
            self._configured.append((held, get, get(held), names))
        self._own = [vars(part) for _, part in self._parts]
        self._forwards = [held.get("forward") for held in self._own]

    def check(self) -> None:
        """Checks that the module still is as it was compiled.

        Raises:
            poptorch.Error: A layer, a tensor, a hook or a plain attribute that ``forward`` depends
                on came, went or was replaced, or a tensor's dtype or (in training)
                ``requires_grad`` is another.
        """
        # Metadata of a tensor that torch_function watches: without the detour through Python.
        with plain_access():
            if list(map(_dtype, self._states)) != self._dtypes or self._training and \
                    list(map(_requires_grad, self._states)) != self._requires_grad:
                raise self._converted()
        if not all(map(is_, map(dict.get, *self._places), self._held)):
            raise self._replaced()
        if list(map(len, self._tables)) != self._sizes:
            raise self._added()
        if RemovableHandle.next_id != self._hooks_made \
                or list(map(len, self._used_hooks)) != self._used_sizes:
            self._check_hooks()
        self._check_attributes()

    def _added(self) -> Error:
        for (path, part), *sizes in zip(self._parts, *[iter(self._sizes)] * 3):
            tables = (part._modules, part._parameters, part._buffers)
            for what, table, size in zip(("layer", "parameter", "buffer"), tables, sizes):
                if len(table) > size:
                    name = f"{path}.{list(table)[-1]}".lstrip(".")
                    return _error(f"{name}: the {what} was added after the module was compiled. "
                                  f"Remove it")
        return _error(f"{type(self._parts[0][1]).__name__}: a layer, parameter or buffer that was "
                      f"compiled was removed. Put it back")

    def _check_hooks(self) -> None:
        for (path, kind, table), keys in zip(self._hooks, self._hook_keys):
            if tuple(table) != keys:
                did = "added" if len(table) > len(keys) else "removed"
                undo = "Remove it" if did == "added" else "Put it back"
                raise _error(f"{path or 'the module'}: a hook ({kind.strip('_')}) was {did} after "
                             f"the module was compiled. {undo}")
        self._hooks_made = RemovableHandle.next_id

    def _check_attributes(self) -> None:
        for held, get, values, names in self._configured:
            try:
                is_same = get(held) == values
            except KeyError:
                is_same = False
            if not is_same:
                raise _changed(held, names, values)
        for held, name, tensor, path in self._tensors:
            if held.get(name) is not tensor:
                raise _error(f"{path}: the tensor that was compiled in was replaced. Put it back; "
                             f"for a value that changes use register_buffer and copy_()")
        if not all(map(is_, map(dict.get, self._own, repeat("forward")), self._forwards)):
            path = next(path for (path, _), held, forward
                        in zip(self._parts, self._own, self._forwards)
                        if held.get("forward") is not forward)
            raise _error(f"{path or 'the module'}: forward was replaced after the module was "
                         f"compiled. Put it back")

    def _replaced(self) -> Error:
        for table, key, held, path in zip(*self._places, self._held, self._paths):
            now = table.get(key)
            if now is not held:
                return _of_another(path, held, now)
        raise AssertionError("nothing was replaced")

    def _converted(self) -> Error:
        for tensor, path, dtype, requires_grad in zip(
                self._states, self._state_paths, self._dtypes, self._requires_grad):
            if tensor.dtype is not dtype:
                return _error(f"{path}: it was compiled as {dtype}, it is {tensor.dtype}. Convert "
                              f"it back")
            if tensor.requires_grad is not requires_grad:
                return _error(f"{path}: it was compiled with requires_grad={requires_grad}, it has "
                              f"requires_grad={tensor.requires_grad}. Set it back")
        raise AssertionError("no tensor was converted")


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


def _changed(held: dict, names: list[tuple[str, str]], values: tuple) -> Error:
    missing = object()
    for (name, path), value in zip(names, values):
        now = held.get(name, missing)
        if now is missing:
            return _error(f"{path}: the attribute that was compiled in is gone. Set it to "
                          f"{value!r}")
        if now != value:
            return _error(f"{path}: it was {value!r} when the module was compiled, it is {now!r}. "
                          f"Set it back")
    raise AssertionError("no attribute differs")


def _error(what: str) -> Error:
    return Error(f"[weights] {what}; or call destroy(), and the next call compiles the module as "
                 f"it is.")
