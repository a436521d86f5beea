"""Types at the program's edge: types that the device lacks are converted here, and nowhere else."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

import torch

from poptorch._base import switches
from poptorch._base.layout import expanded_dims
from poptorch.errors import Error

_NAMES = {
    torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16",
    torch.int32: "i32", torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.float32: "f32", torch.float64: "f64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
# Types that the device lacks: 64-bit types are narrowed, unsigned ones become signed.
_NARROW = {torch.int64: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int32,
           torch.uint64: torch.int32, torch.float64: torch.float32,
           torch.complex128: torch.complex64}
# The program has complex numbers as pairs of numbers, in a last dimension of size 2.
_PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32,
          torch.complex128: torch.float64}
_WIDE = {torch.uint16: torch.int64, torch.uint32: torch.int64, torch.uint64: torch.int64}
_INT32 = torch.iinfo(torch.int32)
_INT64 = torch.iinfo(torch.int64)
_FLOAT32_MAX = torch.finfo(torch.float32).max
_UNNARROWED: ContextVar[tuple[torch.dtype, ...]] = ContextVar("unnarrowed", default=())


def narrowed(dtype: torch.dtype) -> torch.dtype:
    """The dtype that stands for ``dtype`` on the device: int64, uint16, uint32 and uint64 become
    int32, float64 becomes float32, complex128 becomes complex64 (nothing gets narrower within
    :func:`poptorch.testing.wide` and :func:`unnarrowed`)."""
    if dtype in _UNNARROWED.get():
        return dtype
    return (_WIDE if switches.is_wide() else _NARROW).get(dtype, dtype)


@contextlib.contextmanager
def unnarrowed(*dtypes: torch.dtype) -> Iterator[None]:
    """What this thread translates keeps these 64-bit types: the numbers of a weight update, and
    int64 values that int32 might not hold."""
    before = _UNNARROWED.set(dtypes)
    try:
        yield
    finally:
        _UNNARROWED.reset(before)


def ir_dtype(dtype: torch.dtype) -> str:
    """The IR's name of the (narrowed) dtype; an Error for one that the device lacks (complex,
    float8)."""
    name = _NAMES.get(narrowed(dtype))
    if name is None:
        own = [str(d) for d in _NAMES if d not in _NARROW]
        raise Error(f"[translate] {dtype} is not a type of the device, which has {', '.join(own)}, "
                    f"and narrows {', '.join(map(str, _NARROW))} to these. Convert the tensor "
                    f"first.")
    return name


def ir_type(tensor: torch.Tensor) -> tuple[str, list[int]]:
    """The IR's dtype and sizes for a tensor. Complex numbers become pairs, with a last dimension of
    size 2. An Error for a dtype that the device lacks."""
    return ir_dtype(real_dtype(tensor.dtype)), pair_sizes(tensor.shape, tensor.dtype)


def pair_sizes(sizes: Sequence[int], dtype: torch.dtype) -> list[int]:
    """The sizes of the pairs of a complex tensor; for another dtype, the sizes themselves."""
    return [*sizes, 2] if dtype.is_complex else list(sizes)


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the real and imaginary parts of complex numbers; another dtype itself."""
    return _PARTS.get(dtype, dtype)


def complex_dtype(part: torch.dtype) -> torch.dtype:
    """The complex dtype whose parts have a dtype."""
    return next(dtype for dtype, of in _PARTS.items() if of is part)


def unrounded(dtype: torch.dtype) -> torch.dtype:
    """The dtype between the ops of one rule: float32 for 16-bit floats. So a result is rounded
    once, as by the one operation that the rule stands for."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of an IR dtype's name."""
    return _DTYPES[name]


def host_tensor(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """A contiguous CPU tensor with the device's dtype and the values of ``tensor``; a copy only
    where it is needed.

    The limits of int64 and float64, which programs use as "infinite", become those of int32 and
    float32. Another value that does not fit is an Error, which names the tensor by ``what``.
    """
    tensor = tensor.detach()
    check_dense(tensor, what)
    if tensor.numel() and not tensor.data_ptr():
        raise without_memory(what)
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    target = narrowed(tensor.dtype)
    if target is torch.complex64:
        parts = torch.view_as_real(tensor.contiguous())
        return torch.view_as_complex(host_tensor(parts, what))
    if target is not tensor.dtype and tensor.numel():
        tensor = _fitting(tensor, target, what)
    return tensor.to(target).contiguous()


def check_dense(tensor: torch.Tensor, what: str) -> None:
    """Refuses a tensor without values one after the other in the host's memory."""
    if tensor.is_meta:
        raise Error(f"[{what}] expected a tensor on the CPU but got one on meta, which has no "
                    f"values. Pass one that has them, for instance torch.zeros of its sizes.")
    if tensor.device.type != "cpu":
        raise Error(f"[{what}] expected a tensor on the CPU but got one on {tensor.device}. The "
                    f"executor moves data to the device itself: pass {what}.cpu().")
    if tensor.layout is not torch.strided:
        raise Error(f"[{what}] expected a dense tensor but got one of layout {tensor.layout}. "
                    f"Pass {what}.to_dense().")
    if tensor.is_nested:
        raise Error(f"[{what}] expected a tensor of one shape but got a nested one. Pass "
                    f"{what}.to_padded_tensor(0.0).")
    if tensor.is_quantized:
        raise Error(f"[{what}] expected a plain tensor but got a quantized one of "
                    f"{tensor.dtype}. Pass {what}.dequantize().")
    if tensor.untyped_storage().device.type != "cpu":  # a FakeTensor
        raise without_memory(what)
    if not computes_as_usual(type(tensor)):
        raise Error(f"[{what}] expected a plain tensor but got a {type(tensor).__qualname__}, "
                    f"which has functions of its own (__torch_function__, __torch_dispatch__) that "
                    f"a compiled program does not call. Pass {what}.as_subclass(torch.Tensor).")


@functools.lru_cache(maxsize=256)
def computes_as_usual(kind: type) -> bool:
    """Whether operations of torch on tensors of a class are torch's own."""
    if kind.__module__.partition(".")[0] == "poptorch":
        return True
    function = getattr(kind.__torch_function__, "__func__", kind.__torch_function__)
    return function in (torch.Tensor.__torch_function__.__func__,
                        torch.nn.Parameter.__torch_function__) \
        and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def without_memory(what: str) -> Error:
    """For a tensor that has no memory, though it says that it is on the CPU."""
    return Error(f"[{what}] expected a tensor with values but got one without memory, as a "
                 f"FakeTensor, one whose storage was freed and a gradient that torch knows to be "
                 f"zero are. Pass one that has them, for instance torch.zeros of its sizes.")


def write_back(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Copies new values to a tensor; one element of each dimension that is expanded.

    If the new value of an element equals its narrowed old value, the device has not changed it:
    the element keeps its full precision. Values of a complex tensor may be pairs.
    """
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
        values = torch.view_as_real(values) if values.is_complex() else values
    for dim in expanded_dims(tensor):
        tensor, values = tensor.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    if tensor.dtype in (torch.int64, torch.float64) and narrowed(tensor.dtype) is values.dtype:
        before = tensor.detach()
        values = torch.where(_is_narrowed(before, values), before, values)
    tensor.copy_(values)


def _is_narrowed(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Where values are what elements of a tensor were narrowed to, and not equal to these."""
    if tensor.dtype is torch.int64:
        return (tensor == _INT64.max) & (values == _INT32.max) \
            | (tensor == _INT64.min) & (values == _INT32.min)
    is_limit = tensor.abs() == torch.finfo(torch.float64).max
    narrow = torch.where(is_limit, tensor.sign() * _FLOAT32_MAX, tensor).to(values.dtype)
    return (narrow == values) & (narrow.signbit() == values.signbit()) \
        & (narrow.isfinite() == tensor.isfinite())


def _fitting(tensor: torch.Tensor, target: torch.dtype, what: str) -> torch.Tensor:
    """``tensor``, or its copy with the limits of its dtype replaced by those of ``target``."""
    if tensor.dtype is torch.float64:
        return _fitting_float(tensor, what)
    signed = tensor if tensor.dtype is torch.int64 else tensor.to(torch.int64)
    if tensor.dtype is torch.uint64 and (signed < 0).any():
        value = int(signed[signed < 0].flatten()[0]) + 2**64
        raise _does_not_fit(value, tensor.dtype, target, what)
    if target is torch.int64:
        return signed
    low, high = (int(v) for v in torch.aminmax(signed))
    if _INT32.min <= low and high <= _INT32.max:
        return signed
    bad = (signed < _INT32.min) | (signed > _INT32.max)
    if tensor.dtype is torch.int64:
        bad &= (signed != _INT64.min) & (signed != _INT64.max)
    if bad.any():
        raise _does_not_fit(int(signed[bad].flatten()[0]), tensor.dtype, target, what)
    return signed.clamp(_INT32.min, _INT32.max)


def _fitting_float(tensor: torch.Tensor, what: str) -> torch.Tensor:
    size = tensor.abs()
    large = (size > _FLOAT32_MAX) & size.isfinite()
    if not large.any():
        return tensor
    bad = large & (size != torch.finfo(torch.float64).max)
    if bad.any():
        raise _does_not_fit(float(tensor[bad].flatten()[0]), tensor.dtype, torch.float32, what)
    return torch.where(large, tensor.sign() * _FLOAT32_MAX, tensor)


def _does_not_fit(value, dtype: torch.dtype, target: torch.dtype, what: str) -> Error:
    limits = (torch.finfo if target.is_floating_point else torch.iinfo)(target)
    names = [str(d).removeprefix("torch.") for d in (target, dtype)]
    return Error(f"[{what}] the value {value} does not fit into {names[0]} ({limits.min} to "
                 f"{limits.max}), to which {names[1]} is narrowed on the device. Use smaller "
                 f"values, or another type.")
