"""Parameters and buffers that bring the trained values to the host before they are read.

While a module is wrapped for training, its tensors have one of the classes of this file: the same
objects, of a subclass whose only difference is ``__torch_function__``. So a parameter that a
program held before the training call is as up to date as one read from the module afterwards.
"""

import copy
import sys
from collections.abc import Iterator

import torch

from poptorch._base.logging import logger
from poptorch._base.torch_private.basic import load_code, plain_access
from poptorch._weights import gradients
from poptorch._weights.store import STORE

# What shows nothing of values, and so needs no copy.
METADATA = frozenset(
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
# What lets its caller write without that the tensor's version grows.
_HANDING_OUT = frozenset({torch.Tensor.data.__get__} | {
    getattr(torch.Tensor, name)
    for name in ("numpy", "data_ptr", "untyped_storage", "storage", "__array__", "__dlpack__")})


def watch(module: torch.nn.Module) -> None:
    """Watches all parameters and buffers of ``module``. Lazy and subclassed ones stay as they
    are: only reading them through the module brings them up to date."""
    with plain_access():
        for tensor in tensors_of(module):
            tensor.__class__ = _WATCHED.get(type(tensor), type(tensor))
            if type(tensor) in _PLAIN:
                STORE.record(tensor).watchers.add(module)


def watch_tensor(tensor: torch.Tensor) -> None:
    """Watches a tensor that belongs to no module, such as a state of an optimizer, until it is
    freed."""
    with plain_access():
        tensor.__class__ = _WATCHED.get(type(tensor), type(tensor))


def unwatch(module: torch.nn.Module) -> None:
    """Gives the tensors of ``module`` their own classes back, unless another wrapped module has
    them too."""
    with plain_access():
        for tensor in tensors_of(module):
            plain, record = _PLAIN.get(type(tensor)), STORE.known(tensor)
            if record is not None:
                record.watchers.discard(module)
            if plain is not None and (record is None or not record.watchers):
                tensor.__class__ = plain


def tensors_of(module: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters and buffers of a module, without that this counts as reading them; not those
    of another layout, as sparse ones: they have no storage, and no program takes them."""
    return [tensor for _, part in parts_of(module) for table in (part._parameters, part._buffers)
            for tensor in table.values() if tensor is not None and tensor.layout is torch.strided]


def parts_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """As ``named_modules``, with a dot after each name, without that this counts as reading."""
    left, seen = [("", module)], set()
    while left:
        path, part = left.pop()
        if part is not None and id(part) not in seen:
            seen.add(id(part))
            yield path, part
            left += [(f"{path}{name}.", child) for name, child in part._modules.items()]


def _pull_to_host(values) -> None:
    for value in values:
        if type(value) in _PLAIN:
            record = STORE.known(value)
            if record is not None:
                STORE.pull_record_to_host(record)
        elif isinstance(value, (list, tuple)):
            _pull_to_host(value)


class _Watched:
    """What the two classes share. Copies, pickles and what is printed are those of torch's own
    class, which derived classes name last among their bases."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in METADATA:
            _pull_to_host(args)
            if kwargs:
                _pull_to_host(kwargs.values())
            if func in _HANDING_OUT:
                STORE.handed_out(args[0])
            if func is torch.Tensor.register_post_accumulate_grad_hook:
                _warn_of_late_hook(args[0])
            if func is torch.Tensor.detach and sys._getframe(1).f_code is _NEW_PARAMETER:
                return _detached_for_parameter(args[0])
        elif func == _GRAD:
            return _gradient_of(args[0])
        with plain_access():
            result = func(*args, **(kwargs or {}))
        if func is torch.Tensor.copy_ and sys._getframe(1).f_code is load_code:
            _loaded(args[0])
        return result

    def _plain(self) -> torch.Tensor:
        """A tensor of torch's own class with the same memory and attributes."""
        _pull_to_host([self])
        with plain_access():
            plain = self.as_subclass(torch.Tensor)
        plain.__dict__.update(self.__dict__)
        return plain

    def __repr__(self, *args, **kwargs) -> str:
        return self._plain().__repr__(*args, **kwargs)

    def __format__(self, format_spec: str) -> str:
        return self._plain().__format__(format_spec)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = copy.deepcopy(self._plain(), memo)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return self._plain().__reduce_ex__(protocol)

    def _becomes_parameter(self, _) -> None:
        self.__class__ = torch.nn.Parameter

    # torch.nn.Parameter sets it in a tensor of another class, which it leaves as it is.
    _is_param = property(fset=_becomes_parameter)


def _loaded(tensor: torch.Tensor) -> None:
    """Gives every program the value that ``load_state_dict`` of a module wrote to a tensor."""
    record = STORE.known(tensor)
    if record is not None and record.entry.ownership.copies:
        STORE.publish_to_all([tensor])
        logger.info("[weights] load_state_dict wrote %s. The next call uses the new value.",
                    record.path())


def _warn_of_late_hook(tensor: torch.Tensor) -> None:
    record = STORE.known(tensor)
    path = None if record is None else record.path()
    if path is not None:  # else capture warns
        logger.warning("[weights] %s was given a hook that runs after its gradient is accumulated; "
                       "it has no effect on a model that is compiled, as the device updates the "
                       "weights itself. Use register_hook, before the first call, to change the "
                       "gradient.", path)


_NEW_PARAMETER = torch.nn.Parameter.__new__.__code__


def _detached_for_parameter(tensor: torch.Tensor) -> torch.Tensor:
    """What ``torch.nn.Parameter(tensor)`` needs: of the same class, else it refuses."""
    with plain_access():
        detached = tensor.detach()
    detached.__class__ = type(tensor)
    return detached


_GRAD = torch.Tensor.grad.__get__


def _gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    with plain_access():
        found = _GRAD(tensor)
    record = None if found is not None else STORE.known(tensor)
    return found if record is None else gradients.read(tensor, record.watchers, depth=3)


class _WatchedParameter(_Watched, torch.nn.Parameter):
    def _plain(self) -> torch.nn.Parameter:
        plain = torch.nn.Parameter(super()._plain().detach(), self.requires_grad)
        plain.__dict__.update(self.__dict__)
        return plain


class _WatchedBuffer(_Watched, torch.Tensor):
    pass


for _watched, _name in ((_WatchedParameter, "Parameter"), (_WatchedBuffer, "Tensor")):
    _watched.__name__ = _watched.__qualname__ = _name  # as in messages of torch

_WATCHED = {torch.nn.Parameter: _WatchedParameter, torch.Tensor: _WatchedBuffer}
_PLAIN = {watched: plain for plain, watched in _WATCHED.items()}


def plain_class(tensor: torch.Tensor) -> type:
    """The class that a tensor has outside of poptorch: torch's own for a watched one."""
    return _PLAIN.get(type(tensor), type(tensor))
