"""The operation of namespace ``poptorch`` for a matrix product in parts.

``cut`` is the number of the dimension that is cut: 0, 1 or 2 for m, n or p of [m, n] @ [n, p].
"""

from poptorch._capture.library.layers import define, ops
from poptorch._capture.library.saved_for_backward import keep, kept

# What is cut in the products of the gradient, grad [m, p] @ rhs.mT [p, n] and
# lhs.mT [n, m] @ grad [m, p]: the same dimension, which has another place there.
_OF_GRADIENT = {0: (0, 1), 1: (2, 0), 2: (1, 2)}


def _product(lhs, rhs, cut, factor, keep_precision):
    if lhs.dtype is not rhs.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {lhs.dtype} != "
                           f"{rhs.dtype}")
    return lhs.new_empty(*lhs.shape[:-1], rhs.shape[-1])


def _keep_product(ctx, inputs, output):
    lhs, rhs, *ctx.settings = inputs
    keep(ctx, lhs, rhs)


def _gradient(ctx, gradient):
    lhs, rhs = kept(ctx)
    cut, *settings = ctx.settings
    of_lhs, of_rhs = _OF_GRADIENT[cut]
    needs_lhs, needs_rhs, *_ = ctx.needs_input_grad
    return (ops.serialized_matmul(gradient, rhs.mT, of_lhs, *settings) if needs_lhs else None,
            ops.serialized_matmul(lhs.mT, gradient, of_rhs, *settings) if needs_rhs else None)


define("serialized_matmul(Tensor lhs, Tensor rhs, int cut, int factor, bool keep_precision) "
       "-> Tensor", _product, _keep_product, _gradient)
