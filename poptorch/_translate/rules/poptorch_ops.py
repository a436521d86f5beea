"""Rules for functions of PopTorch's own, and for ops of the user's libraries."""

import json

import torch

from poptorch._base.types import ir_dtype
from poptorch._translate.rules.registry import register
from poptorch.errors import Error

_HALVES = (torch.float16, torch.bfloat16)


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


@register("poptorch::random_state")
def _random_state(e, node):
    return e.op("clone", e.rng())


@register("poptorch::use_random_state")
def _use_random_state(e, node, state):
    e.given_rng = state
    return state


@register("poptorch::cross_entropy", "poptorch::cross_entropy_backward")
def _cross_entropy(e, node, *arguments):
    *operands, reduction, ignore_index = arguments
    name = node.target._schema.name.removeprefix("poptorch::")
    found = e.ops(name, operands, {"reduction": reduction, "ignore_index": ignore_index})
    return found if name == "cross_entropy" else found[0]


@register("poptorch::custom_op")
def _custom_op(e, node, inputs, domain, name, version, settings):
    attrs = {"domain": domain, "op": name, "version": version, "settings": json.loads(settings)}
    return e.ops("custom", list(inputs), attrs)


@register("poptorch::serialized_matmul")
def _serialized_matmul(e, node, lhs, rhs, cut, factor, keep_precision):
    """A product in parts, which are computed one after the other."""
    rank, dtype = len(lhs.sizes), e.dtype_of(lhs)
    notes = {"serialization": [cut, factor]}
    rows, columns = rank - 2, rank - 1
    if cut == 0:
        parts = (e.op("matmul", part, rhs, **notes) for part in _cut(e, lhs, rows, factor))
        return _joined(e, node, parts, rows, factor)
    if cut == 2:
        parts = (e.op("matmul", lhs, part, **notes) for part in _cut(e, rhs, columns, factor))
        return _joined(e, node, parts, columns, factor)
    wide = torch.float32 if keep_precision and dtype in _HALVES else dtype
    total, adding = None, "addmm" if rank == 2 else "baddbmm"
    for left, right in zip(_cut(e, lhs, columns, factor), _cut(e, rhs, rows, factor)):
        left, right = e.cast(left, wide), e.cast(right, wide)
        total = e.op("matmul", left, right, **notes) if total is None else \
            e.op(adding, total, left, right, **notes)
    return e.cast(total, dtype)


def _cut(e, x, dim: int, factor: int):
    """Equal parts of a tensor, each made when it is asked for."""
    size = x.sizes[dim] // factor
    for start in range(0, x.sizes[dim], size):
        yield e.slice(x, dim, start, start + size)


def _joined(e, node, parts, dim: int, factor: int):
    """The parts side by side. Each goes to its place at once, so that one at a time is there."""
    sizes = list(node.meta["val"].shape)
    total, size = None, sizes[dim] // factor
    for index, part in enumerate(parts):
        place = {"dim": dim, "start": index * size, "end": (index + 1) * size, "step": 1}
        total = e.op("slice_backward", part, input_sizes=sizes, **place) if total is None else \
            e.op("slice_scatter", total, part, **place)
    return total
