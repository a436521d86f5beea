"""What forward says of an operation after it has run, by the tensor that it gave."""

import operator

import torch
from torch import fx

from poptorch._annotations import annotations
from poptorch._annotations.annotations import Annotations
from poptorch._capture.decompose.functional_ops import mutated_arguments
from poptorch._capture.graph import views
from poptorch._capture.library import tensor_nodes

aten = torch.ops.aten

# Operations with temporary memory of their own, by the names of their overloads without `_`.
PRODUCTS = frozenset({"addmm", "baddbmm", "bmm", "mm", "serialized_matmul"})
CONVOLUTIONS = frozenset({"convolution"})
GATHERS = frozenset({"embedding", "gather", "index", "index_add", "index_put", "index_select",
                     "scatter", "scatter_add", "scatter_reduce"})
_TUNED = PRODUCTS | CONVOLUTIONS | GATHERS
# What gives the values of its first operand in another form.
_FORMS = (operator.getitem, aten._to_copy.default, aten.clone.default)
_SUMS = {aten.add.Tensor, aten.add_.Tensor}


def name_of(node: fx.Node) -> str:
    """The base name of the operation that a node runs, such as ``scatter`` for ``scatter_``."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return getattr(packet, "__name__", "").strip("_")


def annotate(node: fx.Node, kind: str, value) -> None:
    """Gives a recorded operation a value of a kind of annotations, and so its gradient."""
    said = node.meta["annotations"]
    surrounding = {name: v for name, v in said.surrounding.items() if name != kind}
    node.meta["annotations"] = Annotations({**said.values, kind: value}, surrounding)


class Producers:
    """The operations that gave the tensors of one capture."""

    def annotate(self, tensor: torch.Tensor, kind: str, value) -> bool:
        """Annotates the product, convolution or gather that gave a tensor, through a bias that is
        added, a cast and other forms of it; returns whether there is one."""
        assert isinstance(value, annotations.KINDS[kind].type)
        node = _producer(tensor_nodes.node_of(tensor))
        if node is not None:
            annotate(node, kind, value)
        return node is not None


def _producer(node: fx.Node | None) -> fx.Node | None:
    while node is not None:
        node = _last_change(node)
        if node.op == "call_function" and name_of(node) in _TUNED:
            return node
        node = _what_a_bias_is_added_to(node) if node.target in _SUMS else _source(node)
    return None


def _source(node: fx.Node) -> fx.Node | None:
    """The node whose values a node has in another form, or that it stands for in its region."""
    if "stands_for" in node.meta:
        return node.meta["stands_for"]
    is_form = node.op == "call_function" and (node.target in _FORMS or views.is_view(node.target))
    return node.args[0] if is_form else None


def _last_change(node: fx.Node) -> fx.Node:
    """What wrote to the tensor of a node last, if it is an operation that can be tuned."""
    changes = [user for user in node.users
               if mutated_arguments(user.target) and user.args and user.args[0] is node]
    return changes[-1] if changes and name_of(changes[-1]) in _TUNED else node


def _what_a_bias_is_added_to(node: fx.Node) -> fx.Node | None:
    """Of two operands, the one that is computed, where the other one is a tensor from outside."""
    operands = [x for x in node.args[:2] if isinstance(x, fx.Node)]
    computed = [x for x in operands if _origin(x).op == "call_function"]
    return computed[0] if len(operands) == 2 and len(computed) == 1 else None


def _origin(node: fx.Node) -> fx.Node:
    while (source := _source(node)) is not None:
        node = source
    return node
