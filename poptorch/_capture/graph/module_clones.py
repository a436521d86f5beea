"""A module tree made again around the same attributes, for ``forward`` to run on.

Other threads may use the user's modules meanwhile. The clones are of the same classes, with tables
of parameters, buffers and children of their own; attributes that lead to a module of the tree (also
by a bound method or in a container) lead to its clone.

Closures, hooks and other objects still lead to the user's modules, whose attributes are those of
the clones while ``forward`` runs, see :class:`attributes.Attributes`. What compares the two by
identity finds them different.
"""

import copy
import copyreg
import functools
import types

import torch

from poptorch._base.torch_private import fake_tensors
from poptorch.errors import Error

# Tables of hooks that are part of forward, then those of the backward pass.
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
# What each module has: tables of tensors, modules and hooks.
OF_EACH_MODULE = frozenset(vars(torch.nn.Module()))
# Recurrent modules keep their weights a second time, and notice that they were exchanged.
RECURRENT_CACHES = ("_flat_weights", "_flat_weight_refs")


class Clones:
    """The clones of all modules of a tree, each once."""

    def __init__(self, modules: list[torch.nn.Module]):
        self._pairs = [(module, _new(module)) for module in modules]
        to_clone = {id(module): clone for module, clone in self._pairs}
        self._to_user = {id(clone): module for module, clone in self._pairs}
        # What the attributes of each clone were at first.
        self._before: list[dict] = []
        for module, clone in self._pairs:
            for name, value in vars(module).items() if clone is not module else ():
                clone.__dict__[name] = _own_table(name, value, to_clone)
            self._before.append(dict(vars(clone)))
        self._to_clone = to_clone

    def of(self, module: torch.nn.Module) -> torch.nn.Module:
        """The clone of a module of the tree."""
        return self._to_clone[id(module)]

    def by_user(self) -> dict[int, torch.nn.Module]:
        """The clones by the identity of the user's modules; those without one as they are."""
        return dict(self._to_clone)

    def user_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """The user's module of a clone; of another module that one itself."""
        return self._to_user.get(id(module), module)

    def users(self, value):
        """A method, module or partial function, with the user's modules in place of clones."""
        return _led(value, self._to_user)

    def check_hooks(self, names: dict[int, str]) -> None:
        """Raises an Error if ``forward`` added a hook that stays or removed one: the next call
        would compute something else. ``names`` has the path of each module by its identity."""
        for module, clone in self._pairs:
            for kind in HOOKS if clone is not module else ():
                if list(own_attributes(module)[kind]) != list(own_attributes(clone)[kind]):
                    raise Error(f"[capture] forward adds or removes a hook ({kind.strip('_')}) of "
                                f"{names[id(module)] or 'the module'}, which decides what the next "
                                f"call computes. Do it before the model is compiled: if only the "
                                f"first call does so, call the module once before it is wrapped.")

    def publish(self) -> None:
        """Gives the user's modules the attributes that were set on the clones, or deleted."""
        for (module, clone), before in zip(self._pairs, self._before):
            if clone is module:
                continue
            after = vars(clone)
            self._publish_children(module, clone)
            for name in [*before, *(name for name in after if name not in before)]:
                if name in OF_EACH_MODULE or name in RECURRENT_CACHES \
                        or after.get(name, self) is before.get(name, self):
                    continue
                if name in after:
                    module.__dict__[name] = _led(after[name], self._to_user)
                else:
                    module.__dict__.pop(name, None)

    def _users_within(self, part):
        """The user's module of a clone; a module made in forward, with those in it."""
        if id(part) in self._to_user or part is None:
            return self._to_user.get(id(part), part)
        for inner in list(part.modules()):
            if id(inner) not in self._to_user:
                for name, child in inner._modules.items():
                    inner._modules[name] = self._to_user.get(id(child), child)
        return part

    def _publish_children(self, module, clone) -> None:
        for name, part in clone._modules.items():
            part = self._users_within(part)
            if module._modules.get(name) is not part and not _holds_fake(part):
                module._modules[name] = part
        for name in [name for name in module._modules if name not in clone._modules]:
            del module._modules[name]


def own_attributes(module: torch.nn.Module) -> dict:
    """The attributes of a module itself, also where reading one gives the clone's."""
    return object.__getattribute__(module, "__dict__")


def _holds_fake(module: torch.nn.Module) -> bool:
    """Whether a module was made in forward, with tensors that have no data."""
    return any(fake_tensors.is_fake(tensor) for part in module.modules()
               for table in (part._parameters, part._buffers) for tensor in table.values())


def _new(module: torch.nn.Module) -> torch.nn.Module:
    if isinstance(module, torch.jit.ScriptModule):
        return module
    kind = type(module)
    slots = [name for name in copyreg._slotnames(kind) if hasattr(module, name)]
    if slots:
        raise Error(f"[capture] {kind.__qualname__} keeps {', '.join(slots)} in slots (__slots__), "
                    f"where a change of an attribute is not noticed. Leave __slots__ out of the "
                    f"class.")
    return object.__new__(kind)


def _own_table(name: str, value, to_clone: dict):
    """The clone's attribute for that of the user's module."""
    if name == "_modules":
        return type(value)((key, to_clone.get(id(part), part)) for key, part in value.items())
    if name in RECURRENT_CACHES or name in OF_EACH_MODULE:
        return copy.copy(value)
    return _led(value, to_clone)


def _led(value, to: dict, outer: tuple = ()):
    """``value`` with what ``to`` has by identity in place of modules; itself, if it has none."""
    if isinstance(value, torch.nn.Module):
        return to.get(id(value), value)
    if any(value is one for one in outer):
        return value
    kind, outer = type(value), (*outer, value)
    if kind is types.MethodType:
        owner = to.get(id(value.__self__))
        return value if owner is None else types.MethodType(value.__func__, owner)
    if kind is functools.partial:
        parts = value.func, value.args, value.keywords
        led = [_led(part, to, outer) for part in parts]
        return value if _are(led, parts) else functools.partial(led[0], *led[1], **led[2])
    if kind in (list, tuple):
        led = [_led(part, to, outer) for part in value]
        return value if _are(led, value) else kind(led)
    if kind is dict:
        keys = [_led(key, to, outer) for key in value]
        led = [_led(part, to, outer) for part in value.values()]
        return value if _are(keys, value) and _are(led, value.values()) else dict(zip(keys, led))
    return value


def _are(values, others) -> bool:
    return all(one is other for one, other in zip(values, others))
