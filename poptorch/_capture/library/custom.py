"""The operation that stands for a call of an op in the user's library.

``docs/guide/extending/custom_ops.md`` explains such libraries.
"""

import json

import torch

from poptorch import _C
from poptorch._base.types import host_tensor, ir_dtype, narrowed, torch_dtype
from poptorch._capture.library.evaluated import evaluated
from poptorch._capture.library.layers import LIBRARY, define, ops
from poptorch._capture.library.saved_for_backward import keep, kept
from poptorch.errors import Error


def attributes_of(domain: str, name: str, version: int, settings: str) -> dict:
    """The attributes of the IR op."""
    return {"domain": domain, "op": name, "version": version, "settings": json.loads(settings)}


def _results(inputs, domain, name, version, settings):
    types = [(ir_dtype(x.dtype), list(x.shape)) for x in inputs]
    found = _C.infer("custom", types, attributes_of(domain, name, version, settings))
    return [torch.empty(sizes, dtype=torch_dtype(dtype)) for dtype, sizes in found]


def _run(inputs, domain, name, version, settings):
    return evaluated("custom", [host_tensor(x, f"{domain}::{name}") for x in inputs],
                     attributes_of(domain, name, version, settings))


def _keep(ctx, inputs, output):
    tensors, *ctx.call = inputs
    ctx.inputs = [(x.shape, narrowed(x.dtype)) for x in tensors]
    ctx.outputs = [(x.shape, x.dtype) for x in output]
    op = _C.find_custom_op(*ctx.call[:3])
    keep(ctx, *(tensors if op["reads_inputs"] else ()), *(output if op["reads_outputs"] else ()))


def _gradient(ctx, gradients):
    if all(g is None for g in gradients):
        return [None] * len(ctx.inputs),
    domain, name, version, settings = ctx.call
    title = f"{domain}::{name}"
    gradient = _C.find_custom_op(domain, name, version)["gradient"]
    if gradient is None:
        raise Error(f"[{title}] version {version} has no gradient op, and a gradient flows through "
                    f"it. Name one in the library with .gradient(...), or detach its inputs.")
    op = _C.find_custom_op(domain, gradient, version)
    if op is None:
        raise Error(f"[{title}] the library names {gradient!r} as its gradient op, but no library "
                    f"has {domain}::{gradient} in version {version}. Define it there.")
    known = [setting for setting in json.loads(settings) if setting[0] in op["attributes"]]
    given = [torch.zeros(shape, dtype=dtype) if g is None else g
             for g, (shape, dtype) in zip(gradients, ctx.outputs, strict=True)]
    found = ops.custom_op([*given, *kept(ctx)], domain, gradient, version, json.dumps(known))
    wanted = [i for i, (_, dtype) in enumerate(ctx.inputs) if dtype.is_floating_point]
    expected = [ctx.inputs[i] for i in wanted]
    if [(x.shape, x.dtype) for x in found] != expected:
        raise Error(f"[{title}] its gradient op {gradient} gives {_text(found)}, but the gradients "
                    f"of the inputs are {_text(expected)}. Give one for each input of floating "
                    f"point, of its type.")
    by_input = dict(zip(wanted, found))
    return [by_input.get(i) for i in range(len(ctx.inputs))],


def _text(types) -> str:
    pairs = [(x.shape, x.dtype) if isinstance(x, torch.Tensor) else x for x in types]
    return ", ".join(f"{ir_dtype(dtype)}{list(shape)}" for shape, dtype in pairs) or "nothing"


define("custom_op(Tensor[] inputs, str domain, str name, int version, str settings) -> Tensor[]",
       _results, _keep, _gradient)
LIBRARY.impl("custom_op", _run, "CPU")
