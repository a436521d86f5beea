"""The functional form of operations that change a tensor."""

import functools
import re

import torch

aten = torch.ops.aten

# The operators of other libraries that change tensors, by the operation that stands for one in a
# functional graph: its results are the new values of the arguments that are written to.
ORIGINALS: dict = {}
_foreign = torch.library.Library("poptorch_written", "DEF")

# In-place operations whose functional form has another name.
_RENAMED = {
    aten.normal_.default: aten.normal_functional.default,
    aten._index_put_impl_.default: aten.index_put.default,
    aten.rrelu_with_noise.default: aten.rrelu_with_noise_functional.default,
}


@functools.cache
def mutated_arguments(target) -> tuple:
    """The arguments that an operation changes: ``(position, name)`` each; usually none."""
    schema = getattr(target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return ()
    return tuple((position, argument.name) for position, argument in enumerate(schema.arguments)
                 if argument.alias_info is not None and argument.alias_info.is_write)


@functools.cache
def functional_form(target):
    """The overload that computes what ``target`` writes, or None.

    For ``add_(x, y)`` it is ``add(x, y)``; for ``mm(a, b, out=x)`` it is ``mm(a, b)``.
    """
    if target in _RENAMED:
        return _RENAMED[target]
    if target.namespace not in ("aten", "prims", "poptorch"):
        return _foreign_form(target)
    name, functional = target.overloadpacket.__name__, target.overloadpacket
    if name.endswith("_") and not name.endswith("__"):
        functional = getattr(aten, name[:-1], None)
    elif name.startswith("__i") and name.endswith("__"):
        functional = getattr(aten, f"__{name[3:]}", None)
    if functional is None:
        return None
    wanted = _arguments(target)
    overloads = [getattr(functional, name) for name in functional.overloads()]
    overloads = [f for f in overloads if not f._schema.is_mutable]
    same = [f for f in overloads if _arguments(f) == wanted]
    # Those that make tensors from nothing have options for what `out` says otherwise.
    for wanted in (wanted, _arguments(target, options=False)):
        same = same or [f for f in overloads if _arguments(f, options=False) == wanted]
    return same[0] if same else None


def _foreign_form(target):
    """An operation whose results are what an operator of another library writes; None where the
    operator returns something besides, or writes to a list."""
    schema, written = target._schema, [a for a in target._schema.arguments
                                       if a.alias_info is not None and a.alias_info.is_write]
    if schema.returns or any(str(a.type) != "Tensor" for a in written):
        return None
    name = f"{schema.name.replace('::', '__')}__{schema.overload_name or 'default'}"
    arguments, _, _ = str(schema).partition("(")[2].rpartition(" -> ")
    results = ", ".join("Tensor" for _ in written)
    _foreign.define(f"{name}({re.sub(r'[(]a[0-9]*![)]', '', arguments)} -> ({results})")
    places = mutated_arguments(target)

    def written_of(args, kwargs, made=lambda x: x):
        found = tuple(made(args[position] if position < len(args) else kwargs[name])
                      for position, name in places)
        return found if len(found) > 1 else found[0]

    def like(*args, **kwargs):
        return written_of(args, kwargs, torch.empty_like)

    def computed(*args, **kwargs):  # of values that are known while capturing
        copies, named = list(args), dict(kwargs)
        for position, name in places:
            where, key = (copies, position) if position < len(args) else (named, name)
            where[key] = where[key].clone()
        target(*copies, **named)
        return written_of(copies, named)

    torch.library.register_fake(f"poptorch_written::{name}", like, lib=_foreign)
    _foreign.impl(name, computed, "CPU")
    found = getattr(torch.ops.poptorch_written, name).default
    ORIGINALS[found] = target
    return found


def _arguments(target, options: bool = True) -> list[tuple[str, str]]:
    """Names and types of the arguments, without ``out``; or without keyword-only ones too."""
    return [(a.name, str(a.type)) for a in target._schema.arguments
            if not a.is_out and (options or not a.kwarg_only)]
