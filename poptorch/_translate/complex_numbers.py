"""Complex tensors of a captured graph. The IR has real numbers only: a complex tensor is one value
of pairs, with a last dimension of size 2, or two values of its real and imaginary parts."""

import contextlib

import torch
from torch import fx

from poptorch import _C
from poptorch._base.types import real_dtype

# Operations that compute the real parts of their results from real parts, and the imaginary parts
# from imaginary parts, in the same way.
_LINEAR = frozenset(f"aten::{name}" for name in (
    "_neg_view", "_reshape_alias", "_to_copy", "_unsafe_index", "_unsafe_index_put", "_unsafe_view",
    "add", "alias", "as_strided_scatter", "cat", "clone", "constant_pad_nd", "copy", "cumsum",
    "detach", "diag_embed", "diagonal", "diagonal_backward", "diagonal_copy", "diagonal_scatter",
    "empty", "empty_like", "empty_permuted", "empty_strided", "expand", "expand_copy", "fill",
    "flip", "full", "full_like", "gather", "index", "index_add", "index_copy", "index_fill",
    "index_put", "index_select", "index_select_backward", "lift_fresh", "lift_fresh_copy",
    "masked_fill", "mean", "neg", "new_empty", "new_empty_strided", "new_full", "new_zeros",
    "permute", "permute_copy", "repeat", "reshape", "roll", "rsub", "scalar_tensor", "scatter",
    "scatter_add", "select", "select_backward", "select_copy", "select_scatter", "slice",
    "slice_backward", "slice_copy", "slice_scatter", "split", "split_copy", "split_with_sizes",
    "split_with_sizes_copy", "squeeze", "squeeze_copy", "stack", "sub", "sum", "t", "t_copy",
    "trace", "transpose", "transpose_copy", "tril", "triu", "unbind", "unbind_copy", "unfold",
    "unfold_backward", "unsafe_split", "unsafe_split_with_sizes", "unsqueeze", "unsqueeze_copy",
    "view", "view_copy", "where", "zero", "zeros", "zeros_like")) | {
        "poptorch::elements", "poptorch::elements_scatter"}
_PRODUCTS = frozenset({"aten::mm", "aten::bmm", "aten::mv", "aten::dot"})
# Numbers among the arguments of linear operations that are elements of tensors.
_ELEMENTS = frozenset({"fill_value", "other", "s", "self", "value"})
# Tensors among them that are not.
_POSITIONS = frozenset({"condition", "index", "indices", "mask"})


class Complex:
    """The value of a complex tensor, as pairs or as parts: each is made from the other when it is
    first needed."""

    def __init__(self, emitter, *, pairs=None, parts=None):
        self._emitter, self._pairs, self._parts = emitter, pairs, parts

    @property
    def pairs(self):
        """One value, with a last dimension of size 2."""
        if self._pairs is None:
            e = self._emitter
            parts = [e.reshape(part, [*part.sizes, 1]) for part in self._parts]
            self._pairs = e.op("cat", *parts, dim=len(parts[0].sizes) - 1)
        return self._pairs

    @property
    def parts(self) -> tuple:
        """The values of the real and the imaginary parts."""
        if self._parts is None:
            e, dim = self._emitter, len(self._pairs.sizes) - 1
            self._parts = tuple(
                e.reshape(e.slice(self._pairs, dim, i, i + 1), self._pairs.sizes[:-1])
                for i in range(2))
        return self._parts


def has_complex(node: fx.Node) -> bool:
    """Whether an operation takes or gives complex numbers."""
    return any(map(_is_complex, _listed(node.meta["val"]))) or any(
        _is_complex(x.meta["val"]) for x in node.all_input_nodes)


def is_linear(node: fx.Node) -> bool:
    """Whether :func:`emit_linear` translates an operation that has complex numbers."""
    return node.target._schema.name in _LINEAR and all(map(_is_complex, _listed(
        node.meta["val"]))) and not any(
            isinstance(value, complex) for name, value in _arguments(node)
            if name not in _ELEMENTS)


def emit_linear(nodes, node):
    """Translates the operation once for the real and once for the imaginary parts."""
    found = [_emit_part(nodes, node, lambda name, value, part=part: part)
             for part in range(2)]
    if isinstance(found[0], (list, tuple)):
        return [Complex(nodes.emitter, parts=parts) for parts in zip(*found)]
    return Complex(nodes.emitter, parts=tuple(found))


def is_product(node: fx.Node) -> bool:
    """Whether :func:`emit_product` translates an operation that has complex numbers."""
    return node.target._schema.name in _PRODUCTS


def emit_product(nodes, node):
    """Translates a product of matrices or vectors as products of their parts."""
    e, parts = nodes.emitter, []
    first, second = (range(2) if _is_complex(x.meta["val"]) else range(1) for x in node.args)
    products = {(i, j): _emit_part(nodes, node, lambda name, value, chosen=(i, j): chosen[
        value is not node.args[0]]) for i in first for j in second}
    for terms, name in ((((0, 0), (1, 1)), "sub"), (((0, 1), (1, 0)), "add")):
        terms = [products[term] for term in terms if term in products]
        parts.append(terms[0] if len(terms) == 1 else e.op(name, *terms, alpha=1.0))
    return Complex(e, parts=tuple(parts))


def part_of_view(node: fx.Node) -> tuple[fx.Node, int] | None:
    """The complex tensor and the part, 0 or 1, of ``x.real`` and ``x.imag``; None for others."""
    if node.target is not torch.ops.aten.select.int or len(node.args) != 3:
        return None
    pairs, dim, index = node.args
    if pairs.target is not torch.ops.aten.view_as_real.default:
        return None
    rank = pairs.meta["val"].dim()
    return (pairs.args[0], index % 2) if dim % rank == rank - 1 else None


def _emit_part(nodes, node: fx.Node, part_of):
    """Translates an operation on parts of its operands. ``part_of`` returns which part, 0 or 1,
    from an argument's name and node."""
    graph, made, e = fx.Graph(), {}, nodes.emitter

    def argument(name: str, value):
        if isinstance(value, (list, tuple)):
            return [argument(name, item) for item in value]
        if isinstance(value, torch.dtype):
            return real_dtype(value)
        part = part_of(name, value)
        if isinstance(value, fx.Node):
            return operand(name, value, part)
        if isinstance(value, (int, float, complex)) and name in _ELEMENTS:
            return value.imag if part else value.real
        return value

    def operand(name: str, source: fx.Node, part: int):
        val, is_shared = source.meta["val"], name in _POSITIONS
        if is_shared or not _is_complex(val):
            part = 0 if is_shared else part
            value = nodes.values[source] if part == 0 else e.full(val.shape, 0, val.dtype)
        else:
            value = nodes.complex_value(source).parts[part]
        placeholder = graph.placeholder(f"x{len(made)}")
        placeholder.meta = {**source.meta, "val": _part(val)}
        made[placeholder] = nodes.values[placeholder] = value
        if source in nodes.ranges and part == 0:
            nodes.ranges[placeholder] = nodes.ranges[source]
        return placeholder

    positional = [argument(*pair) for pair in _arguments(node)[:len(node.args)]]
    named = {name: argument(name, value) for name, value in node.kwargs.items()}
    copy = graph.create_node("call_function", node.target, tuple(positional), named)
    copy.meta = {**node.meta, "val": _part(node.meta["val"])}
    try:
        return nodes.emit(copy)
    finally:
        for placeholder in made:
            del nodes.values[placeholder]
            nodes.ranges.pop(placeholder, None)


def _arguments(node: fx.Node) -> list[tuple]:
    """The given arguments with their names in the schema."""
    names = [argument.name for argument in node.target._schema.arguments]
    return [*zip(names, node.args), *node.kwargs.items()]


def _part(val):
    """A fake tensor for the parts of a complex one; for another value itself."""
    if isinstance(val, (list, tuple)):
        return [_part(item) for item in val]
    if not _is_complex(val):
        return val
    with getattr(val, "fake_mode", contextlib.nullcontext()):
        return torch.empty_strided(val.shape, val.stride(), dtype=real_dtype(val.dtype))


def _is_complex(val) -> bool:
    return isinstance(val, torch.Tensor) and val.is_complex()


def _listed(val) -> list | tuple:
    return val if isinstance(val, (list, tuple)) else [val]


def pairs_of(value):
    """The pairs of a complex value; another value itself."""
    return value.pairs if isinstance(value, Complex) else value


def is_value(value) -> bool:
    """Whether an argument of a rule is a tensor."""
    return isinstance(value, (_C.Value, Complex))
