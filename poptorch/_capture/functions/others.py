"""Functions in other words: torch's own look at values first, or decompose less well."""

import inspect
import math

import torch
import torch.nn.functional as F

from poptorch._base.layout import as_row_major
from poptorch._base.torch_private import tracing as private
from poptorch._capture.decompose.table import computed_in
from poptorch._capture.functions.autocast import widened
from poptorch._capture.library import counts, embedding  # noqa: F401  (declare operations)
from poptorch._capture.library import products as library_products  # noqa: F401
from poptorch._capture.library.layers import ops
from poptorch._capture.library.saved_for_backward import keep, kept


def gaussian_nll(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """``F.gaussian_nll_loss`` without its test that no variance is negative."""
    if isinstance(var, (int, float)):
        var = torch.full_like(input, var)
    if var.shape != input.shape and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    # The gradient of a variance passes where it is clamped, as in torch.
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _bincount(capture, func, args, kwargs):
    def call(input, weights=None, minlength=0):
        if minlength < 1:
            raise capture.recorder.error(
                f"[bincount] minlength is {minlength}, but the length of the result must be known "
                f"when the model is compiled. Pass minlength: one more than the largest number.")
        if input.dim() != 1 or input.is_floating_point() or input.dtype is torch.bool \
                or weights is not None and weights.shape != input.shape:
            return NotImplemented  # torch has the words for it
        if weights is not None:
            weights = weights.detach()
            weights = weights if weights.dtype is torch.float32 else weights.double()
        return ops.bincount(input.long(), weights, minlength)

    return call(*args, **kwargs)


def _embedding_bag(capture, func, args, kwargs):
    def call(input, weight, offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
             mode="mean", sparse=False, per_sample_weights=None, include_last_offset=False,
             padding_idx=None):
        if input.dim() != (2 if offsets is None else 1):
            return NotImplemented
        if max_norm is not None:
            with torch.no_grad():
                torch.embedding_renorm_(weight.detach(), input, max_norm, norm_type)
        is_trained = torch.is_grad_enabled() and weight.requires_grad
        if scale_grad_by_freq and (is_trained or mode == "max"):  # max is refused by torch
            # 16-bit numbers in single precision, as eager adds them up.
            out = func(input, weight.to(computed_in(weight.dtype)), offsets, None, 2.0, True, mode,
                       False, per_sample_weights, include_last_offset, padding_idx)
            return out.to(weight.dtype)
        padding = -1 if padding_idx is None else padding_idx % len(weight)
        return ops.embedding_bag(weight, input, offsets, per_sample_weights, mode, padding,
                                 include_last_offset)

    return call(*args, **kwargs)


def _with_dense_gradient(position: int):
    """A function whose argument ``sparse``, at a position, says how the gradient of a table is
    stored; the device has dense tensors, and the numbers are the same."""
    def call(capture, func, args, kwargs):
        args = (*args[:position], False, *args[position + 1:]) if len(args) > position else args
        return func(*args, **{name: value for name, value in kwargs.items() if name != "sparse"})

    return call


class _Gated(torch.autograd.Function):
    """Numbers where a gate is open, and 0 elsewhere: what 0 times an infinite gradient gives is
    NaN, as in eager."""

    @staticmethod
    def forward(ctx, x, gate):
        ctx.set_materialize_grads(False)
        keep(ctx, gate)
        return torch.where(gate, x, 0.0)

    @staticmethod
    def backward(ctx, gradient):
        gate, = kept(ctx)
        return None if gradient is None else gradient * gate, None


def multi_margin(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None,
                 reduction="mean"):
    """``F.multi_margin_loss`` by elementwise operations."""
    if p not in (1, 2):
        raise ValueError(f"p is {p}, but 1 or 2 is needed")
    input, weight = widened(input), widened(weight)
    if input.dim() < 2:
        input, target = input.reshape(1, -1), target.reshape(1)
        reduction = "sum" if reduction == "none" else reduction
    target = target.unsqueeze(1)
    cost = margin - input.gather(1, target) + input
    others = torch.arange(input.shape[1]) != target
    cost = _Gated.apply(cost, (cost > 0) & others)  # NaN costs nothing
    cost = cost if p == 1 else cost * cost
    if weight is not None:
        cost = cost * weight[target]
    loss = cost.sum(1) / input.shape[1]
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _loss(function):
    def handler(capture, func, args, kwargs):
        out = function(*args, **kwargs)
        capture.losses.mark_standard(out, func, args, kwargs)
        return out

    return handler


def _bilinear(capture, func, args, kwargs):
    def call(input1, input2, weight, bias=None):
        features, first, second = weight.shape
        if input1.shape[-1] != first or input2.shape[-1] != second:
            return NotImplemented
        if not input1.dtype is input2.dtype is weight.dtype:
            return NotImplemented  # torch has the words for it
        table = weight.transpose(0, 1).reshape(first, features * second)
        with torch.autocast("cpu", enabled=False):  # its result and gradients have their own type
            rows = (input1 @ table).unflatten(-1, (features, second))
            out = (rows @ input2.unsqueeze(-1)).squeeze(-1)
            return out if bias is None else out + bias

    return call(*args, **kwargs)


def _unfold(capture, func, args, kwargs):
    def call(x, dimension, size, step):
        if size != step or x.dim() == 0 or x.shape[dimension] < size:
            return NotImplemented
        # Windows that do not overlap are plain views.
        dim = dimension % x.dim()
        count, strides = x.shape[dim] // size, [*x.stride(), x.stride(dim)]
        strides[dim] *= step
        out = x.narrow(dim, 0, count * size).unflatten(dim, (count, size)).movedim(dim + 1, -1)
        # Those of dimensions of one element may be other ones.
        return out if list(out.stride()) == strides else NotImplemented

    return call(*args, **kwargs)


def regression(function):
    """``function``, a loss of two tensors, of tensors of different types and without elements.

    Torch's own gradient divides by the number of elements while it is recorded.
    """
    signature = inspect.signature(function)

    def call(*args, **kwargs):
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # Python has the words for it
        given.apply_defaults()
        named = given.arguments
        x, target = named["input"], named["target"]
        if not isinstance(x, torch.Tensor) or not isinstance(target, torch.Tensor):
            return function(*args, **kwargs)  # torch has the words for it
        wide = torch.promote_types(x.dtype, target.dtype)
        if x.dtype is not target.dtype and function is not F.huber_loss:
            named["input"], named["target"] = x.to(wide), target.to(wide)
        is_plain = all(named.get(key) is None for key in ("weight", "size_average", "reduce"))
        if x.numel() or not is_plain or x.shape != target.shape or not x.is_floating_point() \
                or named["reduction"] != "mean" or not target.is_floating_point():
            return function(*given.args, **given.kwargs)
        return (named["input"] - named["target"]).mean().to(
            x.dtype if function is F.huber_loss else wide)

    return call


def _affine_grid(capture, func, args, kwargs):
    """Torch's own gradient makes a tensor of one number unseen, where a size is 1."""
    def call(theta, size, align_corners):
        spatial = list(size[2:])
        if theta.dim() != 3 or 1 not in spatial or len(spatial) not in (2, 3) \
                or theta.shape != (size[0], len(spatial), len(spatial) + 1):
            return NotImplemented
        axes = [_centers(n, align_corners, theta.dtype) for n in spatial]
        grid = [*reversed(torch.meshgrid(*axes, indexing="ij")), theta.new_ones(spatial)]
        base = torch.stack(grid, -1).reshape(1, -1, len(grid)).expand(size[0], -1, -1)
        return (base @ theta.transpose(1, 2)).reshape(size[0], *spatial, len(spatial))

    return call(*args, **kwargs)


def _centers(n: int, align_corners: bool, dtype: torch.dtype):
    """The places of ``n`` pixels, of which the outermost lie at -1 and 1, or their edges do."""
    if n == 1:
        return torch.zeros(1, dtype=dtype)
    places = torch.linspace(-1, 1, n, dtype=dtype)
    return places if align_corners else places * (n - 1) / n


def _cov(capture, func, args, kwargs):
    """``torch.cov`` without its tests of the values of weights."""
    def call(input, *, correction=1, fweights=None, aweights=None):
        count = input.shape[-1] if input.dim() else 1
        weights = [w for w in (fweights, aweights) if w is not None]
        if input.dim() > 2 or input.numel() == 0 or input.dtype is torch.bool \
                or any(w.shape != (count,) or w.dtype is torch.bool for w in weights) \
                or fweights is not None and fweights.is_floating_point() \
                or aweights is not None and not aweights.is_floating_point():
            return NotImplemented  # torch has the words for it
        x = input if input.dim() == 2 else input.reshape(1, -1)
        return _weighted_cov(x, correction, weights, aweights)

    return call(*args, **kwargs)


def _weighted_cov(x, correction: int, weights: list, aweights):
    if weights:
        weight = math.prod(weights)
        total = weight.sum()
        center = x - ((x * weight).sum(1) / total).unsqueeze(1)
        less = correction
        if aweights is not None and correction:
            less = correction * (weight * aweights).sum() / total
        norm, other = (total - less).clamp(min=0), center * weight
    else:
        other = center = x - (x.sum(1) / x.shape[1]).unsqueeze(1)
        norm = max(x.shape[1] - correction, 0)
    other = other.to(center.dtype)
    return ((center @ other.t()) / norm).squeeze()


def _corrcoef(capture, func, args, kwargs):
    def call(input):
        c = _cov(capture, func, (input,), {})
        if c is NotImplemented or c.dim() == 0:
            return c if c is NotImplemented else c / c
        deviation = c.diagonal().sqrt()
        return (c / deviation.unsqueeze(1) / deviation).clamp(-1, 1)

    return call(*args, **kwargs)


def _combinations(capture, func, args, kwargs):
    """Torch selects by a mask, so that the number of rows is known at run time only."""
    def call(input, r=2, with_replacement=False):
        if input.dim() != 1 or r < 1:
            return NotImplemented
        with private.without_modes():
            places = torch.combinations(torch.arange(len(input)), r, with_replacement)
        return input[places]

    return call(*args, **kwargs)


def _one_hot(capture, func, args, kwargs):
    """By a scatter, which refuses classes out of range as eager does; torch's rule for fake tensors
    has nothing for them but zeros."""
    def call(tensor, num_classes=-1):
        if tensor.dtype is not torch.int64 or num_classes < 1:
            return func(tensor, num_classes)
        zeros = tensor.new_zeros(*tensor.shape, num_classes)
        return zeros.scatter(-1, tensor.unsqueeze(-1), 1)

    return call(*args, **kwargs)


def _max_pool1d(capture, func, args, kwargs):
    """In eager a result without a gradient is row-major; one with a gradient lies as those of
    images do, as torch gives it for fake tensors."""
    out = func(*args, **kwargs)
    return out if out.requires_grad else as_row_major(out)


def _hash_tensor(capture, func, args, kwargs):
    raise capture.recorder.error("[hash_tensor] the result is an unsigned number of 64 bits, which "
                                 "the device does not have. Compute it outside of forward.")


HANDLERS = {
    **{function: _loss(regression(function)) for function in
       (F.mse_loss, F.smooth_l1_loss, F.huber_loss)},
    torch.affine_grid_generator: _affine_grid,
    torch.cov: _cov,
    torch.Tensor.cov: _cov,
    torch.combinations: _combinations,
    torch.corrcoef: _corrcoef,
    torch.Tensor.corrcoef: _corrcoef,
    F.gaussian_nll_loss: _loss(gaussian_nll),
    F.multi_margin_loss: _loss(multi_margin),
    F.bilinear: _bilinear,
    F.max_pool1d: _max_pool1d,
    torch.max_pool1d: _max_pool1d,
    torch.ops.aten.max_pool1d.default: _max_pool1d,
    F.one_hot: _one_hot,
    F.embedding: _with_dense_gradient(6),
    torch.embedding: _with_dense_gradient(4),
    F.embedding_bag: _embedding_bag,
    torch.Tensor.bincount: _bincount,
    torch.hash_tensor: _hash_tensor,
    torch.Tensor.unfold: _unfold,
    torch.bincount: _bincount,
}
