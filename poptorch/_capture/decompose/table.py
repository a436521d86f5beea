"""ATen operations that are composed of other operations, and which.

``DECOMPOSITIONS`` maps an overload to a function of the same arguments that computes the same by
other operations; it is applied while operations are recorded, below autograd. A function may
return NotImplemented for arguments that it does not support; the operation is then recorded as it
is. Operations that torch's own table takes apart by plain ATen operations are taken from there.
"""

import math
from functools import partial

import torch

from poptorch._base.torch_private.tracing import decomposition_table
from poptorch.errors import Error

aten = torch.ops.aten

DECOMPOSITIONS: dict = {}

# Those that compute each element from a few others: in the type of the result, or in float32
# where that has 16 bits, and rounded once. So do PyTorch's own kernels.
ELEMENTWISE: set = set()

# Those of torch's table; they compute in wide types by themselves.
_FROM_TORCH = (
    aten._prelu_kernel.default,
    aten._prelu_kernel_backward.default,
    aten.addcdiv.default,
    aten.addr.default,
    aten.aminmax.default,
    aten.binary_cross_entropy_with_logits.default,
    aten.celu.default,
    aten.channel_shuffle.default,
    aten.diag_embed.default,
    aten.dist.default,
    aten.glu.default,
    aten.glu_backward.default,
    aten.hardshrink.default,
    aten.index_fill.int_Scalar,
    aten.index_fill.int_Tensor,
    aten.lerp.Scalar,
    aten.lerp.Tensor,
    aten.linalg_cross.default,
    aten.logaddexp.default,
    aten.nan_to_num.default,
    aten.nansum.default,
    aten.pixel_shuffle.default,
    aten.pixel_unshuffle.default,
    aten.sgn.default,
    aten.sinc.default,
    aten.trace.default,
    aten.xlogy.Tensor,
)
DECOMPOSITIONS.update({op: decomposition_table[op] for op in _FROM_TORCH})


def decomposes(*overloads):
    """Enters a function in the table."""

    def register(function):
        DECOMPOSITIONS.update(dict.fromkeys(overloads, function))
        return function

    return register


def elementwise(*overloads):
    """Enters a function that computes in the type of its result."""
    ELEMENTWISE.update(overloads)
    return decomposes(*overloads)


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """The type in which an elementwise operation with a result of ``dtype`` computes."""
    return torch.float32 if dtype.is_floating_point and dtype.itemsize == 2 else dtype


# -- tensors from nothing ----------------------------------------------------------------------


@decomposes(aten._efficientzerotensor.default)
def _zero_tensor(size, **options):
    return aten.zeros.default(size, **options)


# -- elementwise -------------------------------------------------------------------------------


@elementwise(aten.addcmul.default)
def _addcmul(x, a, b, *, value=1):
    if not x.is_floating_point():
        value = int(value)
    return x + (a if value == 1 else a * value) * b


@decomposes(aten.isposinf.default)
def _isposinf(x):
    return _equals(x, math.inf)


@decomposes(aten.isneginf.default)
def _isneginf(x):
    return _equals(x, -math.inf)


def _equals(x, infinity: float):
    if x.is_complex():
        return NotImplemented
    if not x.is_floating_point():
        return torch.zeros_like(x, dtype=torch.bool)
    return x.masked_fill(x.isnan(), 0.0) == infinity  # a comparison with NaN may be an exception


@elementwise(aten.lcm.default)
def _lcm(a, b):
    # PyTorch's kernel ends the process where it divides the least integer by -1.
    common = aten.gcd.default(a, b)
    parts = aten.div.Tensor_mode(a, torch.where(common == 0, 1, common), rounding_mode="trunc")
    return (parts * b).abs()


def _of_numbers(chosen, a, b):
    """The one of two that ``chosen`` takes; the other one where one is NaN."""
    found = chosen(a, b)
    if not found.is_floating_point():
        return found
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, found))


elementwise(aten.fmax.default)(partial(_of_numbers, torch.maximum))
elementwise(aten.fmin.default)(partial(_of_numbers, torch.minimum))


# -- activations -------------------------------------------------------------------------------


@elementwise(aten.log_sigmoid_forward.default)
def _log_sigmoid(x):
    return x.clamp(max=0) - (-x.abs()).exp().log1p(), x.new_empty(0)


@elementwise(aten.log_sigmoid_backward.default)
def _log_sigmoid_backward(grad, x, buffer):
    return grad * (-x).sigmoid()


@elementwise(aten.softshrink.default)
def _softshrink(x, lambd=0.5):
    # In the type of a 16-bit tensor `lambd` would be rounded, as eager does in those below only.
    return torch.where(x.abs() > lambd, x - x.sign() * lambd, x * 0)


@decomposes(aten.softshrink_backward.default, aten.hardshrink_backward.default)
def _shrink_backward(grad, x, lambd):
    return torch.where(x.abs() > lambd, grad, 0.0)


# -- losses and norms --------------------------------------------------------------------------


@decomposes(aten.soft_margin_loss.default)
def _soft_margin_loss(x, target, reduction=1):
    if torch.broadcast_shapes(x.shape, target.shape) != x.shape:
        return NotImplemented  # torch has the words for it
    # Eager's result is of the first type, whatever the second.
    found = decomposition_table[aten.soft_margin_loss.default](x, target, reduction)
    return found if found.dtype is x.dtype else found.to(x.dtype)


def _of_one_shape(loss, x, target, *more):
    """The rows take operands of one shape."""
    if x.shape == target.shape:
        return NotImplemented
    return loss(*torch.broadcast_tensors(x, target), *more)


for _loss in (aten.mse_loss.default, aten.smooth_l1_loss.default):
    DECOMPOSITIONS[_loss] = partial(_of_one_shape, _loss)


@decomposes(aten.huber_loss.default)
def _huber_loss(x, target, reduction=1, delta=1.0):
    if x.dtype is target.dtype:
        return _of_one_shape(aten.huber_loss.default, x, target, reduction, delta)
    wide = torch.promote_types(x.dtype, target.dtype)
    found = aten.huber_loss.default(x.to(wide), target.to(wide), reduction, delta)
    return found.to(x.dtype)


@decomposes(aten.binary_cross_entropy.default)
def _binary_cross_entropy(x, target, weight=None, reduction=1):
    if weight is None or weight.dtype is x.dtype:
        return NotImplemented
    # Eager multiplies the losses in place: they keep their type.
    losses = aten.binary_cross_entropy.default(x, target, None, 0) * weight
    return _reduced(losses.to(x.dtype), reduction)


@decomposes(aten.binary_cross_entropy_backward.default)
def _binary_cross_entropy_backward(grad, x, target, weight=None, reduction=1):
    if weight is None or weight.dtype is x.dtype:
        return NotImplemented
    of_sum = min(2 * reduction, 2)
    found = aten.binary_cross_entropy_backward.default(grad, x, target, None, of_sum) * weight
    return (found / x.numel() if reduction == 1 else found).to(x.dtype)


def _reduced(losses, reduction):
    if reduction == 0:
        return losses
    return losses.mean() if reduction == 1 else losses.sum()


@elementwise(aten.soft_margin_loss_backward.default)
def _soft_margin_loss_backward(grad, x, target, reduction):
    z = (-target * x).exp()  # of an infinite one, eager's gradient is NaN
    inner = -target * z / (z + 1) * grad
    return inner / x.numel() if reduction == 1 else inner


def _of_each(backward, grad, x, target, reduction, *more):
    """The rows take one gradient of a reduced loss; the gradient of a gradient has one for each
    element, as torch's kernels allow."""
    if x.shape != target.shape:
        return _of_one_shape(partial(backward, grad), x, target, reduction, *more)
    is_plain = grad.dtype == x.dtype == target.dtype and x.is_floating_point()
    if reduction == 0 or grad.numel() == 1 or not x.numel() or not is_plain:
        return NotImplemented
    found = backward(grad.expand(x.shape), x, target, 0, *more)
    return found / x.numel() if reduction == 1 else found


for _backward in (aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default,
                  aten.huber_loss_backward.default):
    DECOMPOSITIONS[_backward] = partial(_of_each, _backward)


def _sum_of_others(x, dim: int):
    """The sum along all dimensions but one; without others, the elements themselves."""
    others = [d for d in range(x.dim()) if d != dim]
    return x.sum(others, keepdim=True) if others else x


@decomposes(aten._weight_norm_interface.default)
def _weight_norm(v, g, dim=0):
    # The norms of 16-bit floats are float32, in eager too.
    dtype, wide = v.dtype, computed_in(v.dtype)
    v, g = v.to(wide), g.to(wide)
    norms = _sum_of_others(v * v, dim).sqrt()
    return (v * (g / norms)).to(dtype), norms


@elementwise(aten._weight_norm_interface_backward.default)
def _weight_norm_backward(grad, v, g, norms, dim):
    along = _sum_of_others(grad * v, dim) / norms
    return (grad - v * (along / norms)) * (g / norms), along


# -- matrices ----------------------------------------------------------------------------------


@decomposes(aten.addbmm.default)
def _addbmm(x, a, b, *, beta=1, alpha=1):
    # One product over all batches, which is rounded once.
    batches, rows, inner = a.shape
    a = a.permute(1, 0, 2).reshape(rows, batches * inner)
    b = b.reshape(batches * inner, b.shape[2])
    if not x.is_floating_point():
        beta, alpha = int(beta), int(alpha)
    return torch.addmm(x, a, b, beta=beta, alpha=alpha)


@decomposes(aten.addmv.default)
def _addmv(x, a, b, *, beta=1, alpha=1):
    if a.numel() > 0 or a.dim() != 2 or b.shape != a.shape[1:]:
        return NotImplemented
    if x.shape != a.shape[:1]:  # eager's result then has the shape of x
        raise Error(f"[addmv] the product of a matrix {list(a.shape)} and a vector has "
                    f"{a.shape[0]} elements, the tensor that it is added to has the shape "
                    f"{list(x.shape)}. Expand that to [{a.shape[0]}].")
    return torch.zeros_like(x) if beta == 0 else (x * beta).to(x.dtype)


@decomposes(aten.scatter_add.default)
def _scatter_add(x, dim, index, source):
    return NotImplemented if index.numel() else x.clone()  # an empty index may be of any type


@decomposes(aten.index_copy.default)
def _index_copy(x, dim, index, source):
    # Its own decomposition would count negative numbers from the end, which eager refuses.
    places = torch.arange(x.shape[dim] if x.dim() else 1, device=index.device)
    return decomposition_table[aten.index_copy.default](
        x, dim, places.index_select(0, index.reshape(-1)).reshape(index.shape), source)
