"""Functions in other words: torch's own look at values first, or decompose less well."""

import math

import torch
import torch.nn.functional as F

from poptorch._base.layout import as_row_major
from poptorch._base.torch_private import tracing as private
from poptorch._capture.decompose.table import computed_in
from poptorch._capture.library import (  # noqa: F401  (declare operations)
    embedding,
    products,
    without_gradient,
)
from poptorch._capture.library.layers import ops

# -- losses ------------------------------------------------------------------------------------


def _gaussian_nll(capture, func, input, target, var, *, full, eps, reduction):
    """With torch's test that no variance is negative as a part of the program."""
    if isinstance(var, (int, float)):
        var = torch.full_like(input, var)
    if var.shape != input.shape and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    if not capture.recorder.checks.require(
            (var < 0).any().logical_not(), "[gaussian_nll_loss] var has a negative element. Pass "
            "variances, for instance by torch.exp or softplus."):
        return NotImplemented  # torch has the words for it
    # The gradient of a variance passes where it is clamped, as in torch.
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, reduction)


def _binary_cross_entropy(capture, func, *args, **kwargs):
    """The kernel checks the input; PyTorch's checks the target as well."""
    # PyTorch names the first argument `input` or, in the operator, `self`.
    target = args[1] if len(args) > 1 else kwargs.get("target")
    words = ("[binary_cross_entropy] an element of the target is not from 0 to 1. Give "
             "probabilities or classes 0 and 1.")
    if isinstance(target, torch.Tensor) and not target.is_complex() and \
            not capture.recorder.checks.require(((target >= 0) & (target <= 1)).all(), words):
        raise capture.recorder.error(words)
    return NotImplemented


def _reduced(loss, reduction: str):
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _regression(capture, func, input, target, *, reduction, **options):
    """A loss of tensors of different types, and without elements: torch's own gradient divides by
    their number while it is recorded."""
    if not isinstance(input, torch.Tensor) or not isinstance(target, torch.Tensor):
        return NotImplemented  # torch has the words for it
    dtype = input.dtype
    if func is not F.huber_loss:
        dtype = torch.promote_types(input.dtype, target.dtype)
        input, target = input.to(dtype), target.to(dtype)
    is_plain = all(options.get(key) is None for key in ("weight", "size_average", "reduce"))
    if input.numel() or not is_plain or input.shape != target.shape or reduction != "mean" \
            or not input.is_floating_point() or not target.is_floating_point():
        return func(input, target, reduction=reduction, **options)
    return (input - target).mean().to(dtype)


# -- tables ------------------------------------------------------------------------------------


def _bincount(capture, func, input, weights=None, minlength=0):
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


def _embedding_bag(capture, func, input, weight, offsets=None, max_norm=None, norm_type=2.0,
                   scale_grad_by_freq=False, mode="mean", sparse=False, per_sample_weights=None,
                   include_last_offset=False, padding_idx=None):
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


def _with_dense_gradient(position: int):
    """A function whose argument ``sparse``, at a position, says how the gradient of a table is
    stored; the device has dense tensors, and the numbers are the same."""
    def call(capture, func, /, *args, sparse=False, **kwargs):
        return func(*args[:position], *[False] * (len(args) > position), *args[position + 1:],
                    **kwargs)

    return call


def _one_hot(capture, func, tensor, num_classes=-1):
    """By a scatter, which refuses classes out of range as eager does; torch's rule for fake tensors
    has nothing for them but zeros."""
    if tensor.dtype is not torch.int64 or num_classes < 1:
        return NotImplemented
    zeros = tensor.new_zeros(*tensor.shape, num_classes)
    return zeros.scatter(-1, tensor.unsqueeze(-1), 1)


# -- views and grids ---------------------------------------------------------------------------


def _unfold(capture, func, x, dimension, size, step):
    """Windows that do not overlap, as plain views."""
    if size != step or x.dim() == 0 or x.shape[dimension] < size:
        return NotImplemented
    dim = dimension % x.dim()
    count, strides = x.shape[dim] // size, [*x.stride(), x.stride(dim)]
    strides[dim] *= step
    out = x.narrow(dim, 0, count * size).unflatten(dim, (count, size)).movedim(dim + 1, -1)
    # Those of dimensions of one element may be other ones.
    return out if list(out.stride()) == strides else NotImplemented


def _affine_grid(capture, func, theta, size, align_corners):
    """Where a size is 1, torch's own gradient makes a tensor of one number unseen."""
    if 1 not in size[2:] or theta.shape != (size[0], len(size) - 2, len(size) - 1):
        return NotImplemented
    decomposed = private.decomposition_table[torch.ops.aten.affine_grid_generator.default]
    return decomposed(theta, list(size), align_corners)


def _combinations(capture, func, input, r=2, with_replacement=False):
    """Torch selects by a mask, so that the number of rows is known at run time only."""
    if input.dim() != 1 or r < 1:
        return NotImplemented
    with private.without_modes():
        places = torch.combinations(torch.arange(len(input)), r, with_replacement)
    return input[places]


def _index_fill(capture, func, input, dim, index, value):
    """Torch's gradient of a value finds the distinct positions. Their number is known only when the
    program runs."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad or value.dim() \
            or value.dtype is not input.dtype:
        return NotImplemented
    sizes, length = [1] * input.dim(), 1
    if input.dim():
        sizes[dim] = length = input.shape[dim]
    is_filled = torch.zeros(length, dtype=torch.bool).index_fill(0, index, True)
    return torch.where(is_filled.view(sizes), value, input)


def _max_pool1d(capture, func, /, *args, **kwargs):
    """In eager a result without a gradient is row-major; one with a gradient lies as those of
    images do, as torch gives it for fake tensors."""
    out = func(*args, **kwargs)
    return out if out.requires_grad else as_row_major(out)


def _hash_tensor(capture, func, /, *args, **kwargs):
    raise capture.recorder.error("[hash_tensor] the result is an unsigned number of 64 bits, which "
                                 "the device does not have. Compute it outside of forward.")


def _cov(capture, func, input, *, correction=1, fweights=None, aweights=None):
    """With the tests of the weights as a part of the program."""
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    given = {"fweights": fweights, "aweights": aweights}
    given = {name: weights for name, weights in given.items() if weights is not None}
    if not given or rows.dim() != 2 or any(
            weights.dim() > 1 or weights.numel() != rows.shape[1]
            or weights.is_floating_point() != (name == "aweights")
            for name, weights in given.items()):
        return NotImplemented  # torch has the words for it
    require, w = capture.recorder.checks.require, math.prod(given.values())
    total = w.sum()
    required = [((weights >= 0).all(), f"{name} has a negative element. Pass positive weights.")
                for name, weights in given.items()]
    required.append((total != 0, "the sum of the weights is zero. Pass positive weights."))
    if not all(require(condition, f"[cov] {words}") for condition, words in required):
        return NotImplemented
    factor = total - correction * (1 if aweights is None else (w * aweights).sum() / total)
    factor = torch.where(factor <= 0, 0, factor)
    rows = rows - ((rows * w).sum(1) / total).unsqueeze(1)
    return (rows @ (rows * w).t().conj() / factor).squeeze()


HANDLERS = {
    **dict.fromkeys((torch.cov, torch.Tensor.cov), _cov),
    **dict.fromkeys((F.mse_loss, F.smooth_l1_loss, F.huber_loss), _regression),
    F.gaussian_nll_loss: _gaussian_nll,
    **dict.fromkeys((F.binary_cross_entropy, torch.ops.aten.binary_cross_entropy.default),
                    _binary_cross_entropy),
    **dict.fromkeys((torch.bincount, torch.Tensor.bincount), _bincount),
    F.embedding: _with_dense_gradient(6),
    torch.embedding: _with_dense_gradient(4),
    F.embedding_bag: _embedding_bag,
    F.one_hot: _one_hot,
    torch.Tensor.unfold: _unfold,
    torch.affine_grid_generator: _affine_grid,
    torch.combinations: _combinations,
    **dict.fromkeys((torch.index_fill, torch.Tensor.index_fill), _index_fill),
    **dict.fromkeys((F.max_pool1d, torch.max_pool1d, torch.ops.aten.max_pool1d.default),
                    _max_pool1d),
    torch.hash_tensor: _hash_tensor,
}
