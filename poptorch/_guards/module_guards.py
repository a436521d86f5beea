"""The guards of a module: its layers, tensors, hooks and classes."""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import torch
from torch.nn.modules import module as torch_module

from poptorch._base.module_subclass import plain_class
from poptorch._base.torch_private.basic import plain_access
from poptorch._capture.graph.module_clones import HOOKS
from poptorch._capture.graph.module_paths import ModulePaths
from poptorch._guards.guard import Guard, Kind

_TABLES = ("_modules", "_parameters", "_buffers")


def parts_of(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """The layers of a module with their paths as messages name them. Not those of TorchScript: they
    have tables of C++, to which nothing is added."""
    return [(f"self.{path}".rstrip("."), part) for path, part in module.named_modules()
            if not isinstance(part, torch.jit.ScriptModule)]


def guards_of(module: torch.nn.Module, states: Mapping[str, torch.Tensor], training: bool,
              grouped) -> Iterator[Guard]:
    """The guards of a module.

    Args:
        module: the module.
        states: the parameters and buffers that the program has, by path.
        training: whether what belongs to the backward pass matters.
        grouped: paths of parameters that the host has a value of for each group of replicas.
    """
    kept = {id(tensor) for tensor in states.values()}
    parts = parts_of(module)
    # First: what reads or writes states of another type must not be asked for anything else.
    for path, tensor in states.items():
        yield Guard(f"self.{path}", lambda tensor=tensor, is_grouped=path in grouped:
                    _type_of(tensor, is_grouped), containers=list, kind=Kind.TENSOR)
        if training:
            yield Guard(f"self.{path}.requires_grad", lambda tensor=tensor: tensor.requires_grad)
    for path, part in parts:
        for name in _TABLES:
            yield _guard_of_table(path, getattr(part, name), kept)
        yield Guard(f"{path}.forward", lambda own=vars(part): own.get("forward"),
                    [(vars(part), "forward")])
        yield Guard(f"the class of {path}", lambda part=part: plain_class(type(part)))
    kinds = HOOKS if training else HOOKS[:2]
    for path, part in parts:
        for kind in kinds:
            yield _guard_of_hooks(f"{path}.{kind}", getattr(part, kind))
    for kind in kinds:
        yield _guard_of_hooks(f"the hooks of all modules ({kind.strip('_')})",
                              getattr(torch_module, f"_global{kind}"))
    for path, tensor in states.items() if training else ():
        yield _guard_of_hooks(f"the hooks of self.{path}", tensor)


def _guard_of_table(path: str, table: dict, kept: set[int]) -> Guard:
    unused = {key for key, value in table.items()
              if isinstance(value, torch.Tensor) and id(value) not in kept}

    def read():
        return SimpleNamespace(**{
            key: "unused" if key in unused and isinstance(value, torch.Tensor) else value
            for key, value in table.items()})

    return Guard(path, read, containers=lambda: [table])


def _guard_of_hooks(source: str, owner) -> Guard:
    """That of a table of hooks, or of the hooks of a tensor."""
    def table() -> dict:
        # Of a tensor: a TensorWatch sees that it got another table.
        return (owner._backward_hooks or {}) if isinstance(owner, torch.Tensor) else owner

    return Guard(source, lambda: {key: table()[key] for key in hook_keys(table())},
                 containers=lambda: [table()])


def hook_keys(hooks: dict) -> tuple:
    """The keys of hooks, without those that a capture in another thread has added."""
    return tuple(key for key, hook in list(hooks.items())
                 if not isinstance(getattr(hook, "__self__", None), ModulePaths))


def _type_of(tensor: torch.Tensor, is_grouped: bool) -> SimpleNamespace:
    with plain_access():
        shape = {} if is_grouped else {"shape": tuple(tensor.shape)}
        return SimpleNamespace(dtype=tensor.dtype, **shape)
