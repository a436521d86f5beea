"""What the recorder knows of operations that it does not record as they are."""

import torch

aten = torch.ops.aten

# What only gives another name to the same values. It needs no node.
SAME_VALUES = {aten.detach.default, aten.alias.default}

# In-place operations that change no value, only how the tensor looks at it: the tensor gets the
# node of the view.
METADATA = {
    aten.squeeze_.default: aten.squeeze.default,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims,
    aten.unsqueeze_.default: aten.unsqueeze.default,
    aten.t_.default: aten.t.default,
    aten.transpose_.default: aten.transpose.int,
}


def steps(sizes, strides) -> list[int]:
    """The strides that matter: of dimensions with more than one index."""
    return [step for size, step in zip(sizes, strides) if size > 1]


def cast(dtype: torch.dtype, value):
    """A tensor in another type; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.dtype is not dtype:
        return aten._to_copy.default(value, dtype=dtype)
    return value
