"""What eager computes in one way or another, by sizes, types, strides or the processor."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fuzz.programs.program import NATURAL, WIDE, Program
from tests.fuzz.programs.running import eager

_OF_VARIANCES = ("native_layer_norm", "native_group_norm", "native_batch_norm")
# One of them is in each program with such an operation.
_WORDS = ("alpha=0", "hardswish", "norm", "Norm", "interpolate", "Upsampl", "upsampl", "quantile",
          "sort", "_mean(", "soft_margin")


class _Noting(TorchDispatchMode):
    """Notes what eager computes in one way or another by sizes and types: products with NaN or
    infinity that count 0 times, which a library leaves out; gradients of hardswish at NaN, which
    are NaN in whole registers and that of the result in the rest; norms of numbers whose variance
    overflows, which are NaN where it is put together from several parts, and zeros else;
    interpolation between an infinity and itself, which is NaN where the weight is 0; means beside
    variances, which are NaN where an infinity stands before the last number; which of equal numbers
    comes first, where no stable order is asked for: it gets the gradient; gradients of batch norm
    in inference, of which some channels get others' where strides fit both row-major and
    channels-last tensors; and those of soft_margin_loss, where 1 of uint8 counts as -255."""

    found = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__.rstrip("_")
        if (kwargs or {}).get("alpha") == 0 and name in ("addmm", "addmv", "baddbmm", "addbmm"):
            self.found |= not all(bool(x.isfinite().all()) for x in args[1:])
        if name == "hardswish_backward":
            self.found |= bool(args[1].isnan().any())
        if name in _OF_VARIANCES:
            self.found |= _variance_overflows(args[0])
        if name in ("var_mean", "std_mean") or (name.startswith("upsample_") and "linear" in name):
            self.found |= bool(args[0].isinf().any())
        if name == "soft_margin_loss_backward":
            self.found |= args[2].dtype is torch.uint8
        out = func(*args, **(kwargs or {}))
        if name == "native_batch_norm_backward" and not args[0].is_contiguous():
            again = func(args[0].contiguous(), *args[1:])
            self.found |= any(_differ(x, y) for x, y in zip(out, again, strict=True))
        if func is torch.ops.aten.sort.default and out[0].dim():
            steps = out[0].diff(dim=args[1] if len(args) > 1 else -1)
            self.found |= bool((steps == 0).any())
        return out


def is_undetermined(program: Program) -> bool:
    """Whether eager comes to a result in a way that its sizes, types or the processor decide."""
    if not any(word in str(program) for word in _WORDS):
        return False
    return _is_noted(_Noting(), program)


class _NotingZeros(TorchDispatchMode):
    """Notes products of one number that is 0: their gradient does not depend on it, that of others
    does, by zeros."""

    found = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket is torch.ops.aten.prod:
            x, *dims = args
            count = x.shape[dims[0]] if dims and x.dim() else x.numel()
            self.found |= count == 1 and bool((x == 0).any())
        return func(*args, **(kwargs or {}))


def may_have_zero_path(program: Program) -> bool:
    """Whether parameters that a product of one number depends on may have a gradient of zeros or
    none: of zeros by `vjp` and `jacrev` where `grad` gives none, and by its value."""
    if "prod(" not in str(program):
        return False
    if any(word in str(program) for word in ("jacrev(", "vjp(")):
        return True
    return _is_noted(_NotingZeros(), program)


def _is_noted(mode: _Noting | _NotingZeros, program: Program) -> bool:
    """Whether a mode finds something while eager runs a program."""
    with mode:
        eager(program, WIDE if program.setting.wide else NATURAL)
    return mode.found


def _differ(x: torch.Tensor | None, y: torch.Tensor | None) -> bool:
    """Whether two results differ by more than roundings."""
    return x is not None and not torch.allclose(x.float(), y.float(), 0.1, 1e-3, equal_nan=True)


def _variance_overflows(x: torch.Tensor) -> bool:
    """Whether squares of finite numbers are infinite in the type in which eager adds them up."""
    wide = x.double() if x.dtype is torch.float64 else x.float()
    return bool(x.isfinite().all()) and not bool(wide.square().sum().isfinite())
