"""The entries of a ring buffer: memory that two processes share, and items packed into it.

The memory is anonymous (memfd): it has no name in any file system, so that nothing is left behind
however a process ends, and it is not limited by the size of /dev/shm.
"""

import io
import math
import mmap
import os
import pickle
import socket
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from poptorch._base.layout import copied_strides

ALIGNMENT_BYTES = 64


@dataclass(frozen=True)
class Packed:
    """An item taken apart: the tensors for shared memory; dtype, shape, strides and offset in
    bytes of each; and all else, pickled."""

    tensors: list
    layout: tuple
    rest: bytes
    nbytes: int


class _Pickler(pickle.Pickler):
    """Pickles an item; its tensors become numbers and are collected."""

    def __init__(self, file):
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj):
        if type(obj) is not torch.Tensor or not _is_plain(obj):
            return None
        if id(obj) not in self._numbers:
            self._numbers[id(obj)] = len(self.tensors)
            self.tensors.append(obj)
        return self._numbers[id(obj)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, tensors):
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid):
        return self._tensors[pid]


def _is_plain(tensor: torch.Tensor) -> bool:
    return (tensor.layout is torch.strided and tensor.device.type == "cpu"
            and not tensor.requires_grad and not tensor.is_quantized)


def pack(item) -> Packed:
    """Takes an item apart; any nesting and any class that pickle can handle."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(item)
    layout, end = [], 0
    for tensor in pickler.tensors:
        layout.append((tensor.dtype, tuple(tensor.shape), copied_strides(tensor), end))
        end += -(-tensor.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return Packed(pickler.tensors, tuple(layout), file.getvalue(), end)


def unpack(rest: bytes, tensors: list):
    """The item that :func:`pack` took apart, with ``tensors`` in their places."""
    return _Unpickler(io.BytesIO(rest), tensors).load()


class Slot:
    """The memory of one entry of the ring; it keeps a duplicate of the file descriptor."""

    def __init__(self, fd: int, nbytes: int):
        self.nbytes = nbytes
        self.memory = mmap.mmap(fd, nbytes)
        self._own_references = sys.getrefcount(self.memory)

    @classmethod
    def make(cls, nbytes: int) -> tuple["Slot", int]:
        """A slot with new memory of at least ``nbytes``, and its file descriptor."""
        nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        fd = os.memfd_create("poptorch-data", os.MFD_CLOEXEC)
        os.ftruncate(fd, nbytes)
        return cls(fd, nbytes), fd

    def fill(self, packed: Packed) -> None:
        """Copies the tensors of an item into this memory."""
        for tensor, view in zip(packed.tensors, views(self, packed.layout)):
            view.copy_(tensor)

    def is_in_use(self) -> bool:
        """Whether a tensor over this memory is still alive in this process."""
        return sys.getrefcount(self.memory) > self._own_references


def views(slot: Slot | None, layout: tuple) -> list[torch.Tensor]:
    """Tensors over the memory of a slot, which they keep alive; without elements they need none."""
    return [torch.empty_strided(shape, strides, dtype=dtype) if 0 in shape
            else torch.frombuffer(slot.memory, dtype=dtype, count=math.prod(shape),
                                  offset=offset).as_strided(shape, strides)
            for dtype, shape, strides, offset in layout]


def send_descriptor(connection: Connection, fd: int) -> None:
    """Sends a file descriptor. From Python 3.14 on, the function of multiprocessing waits for an
    answer, which another thread that reads the connection would take."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        socket.send_fds(end, [b"F"], [fd])


def receive_descriptor(connection: Connection) -> int:
    """Receives what :func:`send_descriptor` sends; :class:`EOFError` if the other end is gone."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        _, fds, *_ = socket.recv_fds(end, 1, 1)
    if not fds:
        raise EOFError
    return fds[0]
