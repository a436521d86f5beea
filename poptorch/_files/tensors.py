"""Named tensors as the bytes of a safetensors file."""

import safetensors.torch
import torch

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


def unpacked(data: bytes) -> dict[str, torch.Tensor]:
    """The tensors that :func:`packed` was given."""
    # Clones, as the bytes of a member may begin anywhere in memory.
    return {name.removeprefix(_MARK): tensor.clone()
            for name, tensor in (safetensors.torch.load(data) if data else {}).items()}
