"""The operations of namespace ``poptorch`` that stand for whole layers in a captured graph.

Each has a schema, a rule for the results' shapes and types, and a formula for its gradient. They
have no implementation for real tensors: the op rows of the same names describe what they compute.
Random ones take a ``salt`` that names the place of the call, and the random state ``rng``; None:
that of the program.
"""

import torch

from poptorch._base.layout import copied_strides, product_strides
from poptorch._base.torch_private import tracing as private
from poptorch._capture.decompose.table import computed_in
from poptorch._capture.library import double_backward
from poptorch._capture.library.saved_for_backward import keep, kept

LIBRARY = torch.library.Library("poptorch", "DEF")
ops = torch.ops.poptorch
_differentiable: set[str] = set()


def define(schema: str, fake, setup_context=None, backward=None) -> None:
    """Declares ``poptorch::<schema>``; without a backward formula it has no gradient. The formula
    gives the gradients of the first operands; the others have none."""
    LIBRARY.define(schema)
    name = f"poptorch::{schema[: schema.index('(')]}"
    torch.library.register_fake(name, fake, lib=LIBRARY)
    if backward is not None:
        _differentiable.add(name)
        setup_context, backward = _none_for_none(setup_context, backward)
        torch.library.register_autograd(
            name, backward, setup_context=setup_context, lib=LIBRARY)


def check_differentiated_forward(recorder, overload) -> None:
    """Raises an Error for an operation of ours that has a gradient: its results get no tangents."""
    if overload.name() in _differentiable:
        raise recorder.error(
            f"[{overload.overloadpacket.__name__}] it is not differentiated forward "
            f"(torch.func.jvp, jacfwd, hessian, torch.autograd.forward_ad). Use torch.func.vjp or "
            f"jacrev, or call it outside.")


def _none_for_none(setup_context, backward) -> tuple:
    """The two functions for an op whose operands get no gradient if the results have none. PyTorch
    would pass zeros instead, and an optimizer would then decay the weights."""

    def keep_all(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.operands = len(inputs)
        if setup_context is not None:
            setup_context(ctx, inputs, output)

    def gradients(ctx, *given):
        found = () if all(g is None for g in given) else backward(ctx, *given)
        return (*found, *[None] * (ctx.operands - len(found)))

    return keep_all, gradients


def statistics_dtype(x: torch.Tensor) -> torch.dtype:
    """The dtype of statistics of ``x``: at least single precision."""
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def empty_copy(x: torch.Tensor) -> torch.Tensor:
    """A tensor with the strides of a copy of ``x``."""
    with private.without_modes():
        strides = copied_strides(x)
    return torch.empty_strided(x.shape, strides, dtype=x.dtype)


def empty_part(x: torch.Tensor) -> torch.Tensor:
    """What stands for a result that does not exist: no elements."""
    return x.new_empty(0)


# -- dropout -----------------------------------------------------------------------------------


def _keep_dropout(ctx, inputs, output):
    _, ctx.p, ctx.salt, rng = inputs
    keep(ctx, rng)


def _dropout_gradient(ctx, gradient):
    # The same op: the mask follows from the salt and the random state.
    return ops.dropout(gradient, ctx.p, ctx.salt, *kept(ctx)),


def _dropout(x, p, salt, rng=None):
    with private.without_modes():
        strides = product_strides(x)  # of x and its mask
    return torch.empty_strided(x.shape, strides, dtype=x.dtype)


define("dropout(Tensor x, float p, int salt, Tensor? rng=None) -> Tensor", _dropout, _keep_dropout,
       _dropout_gradient)
define("random_state() -> Tensor", lambda: torch.empty(4, dtype=torch.int32))
# Operations after it read this random state in place of the program's.
define("use_random_state(Tensor state) -> Tensor", torch.empty_like)


# -- batch norm --------------------------------------------------------------------------------


def normed_format(x) -> torch.memory_format:
    """The memory format of what is normed over the batch. Of several that ``x`` has, eager takes
    row-major first, then images."""
    images = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if x.is_contiguous():
        return torch.contiguous_format
    if images is not None and x.is_contiguous(memory_format=images):
        return images
    return private.suggest_memory_format(x)


def _normed(x):
    return torch.empty_like(x, memory_format=normed_format(x))


def _batch_norm(x, weight, bias, running_mean, running_var, momentum, eps):
    statistics = x.new_empty(x.shape[1], dtype=statistics_dtype(x))
    running = [empty_part(x) if r is None else torch.empty_like(r)
               for r in (running_mean, running_var)]
    return _normed(x), statistics, torch.empty_like(statistics), *running


def _keep_batch_norm(ctx, inputs, output):
    ctx.mark_non_differentiable(*output[1:])
    ctx.eps = inputs[6]
    keep(ctx, inputs[0], inputs[1], output[1], output[2])


def _batch_norm_gradient(ctx, gradient, *others):
    x, weight, mean, invstd = kept(ctx)
    if torch.is_grad_enabled():
        return _norm_gradients(ctx, gradient, x, weight)
    return _wanted(ctx, ops.batch_norm_backward(gradient, x, weight, mean, invstd, True))


def _norm_gradients(ctx, gradient, x, weight, known=None) -> list:
    """Those that can be differentiated; mean and deviation^-1 are those of ``x`` unless known."""
    sizes = (1, -1, *[1] * (x.dim() - 2))
    dims = [dim for dim in range(x.dim()) if dim != 1]

    def normed(x, weight):
        mean, invstd = known or _statistics(x.to(computed_in(x.dtype)), dims, ctx.eps)
        out = (x - mean.view(sizes)) * invstd.view(sizes)
        return (out if weight is None else out * weight.view(sizes)).to(gradient.dtype),

    dx, dweight = double_backward.differentiable(normed, (x, weight), ctx.needs_input_grad[:2],
                                                 (gradient,))
    dbias = None
    if ctx.needs_input_grad[2]:
        dbias = gradient.sum(dims, dtype=None if weight is None else weight.dtype)
    return [dx, dweight, dbias]


def _statistics(x, dims, eps):
    var, mean = torch.var_mean(x, dims, correction=0)
    return mean, torch.rsqrt(var + eps)


def _wanted(ctx, gradients) -> list:
    """Only those gradients for which there is an input that takes one."""
    return [g if needed else None for g, needed in zip(gradients, ctx.needs_input_grad)]


define("batch_norm(Tensor x, Tensor? weight, Tensor? bias, Tensor? running_mean, "
       "Tensor? running_var, float momentum, float eps) "
       "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
       _batch_norm, _keep_batch_norm, _batch_norm_gradient)


def _keep_inference(ctx, inputs, output):
    x, weight, _, mean, var, ctx.eps = inputs
    keep(ctx, x, weight, mean, var)


def _inference_gradient(ctx, gradient):
    x, weight, mean, var = kept(ctx)
    invstd = torch.rsqrt(var + ctx.eps)
    if torch.is_grad_enabled():
        return _norm_gradients(ctx, gradient, x, weight, (mean, invstd))
    return _wanted(ctx, ops.batch_norm_backward(gradient, x, weight, mean, invstd, False))


define("batch_norm_inference(Tensor x, Tensor? weight, Tensor? bias, Tensor running_mean, "
       "Tensor running_var, float eps) -> Tensor",
       lambda x, *others: _normed(x), _keep_inference, _inference_gradient)


def _batch_norm_backward(grad, x, weight, mean, invstd, training):
    parameters = x.new_empty(x.shape[1]) if weight is None else torch.empty_like(weight)
    return _normed(x), parameters, torch.empty_like(parameters)


define("batch_norm_backward(Tensor grad, Tensor x, Tensor? weight, Tensor mean, Tensor invstd, "
       "bool training) -> (Tensor, Tensor, Tensor)", _batch_norm_backward)


# -- attention ---------------------------------------------------------------------------------


def _attention(q, k, v, mask, dropout_p, is_causal, scale, salt, like_query, rng=None):
    rows = q.shape[:-1]
    out = empty_copy(q) if like_query else q.new_empty(*rows, v.shape[-1])
    return out, q.new_empty(rows, dtype=statistics_dtype(q))


def _keep_attention(ctx, inputs, output):
    ctx.mark_non_differentiable(output[1])
    keep(ctx, *inputs[:4], output[1], inputs[9])
    ctx.settings = inputs[4:8]


def _attention_gradient(ctx, gradient, _):
    *operands, logsumexp, rng = kept(ctx)
    if torch.is_grad_enabled():
        return double_backward.differentiable(
            lambda *operands: (attended(*operands, *ctx.settings, rng),), operands,
            ctx.needs_input_grad[:4], (gradient,))
    return _wanted(ctx, ops.attention_backward(gradient, *operands, logsumexp, *ctx.settings,
                                               rng))


def attended(q, k, v, mask, dropout_p, is_causal, scale, salt, rng=None):
    """Attention by operations on the scores."""
    dtype, wide = q.dtype, computed_in(q.dtype)
    q, k, v = (t.to(wide) for t in (q, k, v))
    scores = torch.matmul(q, k.transpose(-2, -1)) * scale
    if is_causal:
        mask = scores.new_ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores + mask.to(wide) if mask.dtype is not torch.bool else \
            scores.masked_fill(~mask, -torch.inf)
    reads = (scores != -torch.inf).any(-1, keepdim=True)  # a row that sees nothing gives zeros
    weights = torch.softmax(scores.masked_fill(~reads, 0.0), dim=-1) * reads
    if dropout_p > 0.0:
        weights = ops.dropout(weights, dropout_p, salt, rng)
    return torch.matmul(weights, v).to(dtype)


_SETTINGS = "float dropout_p, bool is_causal, float scale, int salt"
define(f"attention(Tensor q, Tensor k, Tensor v, Tensor? mask, {_SETTINGS}, "
       "bool like_query, Tensor? rng=None) -> (Tensor, Tensor)", _attention, _keep_attention,
       _attention_gradient)
define("attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? mask, "
       f"Tensor logsumexp, {_SETTINGS}, Tensor? rng=None) -> (Tensor, Tensor, Tensor)",
       lambda grad, q, k, v, *others: tuple(x.new_empty(x.shape) for x in (q, k, v)))
