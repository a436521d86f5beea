"""The operations of namespace ``poptorch`` that exchange data between replicas.

A group of replicas is ``size`` neighbours, or (``orthogonal``) every n-th replica where there are n
groups. The gradient is that of the sum of what all replicas compute.
"""

import torch

from poptorch._capture.library.layers import define, ops


def _keep_group(ctx, inputs, output):
    _, *ctx.group = inputs


def _all_reduce_gradient(ctx, gradient):
    return ops.all_reduce(gradient, *ctx.group),


define("all_reduce(Tensor x, int size, bool orthogonal) -> Tensor",
       lambda x, size, orthogonal: x.new_empty(x.shape), _keep_group, _all_reduce_gradient)

# The place of the replica in its group, int32 [1]. The tensor only says that there is a capture.
define("place_in_group(Tensor x, int replicas, int size, bool orthogonal) -> Tensor",
       lambda x, replicas, size, orthogonal: x.new_empty(1, dtype=torch.int32))
