"""Named tensors as the bytes of a safetensors file."""

import safetensors.torch
import torch


def packed(tensors: dict[str, torch.Tensor]) -> bytes:
    """The bytes of a safetensors file; none for no tensors."""
    if not tensors:
        return b""
    storages, whole = set(), {}
    for name, tensor in tensors.items():
        data = tensor.detach().resolve_conj().resolve_neg().contiguous()
        storage = data.untyped_storage()
        if storage.data_ptr() in storages or storage.nbytes() != data.nbytes:
            data = data.clone()
        storages.add(storage.data_ptr())
        whole[name] = data
    return safetensors.torch.save(whole)


def unpacked(data: bytes) -> dict[str, torch.Tensor]:
    """The tensors that :func:`packed` was given."""
    # Clones, as the bytes of a member may begin anywhere in memory.
    return {name: tensor.clone()
            for name, tensor in (safetensors.torch.load(data) if data else {}).items()}
