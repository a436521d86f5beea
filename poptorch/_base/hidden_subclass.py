"""Tensor classes of ours that are not visible outside of the process."""

import copy

import torch

from poptorch._base.torch_private.basic import no_torch_function as no_torch_function
from poptorch._base.torch_private.basic import plain_access


class Transparent:
    """For subclasses of torch.Tensor: copies, pickles and what is printed are those of torch's
    own class. Derived classes name that class last among their bases."""

    def _plain(self) -> torch.Tensor:
        """A tensor of torch's own class with the same memory and attributes."""
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


def plain_class(tensor: torch.Tensor) -> type:
    """The class that a tensor has outside: torch's own for a transparent one."""
    kind = type(tensor)
    while issubclass(kind, Transparent):
        kind = kind.__bases__[-1]
    return kind
