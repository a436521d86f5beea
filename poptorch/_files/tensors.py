"""Named tensors as the bytes of a safetensors file."""

import json
import struct
from collections import Counter

import safetensors.torch
import torch

ALIGNMENT = 64  # bytes
_RESERVED = "__metadata__"  # by the format
_MARK = "="  # before that name, and before those that begin so


def packed(tensors: dict[str, torch.Tensor], is_marked: bool = True) -> bytes:
    """The bytes of a safetensors file; none for no tensors.

    Names that the format reserves are marked, unless another program is to read the file.
    """
    if not tensors:
        return b""
    storages, whole = set(), {}
    for name, tensor in tensors.items():
        data = tensor.detach().resolve_conj().resolve_neg().contiguous()
        storage = data.untyped_storage()
        if storage.data_ptr() in storages or storage.nbytes() != data.nbytes:
            data = data.clone()
        storages.add(storage.data_ptr())
        is_reserved = name == _RESERVED or name.startswith(_MARK)
        whole[_MARK + name if is_reserved and is_marked else name] = data
    return safetensors.torch.save(whole)


def offset_to_align(data: bytes) -> int:
    """The place in a safetensors file that should begin at a multiple of ``ALIGNMENT`` bytes.

    It is the one that aligns most bytes of tensors: those can be used where they are.
    """
    if not data:
        return 0
    size = struct.unpack_from("<Q", data)[0]
    aligned = Counter()
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != _RESERVED:
            begin, end = entry["data_offsets"]
            aligned[(8 + size + begin) % ALIGNMENT] += end - begin
    return max(aligned, key=lambda place: (aligned[place], -place), default=0)


def unpacked(data: bytes) -> dict[str, torch.Tensor]:
    """The tensors that :func:`packed` was given."""
    # Clones, as the bytes of a member may begin anywhere in memory.
    return {name.removeprefix(_MARK): tensor.clone()
            for name, tensor in (safetensors.torch.load(data) if data else {}).items()}
