"""The operations of namespace ``poptorch`` for bags of embeddings."""

from poptorch._capture.library import double_backward
from poptorch._capture.library.layers import define, empty_part, ops
from poptorch._capture.library.saved_for_backward import keep, kept

_BAGS = "Tensor indices, Tensor? offsets, Tensor? per_sample_weights, str mode, " \
        "int padding_idx, bool include_last_offset"


def _bag(weight, indices, offsets, per_sample_weights, mode, padding_idx, include_last_offset):
    bags = indices.shape[0] if offsets is None else offsets.shape[0] - include_last_offset
    return weight.new_empty(bags, weight.shape[1])


def _keep_bag(ctx, inputs, output):
    weight, indices, offsets, samples, *ctx.settings = inputs
    keep(ctx, weight, indices, offsets, samples)


def _bag_gradient(ctx, gradient):
    dweight, dsamples = ops.embedding_bag_backward(gradient, *kept(ctx), *ctx.settings)
    return dweight, None, None, dsamples if ctx.needs_input_grad[3] else None


def _bag_backward(grad_output, weight, indices, offsets, per_sample_weights, mode, padding_idx,
                  include_last_offset):
    samples = empty_part(weight) if per_sample_weights is None \
        else per_sample_weights.new_empty(per_sample_weights.shape)
    return weight.new_empty(weight.shape), samples


define(f"embedding_bag(Tensor weight, {_BAGS}) -> Tensor", _bag, _keep_bag, _bag_gradient)
define(f"embedding_bag_backward(Tensor grad_output, Tensor weight, {_BAGS}) -> (Tensor, Tensor)",
       _bag_backward, backward=double_backward.refused("embedding_bag"))
