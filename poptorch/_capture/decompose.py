"""ATen operations that are made of others, and of which of them.

``DECOMPOSITIONS`` maps an overload to a function of the same arguments that computes the same by
other operations; it is applied while operations are recorded, below autograd. A function may
return NotImplemented for arguments that it does not know; the operation is then recorded as it
is. Operations that torch's own table takes apart by plain ATen operations are taken from there.
"""

import math

import torch

from poptorch._capture.torch_private import decomposition_table

aten = torch.ops.aten

DECOMPOSITIONS: dict = {}

_FROM_TORCH = (
    aten.celu.default,
    aten.channel_shuffle.default,
    aten.diag_embed.default,
    aten.pixel_shuffle.default,
    aten.pixel_unshuffle.default,
)
DECOMPOSITIONS.update({op: decomposition_table[op] for op in _FROM_TORCH})


def decomposes(*overloads):
    """Enters a function in the table."""

    def register(function):
        DECOMPOSITIONS.update(dict.fromkeys(overloads, function))
        return function

    return register


# -- tensors from nothing ----------------------------------------------------------------------


@decomposes(aten._efficientzerotensor.default)
def _zero_tensor(size, **options):
    return aten.zeros.default(size, **options)


# -- elementwise -------------------------------------------------------------------------------


@decomposes(aten.addcmul.default)
def _addcmul(x, a, b, *, value=1):
    product = a * b
    return x + (product if value == 1 else product * value)


@decomposes(aten.addcdiv.default)
def _addcdiv(x, a, b, *, value=1):
    quotient = a / b
    return x + (quotient if value == 1 else quotient * value)


@decomposes(aten.lerp.Scalar)
def _lerp_scalar(start, end, weight):
    if abs(weight) < 0.5:
        return start + (end - start) * weight
    return end - (end - start) * (1 - weight)


@decomposes(aten.lerp.Tensor)
def _lerp(start, end, weight):
    difference = end - start
    return torch.where(weight.abs() < 0.5, start + weight * difference,
                       end - difference * (1 - weight))


@decomposes(aten.sgn.default)
def _sgn(x):
    return NotImplemented if x.is_complex() else x.sign()


@decomposes(aten.xlogy.Tensor)
def _xlogy(x, y):
    return torch.where(y.isnan(), y, x * torch.where(x == 0, 1.0, y).log())


@decomposes(aten.logaddexp.default)
def _logaddexp(a, b):
    largest = torch.maximum(a, b)
    result = largest + (-(a - b).abs()).exp().log1p()
    return torch.where(a.isinf() & (a == b), a, result)


@decomposes(aten.fmax.default)
def _fmax(a, b):
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, torch.maximum(a, b)))


@decomposes(aten.fmin.default)
def _fmin(a, b):
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, torch.minimum(a, b)))


@decomposes(aten.sinc.default)
def _sinc(x):
    if not x.is_floating_point():
        return NotImplemented
    angle = x * math.pi
    return torch.where(x == 0, 1.0, angle.sin() / angle)


@decomposes(aten.nan_to_num.default)
def _nan_to_num(x, nan=None, posinf=None, neginf=None):
    if not x.is_floating_point():
        return x.clone()
    limits = torch.finfo(x.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    x = x.masked_fill(x.isnan(), 0.0 if nan is None else nan)
    return x.masked_fill(x == math.inf, high).masked_fill(x == -math.inf, low)


# -- activations -------------------------------------------------------------------------------


@decomposes(aten.glu.default)
def _glu(x, dim=-1):
    if x.dim() == 0 or x.shape[dim] % 2:
        return NotImplemented  # torch has the words for it
    a, b = x.chunk(2, dim)
    return a * b.sigmoid()


@decomposes(aten.glu_backward.default)
def _glu_backward(grad, x, dim):
    a, b = x.chunk(2, dim)
    gate = b.sigmoid()
    inner = grad * gate
    return torch.cat([inner, inner * a * (1 - gate)], dim)


@decomposes(aten._prelu_kernel.default)
def _prelu(x, weight):
    return torch.where(x > 0, x, weight * x)


@decomposes(aten._prelu_kernel_backward.default)
def _prelu_backward(grad, x, weight):
    positive = x > 0
    return torch.where(positive, grad, weight * grad), torch.where(positive, 0.0, x * grad)


@decomposes(aten.log_sigmoid_forward.default)
def _log_sigmoid(x):
    return x.clamp(max=0) - (-x.abs()).exp().log1p(), x.new_empty(0)


@decomposes(aten.log_sigmoid_backward.default)
def _log_sigmoid_backward(grad, x, buffer):
    return grad * (-x).sigmoid()


@decomposes(aten.softshrink.default)
def _softshrink(x, lambd=0.5):
    return torch.where(x > lambd, x - lambd, torch.where(x < -lambd, x + lambd, x * 0))


@decomposes(aten.hardshrink.default)
def _hardshrink(x, lambd=0.5):
    return x.masked_fill(x.abs() <= lambd, 0)


@decomposes(aten.softshrink_backward.default, aten.hardshrink_backward.default)
def _shrink_backward(grad, x, lambd):
    return grad.masked_fill(x.abs() <= lambd, 0)


# -- losses and norms --------------------------------------------------------------------------


def _reduced(loss, reduction: int):
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


@decomposes(aten.binary_cross_entropy_with_logits.default)
def _bce_with_logits(x, target, weight=None, pos_weight=None, reduction=1):
    likelihood = x.clamp(max=0) - (-x.abs()).exp().log1p()
    if pos_weight is not None:
        likelihood = likelihood * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * x - likelihood
    return _reduced(loss if weight is None else loss * weight, reduction)


@decomposes(aten.soft_margin_loss.default)
def _soft_margin_loss(x, target, reduction=1):
    if torch.broadcast_shapes(x.shape, target.shape) != x.shape:
        return NotImplemented  # torch has the words for it
    return _reduced((-target * x).exp().log1p(), reduction)


@decomposes(aten.soft_margin_loss_backward.default)
def _soft_margin_loss_backward(grad, x, target, reduction):
    # z / (1 + z) for z = exp(-t x)
    inner = -target * (-target * x).sigmoid() * grad
    return inner / x.numel() if reduction == 1 else inner


@decomposes(aten.dist.default)
def _dist(a, b, p=2):
    return torch.linalg.vector_norm(a - b, p)


@decomposes(aten.nansum.default)
def _nansum(x, dim=None, keepdim=False, *, dtype=None):
    if not x.is_floating_point():
        return NotImplemented
    return x.masked_fill(x.isnan(), 0).sum(dim, keepdim, dtype=dtype)


@decomposes(aten._weight_norm_interface.default)
def _weight_norm(v, g, dim=0):
    others = [d for d in range(v.dim()) if d != dim]
    norms = (v * v).sum(others, keepdim=True).sqrt()
    return v * (g / norms), norms


@decomposes(aten._weight_norm_interface_backward.default)
def _weight_norm_backward(grad, v, g, norms, dim):
    others = [d for d in range(v.dim()) if d != dim]
    along = (grad * v).sum(others, keepdim=True) / norms
    return (grad - v * (along / norms)) * (g / norms), along


@decomposes(aten.aminmax.default)
def _aminmax(x, *, dim=None, keepdim=False):
    dims = list(range(x.dim())) if dim is None else [dim]
    return x.amin(dims, keepdim), x.amax(dims, keepdim)


# -- matrices ----------------------------------------------------------------------------------


def _combined(x, product, beta, alpha):
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return (x if beta == 1 else x * beta) + product


@decomposes(aten.addbmm.default)
def _addbmm(x, a, b, *, beta=1, alpha=1):
    return _combined(x, torch.bmm(a, b).sum(0), beta, alpha)


@decomposes(aten.addr.default)
def _addr(x, a, b, *, beta=1, alpha=1):
    return _combined(x, a.unsqueeze(1) * b, beta, alpha)


@decomposes(aten.trace.default)
def _trace(x):
    if x.dim() != 2:
        return NotImplemented  # torch has the words for it
    return x.diagonal().sum()


@decomposes(aten.linalg_cross.default)
def _cross(a, b, *, dim=-1):
    if a.dim() != b.dim() or a.dim() == 0 or a.shape[dim] != 3 or b.shape[dim] != 3:
        return NotImplemented  # torch has the words for it
    a, b = torch.broadcast_tensors(a, b)
    return a.roll(-1, dim) * b.roll(-2, dim) - a.roll(-2, dim) * b.roll(-1, dim)


# -- indices -----------------------------------------------------------------------------------


def _index_like(x, dim: int, index):
    """``index`` along ``dim``, the same in all other dimensions."""
    shape = [1] * x.dim()
    shape[dim] = -1
    sizes = list(x.shape)
    sizes[dim] = index.numel()
    return index.view(shape).expand(sizes)


@decomposes(aten.index_fill.int_Scalar)
def _index_fill(x, dim, index, value):
    return NotImplemented if x.dim() == 0 else x.scatter(dim, _index_like(x, dim, index), value)


@decomposes(aten.index_fill.int_Tensor)
def _index_fill_tensor(x, dim, index, value):
    if x.dim() == 0:
        return NotImplemented
    index = _index_like(x, dim, index)
    return x.scatter(dim, index, value.to(x.dtype).expand(index.shape))


@decomposes(aten.index_copy.default)
def _index_copy(x, dim, index, source):
    if x.dim() == 0 or source.dim() != x.dim():
        return NotImplemented
    return x.scatter(dim, _index_like(x, dim, index), source)
