"""Parameters and buffers that bring the trained values to the host before anybody reads them.

While a module is wrapped for training, its tensors have one of the classes of this file: the same
objects, of a subclass whose only difference is ``__torch_function__``. So a parameter that a
program held before the training call is as up to date as one read from the module afterwards.
"""

import weakref

import torch

from poptorch._executor.transparent import Transparent, plain_access
from poptorch._executor.weights import ModuleWeights

# What tells nothing about values, and so needs no copy.
_METADATA = frozenset(
    getattr(torch.Tensor, name).__get__
    for name in ("shape", "dtype", "device", "layout", "requires_grad", "is_leaf", "grad",
                 "grad_fn", "ndim", "_version", "is_cpu", "is_sparse", "is_quantized",
                 "is_meta", "itemsize", "nbytes", "_backward_hooks", "output_nr")
) | frozenset(
    getattr(torch.Tensor, name)
    for name in ("size", "dim", "numel", "stride", "storage_offset", "is_contiguous", "nelement",
                 "is_floating_point", "is_complex", "element_size", "requires_grad_", "__len__",
                 "__hash__", "register_hook")
)

# The weights that a watched tensor belongs to, by the tensor's identity.
_owners: dict[int, weakref.ref] = {}


def watch(module: torch.nn.Module) -> None:
    """Watches all parameters and buffers of ``module``. Lazy and subclassed ones stay as they
    are: only reading them through the module brings them up to date."""
    owner = weakref.ref(ModuleWeights.of(module))
    for tensor in _tensors(module):
        watched = _WATCHED.get(type(tensor))
        if watched is not None:
            tensor.__class__ = watched
        if isinstance(tensor, tuple(_PLAIN)):
            _owners[id(tensor)] = owner


def unwatch(module: torch.nn.Module) -> None:
    """Gives the tensors of ``module`` their own classes back."""
    for tensor in _tensors(module):
        plain = _PLAIN.get(type(tensor))
        if plain is not None:
            tensor.__class__ = plain
            _owners.pop(id(tensor), None)


def plain_class(tensor: torch.Tensor) -> type:
    """The class of a tensor, watched or not."""
    return _PLAIN.get(type(tensor), type(tensor))


def _tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    return [tensor for part in module.modules()
            for table in (part._parameters, part._buffers)
            for tensor in table.values() if tensor is not None]


def _bring_to_host(values) -> None:
    for value in values:
        if type(value) in _PLAIN:
            owner = _owners.get(id(value))
            weights = owner() if owner is not None else None
            if weights is not None:
                weights.bring_to_host()
        elif isinstance(value, (list, tuple)):
            _bring_to_host(value)


class _Watched(Transparent):
    """What the two classes share."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in _METADATA:
            _bring_to_host(args)
            if kwargs:
                _bring_to_host(kwargs.values())
        with plain_access():
            return func(*args, **(kwargs or {}))

    def _plain(self) -> torch.Tensor:
        _bring_to_host([self])
        return super()._plain()


class _WatchedParameter(_Watched, torch.nn.Parameter):
    def _plain(self) -> torch.nn.Parameter:
        plain = torch.nn.Parameter(super()._plain().detach(), self.requires_grad)
        plain.__dict__.update(self.__dict__)
        return plain


class _WatchedBuffer(_Watched, torch.Tensor):
    pass


_WATCHED = {torch.nn.Parameter: _WatchedParameter, torch.Tensor: _WatchedBuffer}
_PLAIN = {watched: plain for plain, watched in _WATCHED.items()}
