"""Notices that a plain tensor is changed, of which the values are compiled in."""

import hashlib
import weakref
from collections.abc import Iterable, Sequence

import torch

from poptorch._base.hidden_subclass import plain_access
from poptorch._base.layout import bits_of
from poptorch.errors import Error


class PlainTensors:
    """Tensors of the user's that are no arguments, parameters or buffers, as they were compiled.

    They are not kept alive.

    Args:
        tensors: each with what the program calls it; None where that is not known.
    """

    def __init__(self, tensors: Sequence[tuple[torch.Tensor, str | None]] = ()):
        self._known = [_Known(tensor, name) for tensor, name in tensors]

    def check(self) -> None:
        """Checks that they have the values that they had.

        Raises:
            poptorch.Error: One has others.
        """
        for known in self._known:
            known.check()

    def alive(self) -> list[tuple[torch.Tensor, str]]:
        """Those that still exist, with what messages call them."""
        found = [(known.tensor(), known.name) for known in self._known]
        return [(tensor, name) for tensor, name in found if tensor is not None]

    def described(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, str]:
        """What those among some tensors were when they were compiled, by path: type and a digest.
        """
        known = {id(one.tensor()): one for one in self._known}
        return {path: known[id(tensor)].text() for path, tensor in tensors if id(tensor) in known}


def called(tensor: torch.Tensor) -> str:
    """What messages call a tensor that has no name."""
    return f"a tensor of the sizes {list(tensor.shape)}"


class _Known:
    def __init__(self, tensor: torch.Tensor, name: str | None):
        self.tensor = weakref.ref(tensor)
        self.name = name or called(tensor)
        with plain_access():
            # A library that owns the memory, as NumPy may, writes to it unseen; tensors of
            # inference mode have no version.
            self._is_foreign = tensor.is_inference() or not tensor.untyped_storage().resizable()
            self._type = tensor.dtype, tensor.shape
            self._version, self._digest = _version(tensor), _digest(tensor)

    def text(self) -> str:
        dtype, shape = self._type
        return f"{dtype} {list(shape)} {self._digest.hex()}"

    def check(self) -> None:
        tensor = self.tensor()
        if tensor is None or not self._is_foreign and tensor._version == self._version:
            return
        with plain_access():
            is_same = (tensor.dtype, tensor.shape) == self._type \
                and _digest(tensor) == self._digest
            if is_same:
                self._version = _version(tensor)
        if not is_same:
            raise Error(
                f"[weights] {self.name}: it is a plain tensor, of which the values are compiled "
                f"in, and was changed after that. For values that change use register_buffer, or "
                f"an argument; or call destroy(), and the next call compiles the module as it is.")


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _digest(tensor: torch.Tensor) -> bytes:
    return hashlib.sha1(bits_of(tensor).numpy(), usedforsecurity=False).digest()
