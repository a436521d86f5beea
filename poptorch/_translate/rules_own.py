"""Rules for functions of PopTorch's own."""

from poptorch._translate.registry import Rules
from poptorch._types import ir_dtype

RULES = Rules()


@RULES("poptorch::host_call", "poptorch::host_call_backward")
def _host_call(e, node, inputs, site):
    types = [(ir_dtype(val.dtype), list(val.shape)) for val in node.meta["val"]]
    return e.ops("host_call", inputs, {"overload": node.target._schema.name, "site": site}, types)
