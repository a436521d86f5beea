"""Operations that the recorder does not record as they are."""

import functools

import torch

from poptorch._base.layout import row_major

aten = torch.ops.aten

# What only gives another name to the same values. It needs no node.
SAME_VALUES = {aten.detach.default, aten.alias.default}

# Torch's rules for fake tensors give another type, size or layout than eager's results have.
WRONG_RULES = {aten.ldexp.Tensor, aten.multilabel_margin_loss_forward.default,
               aten.im2col.default, aten.roll.default, aten.diag_embed.default,
               aten.max_unpool2d.default, aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar,
               aten.isin.Scalar_Tensor, aten.normal.Tensor_Tensor,
               aten.multi_margin_loss.default}

# Where operands differ in memory layout, torch's rules follow other operands than eager does.
_WRONG_LAYOUT_RULES = {aten.copysign.Tensor, aten.xlogy.Tensor, aten.special_xlog1py.default,
                       aten.pow.Scalar, aten.float_power.Scalar,
                       aten.native_dropout_backward.default,
                       aten.max_pool3d_with_indices.default,
                       aten.max_pool3d_with_indices_backward.default,
                       *(getattr(aten, f"{name}_backward").default for name in (
                           "threshold", "softplus", "hardsigmoid", "hardtanh", "hardswish", "logit",
                           "elu", "rrelu_with_noise")),
                       *(getattr(aten, name).default for loss in (
                           "huber_loss", "smooth_l1_loss", "mse_loss", "binary_cross_entropy")
                         for name in (loss, f"{loss}_backward"))}


# Torch's rules give the statistics the type of the images; eager's are float32 with 16-bit images.
_BATCH_NORMS = {aten.native_batch_norm.default, aten._native_batch_norm_legit.default,
                aten._native_batch_norm_legit.no_stats,
                aten._native_batch_norm_legit_functional.default}

# Torch's rules take empty images, which these refuse. Of some a gradient would end the process.
_REFUSING_EMPTY = {aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default,
                   aten.upsample_bilinear2d.default, aten.upsample_bilinear2d.vec,
                   aten.upsample_bicubic2d.default, aten.upsample_bicubic2d.vec,
                   aten.upsample_trilinear3d.default, aten.upsample_trilinear3d.vec,
                   aten.grid_sampler_2d.default}


def has_wrong_rule(func, args) -> bool:
    """Whether the operator itself is asked what it gives: torch's rule for fake tensors differs."""
    if func is aten.index.Tensor:  # the rule lays out the result otherwise
        return all(index is None or index.dtype not in (torch.bool, torch.uint8)
                   for index in args[1])
    if func is aten.nll_loss2d_forward.default:  # the others give one number
        return args[3] == 0 and not are_row_major(args)
    if func in _BATCH_NORMS:
        return args[0].dtype in (torch.float16, torch.bfloat16)
    if func in _REFUSING_EMPTY and args[0].numel() == 0:
        return True
    return func in WRONG_RULES or func in _WRONG_LAYOUT_RULES and not are_row_major(args)


def may_differ_in_strides(func, args) -> bool:
    """Whether torch's rule may give other strides than the operator, for operands of an ambiguous
    layout: with dimensions of one element, or expanded ones.

    Of convolutions of more than one place the rule is exact, and the operator expensive.
    """
    if func is aten.convolution.default and any(size != 1 for size in args[0].shape[2:]):
        return False
    if func is aten.native_group_norm_backward.default and not args[-1][0]:
        return False  # torch 2.13 ends the process if images lie channels-last
    return (_has_rule_in_parts(func) and not are_row_major(args)
            and any(isinstance(x, torch.Tensor) and (1 in x.shape or 0 in x.stride())
                    for x in args))


@functools.cache
def _has_rule_in_parts(func) -> bool:
    return (func.namespace == "aten" and not func._schema.is_mutable and not func.is_view
            and torch.Tag.nondeterministic_seeded not in func.tags and not sizes_by_values(func)
            and func is not aten.convolution_backward.default)


def sizes_by_values(func) -> bool:
    """Whether the sizes of what an operation gives may depend on the values of its operands."""
    return not {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}.isdisjoint(
        func.tags)


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
