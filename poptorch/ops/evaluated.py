"""One operation of the device on tensors of the host, outside of any program."""

import numpy as np
import torch

from poptorch import _C


def evaluated(op: str, tensors: list[torch.Tensor | None], attrs: dict) -> list[torch.Tensor]:
    """The results of an op for these operands, without gradients."""
    is_bfloat = tensors[0].dtype is torch.bfloat16
    arrays = _C.evaluate(op, [None if t is None else _array(t) for t in tensors], attrs)
    return [torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
            if is_bfloat and array.dtype == np.uint16 else torch.from_numpy(array)
            for array in arrays]


def _array(tensor: torch.Tensor):
    host = tensor.detach().contiguous()
    if host.dtype is torch.bfloat16:
        return host.view(torch.int16).numpy().view(np.uint16), "bf16"
    return host.numpy()
