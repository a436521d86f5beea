"""What the recorder knows of operations that it does not record as they are."""

import torch

aten = torch.ops.aten

# What only gives another name to the same values. It needs no node.
SAME_VALUES = {aten.detach.default, aten.alias.default}

# Torch's rules for fake tensors tell another type, size or layout than eager's results have.
WRONG_RULES = {aten.ldexp.Tensor, aten.multilabel_margin_loss_forward.default,
               aten.im2col.default, aten.roll.default}



def has_wrong_rule(func, args) -> bool:
    """Whether the operator itself is asked what it gives: torch's rule for fake tensors differs.

    Args:
        func: the overload.
        args: its operands.
    """
    if func is aten.index.Tensor:  # the rule lays out the result otherwise
        return all(index is None or index.dtype not in (torch.bool, torch.uint8)
                   for index in args[1])
    return func in WRONG_RULES


# They take statistics of the forward pass, which have other types in torch's rules for fake tensors
# than eager's have.
OTHER_STATISTICS = {aten.native_layer_norm_backward.default,
                    aten.native_group_norm_backward.default}


def steps(sizes, strides) -> list[int]:
    """The strides that matter: of dimensions with more than one index."""
    return [step for size, step in zip(sizes, strides) if size > 1]


def cast(dtype: torch.dtype, value):
    """A tensor in another type; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.dtype is not dtype:
        return aten._to_copy.default(value, dtype=dtype)
    return value
