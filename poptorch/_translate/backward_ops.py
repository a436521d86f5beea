"""Ops that are part of the backward pass: where a model is in stages, they are not part of the
forward pass of the first one."""

import torch

from poptorch import _C
from poptorch._base.types import ir_dtype


def op(e, name: str, *operands, **attrs):
    """Appends an op of one result and returns that value."""
    return e.plain(name, list(operands), {**attrs, "part": "backward"})[0]


def cast(e, value, dtype: torch.dtype):
    """A value in another type; the value itself where it has that type."""
    name = ir_dtype(dtype)
    return value if value.dtype == name else op(e, "cast", value, dtype=_C.DType(name))
