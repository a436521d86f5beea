"""Rules for functions of PopTorch's own."""

import torch

from poptorch._base.types import ir_dtype
from poptorch._translate.rules.registry import register
from poptorch.errors import Error


@register("poptorch::host_call", "poptorch::host_call_backward")
def _host_call(e, node, inputs, site):
    types = [(ir_dtype(val.dtype), list(val.shape)) for val in node.meta["val"]]
    return e.ops("host_call", inputs, {"overload": node.target._schema.name, "site": site}, types)


@register("poptorch::all_reduce")
def _all_reduce(e, node, x, size, orthogonal):
    if e.is_conditional:
        raise Error(f"[ai.graphcore] tensors are exchanged between {size} replicas inside of a "
                    f"branch or a loop on a condition, which not all of them may come to. Exchange "
                    f"them outside of it.")
    return e.op("all_reduce", x, op="sum", group_size=size, orthogonal=orthogonal)


@register("poptorch::place_in_group")
def _place_in_group(e, node, x, replicas, size, orthogonal):
    number = e.slice(e.rng(), 0, 2, 3)  # seed of two words, replica, counter
    if orthogonal:
        return e.op("div", number, e.constant(replicas // size, torch.int32),
                    rounding_mode="trunc")
    return e.op("remainder", number, e.constant(size, torch.int32))
