"""Guards of tensors that are not arguments, parameters or buffers: their values are constants."""

import hashlib
import weakref
from collections.abc import Iterable, Sequence

import torch

from poptorch._base.layout import bits_of
from poptorch._base.torch_private.basic import plain_access
from poptorch._guards.guard import Change, Kind


class TensorGuard:
    """The guard of the values of one tensor, which is not kept alive; ``source`` may be None."""

    watched, kind = None, Kind.VALUE  # its version has to be read in each call

    def __init__(self, tensor: torch.Tensor, source: str | None):
        self.tensor = weakref.ref(tensor)
        self.source = source or called(tensor)
        with plain_access():
            # A library that owns the memory, as NumPy may, writes to it unseen; tensors of
            # inference mode have no version.
            self._is_foreign = tensor.is_inference() or not tensor.untyped_storage().resizable()
            self._type, self._digest = (tensor.dtype, tensor.shape), _digest(tensor)
            self._version = _version(tensor)

    def text(self) -> str:
        """Its type and a digest of its values, as they were."""
        dtype, shape = self._type
        return f"{dtype} {list(shape)} {self._digest.hex()}"

    def change(self) -> Change | None:
        """That its values have changed; None: they have not changed."""
        tensor = self.tensor()
        if tensor is None or not self._is_foreign and tensor._version == self._version:
            return None
        with plain_access():
            if (tensor.dtype, tensor.shape) == self._type and _digest(tensor) == self._digest:
                self._version = _version(tensor)
                return None
        return Change(f"the values of {self.source} changed, which are compiled in as a constant",
                      self.kind, self.source)

    def accept(self) -> None:
        """Nothing: :meth:`change` has taken note of equal values."""


class PlainTensors:
    """The guards of some tensors, each given with its name in the program, or None."""

    def __init__(self, tensors: Sequence[tuple[torch.Tensor, str | None]] = ()):
        self.guards = [TensorGuard(tensor, name) for tensor, name in tensors]

    def alive(self) -> list[tuple[torch.Tensor, str]]:
        """Those that still exist, with what messages call them."""
        found = [(guard.tensor(), guard.source) for guard in self.guards]
        return [(tensor, name) for tensor, name in found if tensor is not None]

    def described(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, str]:
        """The texts of those among some tensors, by path."""
        known = {id(guard.tensor()): guard for guard in self.guards}
        return {path: known[id(tensor)].text() for path, tensor in tensors if id(tensor) in known}


def called(tensor: torch.Tensor) -> str:
    """What messages call a tensor that has no name."""
    return f"a tensor of the sizes {list(tensor.shape)}"


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _digest(tensor: torch.Tensor) -> bytes:
    return hashlib.sha1(bits_of(tensor).numpy(), usedforsecurity=False).digest()
