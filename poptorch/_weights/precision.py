"""Converts the weights of a module to another floating-point type, some layers left out."""

import re
from collections.abc import Iterable, Iterator

import torch

from poptorch._base.checks import check_module
from poptorch._base.torch_private.basic import pytree
from poptorch.errors import Error

_TYPES = (torch.float16, torch.bfloat16, torch.float32)
_TARGET = "_converted_to"  # of a module with a hook: the type of its surroundings


def convert_precision(model: torch.nn.Module, dtype: torch.dtype,
                      exclude: str | Iterable[str] = ()) -> torch.nn.Module:
    """Converts the floating-point parameters and buffers of a module, in place.

    Tensors whose names match ``exclude`` keep their type. A layer of such tensors computes in its
    own type: hooks convert its floating-point arguments, and convert its results to ``dtype``. The
    floating-point arguments of ``model`` are converted to ``dtype``, also those that are targets of
    a loss. Call this before you make an optimizer and wrap the module.

    Args:
        model: the module.
        dtype: ``torch.float16``, ``torch.bfloat16``, or ``torch.float32``.
        exclude: regular expressions, each looked for anywhere in the names of the parameters and
            buffers: ``"norm"`` excludes ``layers.0.norm1.weight``. Default: none.

    Returns:
        ``model``.

    Raises:
        TypeError: ``model`` is not a module.
        ValueError: ``dtype`` is another type.
        poptorch.Error: A regular expression is wrong or matches no name, or ``exclude`` matches
            some tensors of a layer and not others.

    Example:
        >>> import poptorch, torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8),
        ...                           torch.nn.Linear(8, 2))
        >>> _ = poptorch.convert_precision(net, torch.half, exclude=(r"^1\\.",))
        >>> net[0].weight.dtype, net[1].weight.dtype, net(torch.ones(3, 4)).dtype
        (torch.float16, torch.float32, torch.float16)
    """
    check_module(model, "convert_precision")
    if dtype not in _TYPES:
        raise ValueError(f"[convert_precision] dtype must be one of {_TYPES}, got {dtype!r}. "
                         f"Choose one of them.")
    kept = _kept(model, [exclude] if isinstance(exclude, str) else list(exclude))
    for layer in model.modules():
        _check(model, layer, kept)
    for layer in model.modules():
        _remove_hooks(layer)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point() and id(tensor) not in kept:
            tensor.data = tensor.data.to(dtype)
            tensor.grad = None
    if any(id(tensor) not in kept for tensor in _floats(model)):
        _add_hooks(model, dtype, _arguments_to_target)
        for layer in _outermost(model, kept):
            _add_hooks(layer, dtype, _arguments_to_own, _results_to_target)
    return model


def _floats(layer: torch.nn.Module, recurse: bool = True) -> list[torch.Tensor]:
    return [tensor for tensor in (*layer.parameters(recurse), *layer.buffers(recurse))
            if tensor.is_floating_point()]


def _kept(model: torch.nn.Module, patterns: list[str]) -> set[int]:
    """The identities of the tensors that keep their type."""
    named = [*model.named_parameters(remove_duplicate=False),
             *model.named_buffers(remove_duplicate=False)]
    kept: set[int] = set()
    for pattern in patterns:
        try:
            found = {id(tensor) for name, tensor in named if re.search(pattern, name)}
        except (re.error, TypeError) as error:
            raise Error(f"[convert_precision] {pattern!r} is not a regular expression: {error}. "
                        f"Correct exclude.") from None
        if not found:
            raise Error(f"[convert_precision] exclude has {pattern!r}, which is in none of the "
                        f"names {', '.join(name for name, _ in named[:4])}, ... Correct it.")
        kept |= found
    return kept


def _check(model: torch.nn.Module, layer: torch.nn.Module, kept: set[int]) -> None:
    """Checks that a layer without layers has tensors of one type."""
    own = _floats(layer, recurse=False)
    if next(layer.children(), None) is None and 0 < sum(id(one) in kept for one in own) < len(own):
        path = next(path for path, part in model.named_modules() if part is layer)
        raise Error(f"[convert_precision] exclude matches some tensors of the layer "
                    f"{path or 'itself'} ({type(layer).__name__}) and not others. Its tensors need "
                    f"one type: exclude all of them.")


def _outermost(layer: torch.nn.Module, kept: set[int]) -> Iterator[torch.nn.Module]:
    """The layers that are called and have none but kept tensors, and are in no other such one."""
    for part in layer.children():
        tensors = _floats(part)
        is_called = type(part).forward is not torch.nn.Module.forward
        if tensors and is_called and all(id(tensor) in kept for tensor in tensors):
            yield part
        else:
            yield from _outermost(part, kept)


# -- hooks: functions without state of their own, so that files can name them ------------------


def _add_hooks(layer: torch.nn.Module, dtype: torch.dtype, before, after=None) -> None:
    setattr(layer, _TARGET, dtype)
    layer.register_forward_pre_hook(before, with_kwargs=True)
    if after is not None:
        layer.register_forward_hook(after)


def _remove_hooks(layer: torch.nn.Module) -> None:
    for table in (layer._forward_pre_hooks, layer._forward_hooks):
        for number in [number for number, hook in table.items() if hook in _HOOKS]:
            del table[number]
            layer._forward_pre_hooks_with_kwargs.pop(number, None)
    vars(layer).pop(_TARGET, None)


def _cast(tree, dtype: torch.dtype):
    return pytree.tree_map(lambda leaf: leaf.to(dtype) if isinstance(leaf, torch.Tensor)
                            and leaf.is_floating_point() else leaf, tree)


def _arguments_to_target(layer, args, kwargs):
    return _cast((args, kwargs), getattr(layer, _TARGET))


def _arguments_to_own(layer, args, kwargs):
    return _cast((args, kwargs), _floats(layer)[0].dtype)


def _results_to_target(layer, args, results):
    return _cast(results, getattr(layer, _TARGET))


_HOOKS = (_arguments_to_target, _arguments_to_own, _results_to_target)
