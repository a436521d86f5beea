"""One operation of the device on tensors of the host, outside of any program."""

import torch

from poptorch import _C


def evaluated(op: str, tensors: list[torch.Tensor | None], attrs: dict) -> list[torch.Tensor]:
    """The results of an op for these operands, without gradients."""
    arrays = _C.evaluate(op, [None if t is None else _array(t) for t in tensors], attrs,
                         threads=torch.get_num_threads())
    return [found.view(torch.bfloat16) if found.dtype is torch.uint16 else found
            for found in map(torch.from_numpy, arrays)]


def _array(tensor: torch.Tensor):
    host = tensor.detach().contiguous()
    if host.dtype is torch.bfloat16:
        return host.view(torch.uint16).numpy(), "bf16"
    return host.numpy()
