"""Named tensors as the bytes of a safetensors file."""

import json
import math
import struct
from collections import Counter

import safetensors.torch
import torch

from poptorch import _C

ALIGNMENT = 64  # bytes
_RESERVED = "__metadata__"  # by the format
_LARGE = 256 << 10  # bytes; smaller ones have a copy on the device, see csrc/plan/layout.h
_DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "U16": torch.uint16, "U32": torch.uint32,
    "U64": torch.uint64, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
    "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32,
    "F64": torch.float64, "C64": torch.complex64, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz, "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}
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
    for name, entry in json.loads(bytes(data[8:8 + size])).items():
        if name != _RESERVED:
            begin, end = entry["data_offsets"]
            aligned[(8 + size + begin) % ALIGNMENT] += end - begin
    return max(aligned, key=lambda place: (aligned[place], -place), default=0)


def unpacked(data: bytes | memoryview, in_place: bool = False) -> dict[str, torch.Tensor]:
    """The tensors that :func:`packed` was given.

    With ``in_place`` large ones lie in ``data``, which may be written to; others are copies.
    """
    if not data:
        return {}
    size = struct.unpack_from("<Q", data)[0]
    contents, found, at = memoryview(data)[8 + size:], {}, 0
    entries = json.loads(bytes(data[8:8 + size]))
    entries.pop(_RESERVED, None)
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        dtype, sizes = _DTYPES[entry["dtype"]], entry["shape"]
        if begin != at or end > len(contents) or min(sizes, default=0) < 0 \
                or end - begin != math.prod(sizes) * dtype.itemsize:
            raise ValueError(f"{name} has the bytes {begin} to {end}, and {at} is next")
        found[name.removeprefix(_MARK)] = _tensor(contents[begin:end], dtype, in_place).view(sizes)
        at = end
    if at != len(contents):
        raise ValueError(f"{len(contents) - at} bytes are of no tensor")
    return found


def _tensor(data: memoryview, dtype: torch.dtype, in_place: bool) -> torch.Tensor:
    """The elements of a tensor in a row."""
    if len(data) == 0:
        return torch.empty(0, dtype=dtype)
    tensor = torch.frombuffer(data if not data.readonly else bytearray(data), dtype=dtype)
    if not in_place or len(data) < _LARGE or tensor.data_ptr() % ALIGNMENT:
        return tensor.clone()
    _C.allow_resizing(tensor.untyped_storage()._cdata)
    return tensor
