"""The guards of a module: its layers, tensors, hooks and classes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace

import torch
from torch.nn.modules import module as torch_module

from poptorch._base.module_subclass import plain_class
from poptorch._base.torch_private.basic import plain_access
from poptorch._capture.graph.module_clones import HOOKS
from poptorch._capture.graph.module_paths import ModulePaths
from poptorch._guards.guard import Guard, Kind

_TABLES = ("_modules", "_parameters", "_buffers")


def layers_of(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """A module and its layers, with their paths. Not those of TorchScript: they have tables of C++,
    to which nothing is added."""
    return [(path, part) for path, part in module.named_modules()
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
    layers = layers_of(module)
    # First: what reads or writes states of another type must not be asked for anything else.
    yield Guard("self", lambda: _types_of(states, grouped), containers=list, kind=Kind.TENSOR)
    if training:
        yield Guard("self", lambda: _by_path(
            (path, SimpleNamespace(requires_grad=tensor.requires_grad))
            for path, tensor in states.items()), containers=list)
    for name in _TABLES:
        yield from _guards_of_table(layers, name, kept)
    yield from _guards_of_layers(
        layers, "self", lambda part: SimpleNamespace(forward=vars(part).get("forward")),
        lambda part: [(vars(part), "forward")])
    yield from _guards_of_layers(layers, "the class of self",
                                 lambda part: plain_class(type(part)))
    kinds = HOOKS if training else HOOKS[:2]
    yield from _guards_of_layers(
        layers, "self", lambda part: _by_path((kind, _hooks_in(getattr(part, kind)))
                                              for kind in kinds),
        containers=lambda part: [getattr(part, kind) for kind in kinds])
    for kind in kinds:
        table = getattr(torch_module, f"_global{kind}")
        yield Guard(f"the hooks of all modules ({kind.strip('_')})",
                    lambda table=table: _hooks_in(table), containers=lambda table=table: [table])
    if training:
        yield _guard_of_tensor_hooks(states)


def _by_path(items: Iterable[tuple[str, object]]) -> SimpleNamespace:
    """Values by the paths of what has them, as messages name these."""
    return SimpleNamespace(**dict(items))


def _guards_of_layers(layers: list[tuple[str, torch.nn.Module]], source: str, read: Callable,
                      places: Callable = lambda part: (),
                      containers: Callable | None = None) -> Iterator[Guard]:
    """The guards of something that each layer has: one of the model itself, and one of all its
    layers, as a model may have thousands.

    ``read``, ``places`` and ``containers`` give of one layer what :class:`Guard` takes.
    """
    for is_model in (True, False):
        chosen = [(path, part) for path, part in layers if is_model is not bool(path)]
        if chosen:
            yield Guard(source, partial(_read_layers, chosen, read),
                        [place for _, part in chosen for place in places(part)],
                        containers and (lambda chosen=chosen: [
                            one for _, part in chosen for one in containers(part)]))


def _read_layers(layers: list[tuple[str, torch.nn.Module]], read: Callable):
    if not layers[0][0]:  # the model itself
        return read(layers[0][1])
    return _by_path((path, read(part)) for path, part in layers)


def _guards_of_table(layers: list[tuple[str, torch.nn.Module]], name: str,
                     kept: set[int]) -> Iterator[Guard]:
    unused = {id(part): {key for key, value in getattr(part, name).items()
                         if isinstance(value, torch.Tensor) and id(value) not in kept}
              for _, part in layers}

    def read(part: torch.nn.Module) -> SimpleNamespace:
        without = unused[id(part)]
        return _by_path(
            (key, "unused" if key in without and isinstance(value, torch.Tensor) else value)
            for key, value in getattr(part, name).items())

    return _guards_of_layers(layers, "self", read, containers=lambda part: [getattr(part, name)])


def _guard_of_tensor_hooks(states: Mapping[str, torch.Tensor]) -> Guard:
    def tables() -> dict[str, dict]:
        # A TensorWatch sees that a tensor got another table.
        return {path: tensor._backward_hooks or {} for path, tensor in states.items()}

    return Guard("the hooks of self", lambda: _by_path(
        (path, _hooks_in(table)) for path, table in tables().items()),
        containers=lambda: list(tables().values()))


def _hooks_in(table: dict) -> dict:
    return {key: table[key] for key in hook_keys(table)}


def hook_keys(hooks: dict) -> tuple:
    """The keys of hooks, without those that a capture in another thread has added."""
    return tuple(key for key, hook in list(hooks.items())
                 if not isinstance(getattr(hook, "__self__", None), ModulePaths))


def _types_of(states: Mapping[str, torch.Tensor], grouped) -> SimpleNamespace:
    with plain_access():
        return _by_path((path, SimpleNamespace(
            dtype=tensor.dtype, **({} if path in grouped else {"shape": tuple(tensor.shape)})))
            for path, tensor in states.items())
