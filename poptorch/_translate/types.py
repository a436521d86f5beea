"""Types at the program's edge: 64-bit types are narrowed here, and nowhere else."""

import torch

from poptorch import testing
from poptorch.errors import Error

_NAMES = {
    torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16",
    torch.int32: "i32", torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.float32: "f32", torch.float64: "f64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_NARROW = {torch.int64: torch.int32, torch.float64: torch.float32}
_INT32 = torch.iinfo(torch.int32)
_INT64 = torch.iinfo(torch.int64)


def narrowed(dtype: torch.dtype) -> torch.dtype:
    """The dtype that stands for ``dtype`` on the device: int64 and float64 become 32 bits wide,
    unless :func:`poptorch.testing.wide` is on."""
    return dtype if testing.is_wide() else _NARROW.get(dtype, dtype)


def ir_dtype(dtype: torch.dtype) -> str:
    """The IR's name of the (narrowed) dtype.

    Raises:
        poptorch.Error: The device has no such type (complex, quantized, float8, ...).
    """
    name = _NAMES.get(narrowed(dtype))
    if name is None:
        raise Error(f"[translate] {dtype} is not a type of the device, which has: "
                    f"{', '.join(str(d) for d in _NAMES)}. Convert the tensor first.")
    return name


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of an IR dtype's name."""
    return _DTYPES[name]


def host_tensor(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """A contiguous CPU tensor with the device's dtype and the values of ``tensor``.

    No copy is made where none is needed.

    Args:
        tensor: any dense CPU tensor.
        what: how an error message names the tensor.

    Raises:
        poptorch.Error: An int64 value does not fit into int32 and is not one of int64's limits
            (those, used as "infinite", become the limits of int32).
    """
    tensor = tensor.detach()
    target = narrowed(tensor.dtype)
    if target is torch.int32 and tensor.dtype is torch.int64 and tensor.numel():
        tensor = _saturated(tensor, what)
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.to(target).contiguous()


def _saturated(tensor: torch.Tensor, what: str) -> torch.Tensor:
    low, high = (int(v) for v in torch.aminmax(tensor))
    if _INT32.min <= low and high <= _INT32.max:
        return tensor
    bad = (tensor < _INT32.min) | (tensor > _INT32.max)
    bad &= (tensor != _INT64.min) & (tensor != _INT64.max)
    if bad.any():
        value = int(tensor[bad].flatten()[0])
        raise Error(f"[{what}] the value {value} does not fit into int32 ({_INT32.min} to "
                    f"{_INT32.max}), to which int64 is narrowed on the device. Use smaller "
                    f"values, or a floating-point tensor.")
    return tensor.clamp(_INT32.min, _INT32.max)
