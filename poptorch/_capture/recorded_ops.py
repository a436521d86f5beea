"""Operations that the recorder does not record as they are."""

import torch

from poptorch._layout import row_major

aten = torch.ops.aten

# What only gives another name to the same values. It needs no node.
SAME_VALUES = {aten.detach.default, aten.alias.default}

# Torch's rules for fake tensors give another type, size or layout than eager's results have.
WRONG_RULES = {aten.ldexp.Tensor, aten.multilabel_margin_loss_forward.default,
               aten.im2col.default, aten.roll.default, aten.diag_embed.default,
               aten.max_unpool2d.default}

# Torch's rules go by other operands than eager does, where these lie in memory in several ways.
_WRONG_LAYOUT_RULES = {aten.copysign.Tensor, aten.xlogy.Tensor, aten.special_xlog1py.default,
                       aten.pow.Scalar, aten.float_power.Scalar,
                       aten.native_dropout_backward.default,
                       *(getattr(aten, f"{name}_backward").default for name in (
                           "threshold", "softplus", "hardsigmoid", "hardtanh", "hardswish", "logit",
                           "elu")),
                       *(getattr(aten, name).default for loss in (
                           "huber_loss", "smooth_l1_loss", "mse_loss", "binary_cross_entropy")
                         for name in (loss, f"{loss}_backward"))}

# Their results lie as their operand does; operations that are element by element have a tag.
_LIKE_OPERAND = {aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default,
                 aten.full_like.default, aten.flip.default, aten.hardswish.default,
                 aten._softmax.default, aten._log_softmax.default, aten.triu.default,
                 aten.tril.default, aten.sort.default, aten.sort.stable, aten.renorm.default,
                 aten._softmax_backward_data.default, aten._log_softmax_backward_data.default}


def has_wrong_rule(func, args) -> bool:
    """Whether the operator itself is asked what it gives: torch's rule for fake tensors differs.

    Args:
        func: the overload.
        args: its operands.
    """
    if func is aten.index.Tensor:  # the rule lays out the result otherwise
        return all(index is None or index.dtype not in (torch.bool, torch.uint8)
                   for index in args[1])
    return (func in WRONG_RULES or func in _WRONG_LAYOUT_RULES and not are_row_major(args)
            or _may_differ_in_strides(func, args))


def _may_differ_in_strides(func, args) -> bool:
    """Whether torch's rule may give other strides for operands whose layout is ambiguous.

    These have dimensions of one element, by the strides of which convolutions choose the layout of
    their results, or expanded ones: rules that are made of several operations find another order.
    """
    is_like_operand = not func._schema.is_mutable and (
        func in _LIKE_OPERAND or torch.Tag.pointwise in func.tags
        and torch.Tag.nondeterministic_seeded not in func.tags)
    return (is_like_operand and not are_row_major(args)
            and any(isinstance(x, torch.Tensor) and (1 in x.shape or 0 in x.stride())
                    for x in args))


def are_row_major(operands) -> bool:
    """Whether all tensors have elements and are row-major, also by the strides of dimensions of one
    element. For such operands torch's rules for fake tensors give results the layout of eager's."""
    return all(x.numel() and x.stride() == row_major(x.shape)
               for x in operands if isinstance(x, torch.Tensor))


# They take statistics of the forward pass, which have other types in torch's rules for fake tensors
# than eager's have.
OTHER_STATISTICS = {aten.native_layer_norm_backward.default,
                    aten.native_group_norm_backward.default}


def cast(dtype: torch.dtype, value):
    """A tensor in another type; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.dtype is not dtype:
        return aten._to_copy.default(value, dtype=dtype)
    return value
