"""Views: which operations make them, and how a change of a view changes what it views.
``emit(target, *arguments)`` adds a node."""

import operator

import torch
from torch import fx

from poptorch._base import layout
from poptorch._capture.decompose.functional_ops import mutated_arguments
from poptorch._capture.library import without_gradient  # noqa: F401  (declares operations)
from poptorch._capture.library.layers import ops

aten = torch.ops.aten


def _reshaped(emit, base, view, *arguments):
    return emit(aten.reshape.default, view, list(base.meta["val"].shape))


def _permuted(emit, base, view, dims):
    rank = len(dims)
    inverse = [0] * rank
    for position, dim in enumerate(dims):
        inverse[dim % rank] = position
    return emit(aten.permute.default, view, inverse)


def _expanded(emit, base, view, sizes, **options):
    shape = base.meta["val"].shape
    if view.meta["val"].numel() != shape.numel():
        return None  # several elements of the view are one of the base
    return emit(aten.reshape.default, view, list(shape))


def _split(emit, base, view, sizes, dim=0, *, index):
    start = _start(sizes, index)
    end = start + view.meta["val"].shape[dim]
    return emit(aten.slice_scatter.default, base, view, dim, start, end, 1)


def _start(sizes, index: int) -> int:
    """Where a part of a split begins."""
    return sizes * index if isinstance(sizes, int) else sum(sizes[:index])


def _elements(emit, base, view, size, stride, offset):
    if layout.lies_on_itself(size, stride):
        return None
    return emit(ops.elements_scatter.default, base, view, size, stride, offset)


# Overload -> inverse ``(emit, base, view, *arguments)``: what the base becomes when the view gets a
# new value; None where that does not follow.
VIEWS = {
    aten.view.default: _reshaped,
    aten._unsafe_view.default: _reshaped,
    aten._reshape_alias.default: _reshaped,
    aten.reshape.default: _reshaped,
    aten.unsqueeze.default: _reshaped,
    aten.squeeze.default: _reshaped,
    aten.squeeze.dim: _reshaped,
    aten.squeeze.dims: _reshaped,
    aten.expand.default: _expanded,
    aten.permute.default: _permuted,
    aten.t.default: lambda emit, base, view: emit(aten.t.default, view),
    aten.transpose.int: lambda emit, base, view, a, b: emit(aten.transpose.int, view, a, b),
    aten.slice.Tensor: lambda emit, base, view, dim=0, start=None, end=None, step=1: emit(
        aten.slice_scatter.default, base, view, dim, start, end, step),
    aten.select.int: lambda emit, base, view, dim, index: emit(
        aten.select_scatter.default, base, view, dim, index),
    aten.diagonal.default: lambda emit, base, view, offset=0, dim1=0, dim2=1: emit(
        aten.diagonal_scatter.default, base, view, offset, dim1, dim2),
    aten.view.dtype: lambda emit, base, view, dtype: emit(
        aten.view.dtype, view, base.meta["val"].dtype),
    ops.elements.default: _elements,
    aten.view_as_real.default: lambda emit, base, view: emit(aten.view_as_complex.default, view),
    aten.view_as_complex.default: lambda emit, base, view: emit(aten.view_as_real.default, view),
    aten._conj.default: lambda emit, base, view: emit(aten._conj.default, view),
    aten._neg_view.default: lambda emit, base, view: emit(aten._neg_view.default, view),
}

# Overload -> inverse for result number ``index``, of operations that give several views.
SPLITS = {
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.unbind.int: lambda emit, base, view, dim=0, *, index: emit(
        aten.select_scatter.default, base, view, dim, index),
}


def is_view(target) -> bool:
    """Whether the results of an operation share memory with its first operand."""
    if target in VIEWS or target in SPLITS:
        return True
    schema = getattr(target, "_schema", None)
    return schema is not None and any(
        r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)


def written_by(node) -> list:
    """The nodes of the tensors that the operation of a node changes in place."""
    found = []
    for position, name in mutated_arguments(node.target):
        given = node.args[position] if position < len(node.args) else node.kwargs.get(name)
        found += given if isinstance(given, (list, tuple)) else [given]
    return [part for part in found if isinstance(part, fx.Node)]


def root_of(node):
    """The recorded node whose memory the tensor of ``node`` is in."""
    while True:
        if node.target is operator.getitem and node.args[0].target in SPLITS:
            node = node.args[0].args[0]
        elif node.op == "call_function" and is_view(node.target):
            node = node.args[0]
        elif "stands_for" in node.meta:  # on the other side of the border of a region
            node = node.meta["stands_for"]
        else:
            return node


def again(emit, node, base):
    """The view that ``node`` is, of another ``base``."""
    if node.target is operator.getitem:
        return _part_again(emit, node.args[0], node.args[1], base)
    target = node.target
    if target is aten.view.default or target is aten._unsafe_view.default:
        target = aten.reshape.default  # the new base may lie otherwise in memory
    return emit(target, base, *node.args[1:], **node.kwargs)


def _part_again(emit, split, index: int, base):
    if split.target is aten.unbind.int:
        dim = split.args[1] if len(split.args) > 1 else 0
        return emit(aten.select.int, base, dim, index)
    dim = split.args[2] if len(split.args) > 2 else 0
    start = _start(split.args[1], index)
    length = split.meta["val"][index].shape[dim]
    return emit(aten.slice.Tensor, base, dim, start, start + length, 1)
