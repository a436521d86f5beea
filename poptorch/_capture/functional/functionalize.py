"""Turns a recorded graph, in which operations change tensors in place, into a functional one.

    %a = view(%x, [6])           %a = view(%x, [6])
    %_ = mul_(%a, 2)       =>    %m = mul(%a, 2)
    %s = sum(%x)                 %r = reshape(%m, [2, 3])
                                 %s = sum(%r)

Each recorded node stands for a tensor; the end of its chain of views is its root. A change of a
view becomes a new value of the root; its other views are computed again when something uses them
afterwards.
"""

import operator

import torch
from torch import fx

from poptorch._base import layout
from poptorch._capture.decompose.functional_ops import functional_form, mutated_arguments
from poptorch._capture.graph import node_errors, views
from poptorch._capture.graph.tensor_index import has_history
from poptorch._capture.library.layers import ops
from poptorch.errors import Error, error_at

aten = torch.ops.aten

# What is written is cast to the tensor's own dtype, whatever the two are.
_FILLING = (aten.copy_.default, aten.fill_.Tensor, aten.fill_.Scalar)


class Values:
    """The present value of each recorded tensor, while the graph is walked; ``changed`` has those
    of roots."""

    def __init__(self, graph: fx.Graph, fake_mode):
        self._graph = graph
        self._fake_mode = fake_mode
        self._at: fx.Node | None = None
        # View -> its base; view -> root; both of recorded nodes.
        self._parent: dict[fx.Node, fx.Node] = {}
        self._root: dict[fx.Node, fx.Node] = {}
        self._version: dict[fx.Node, int] = {}
        self._view_value: dict[fx.Node, tuple[int, fx.Node]] = {}
        # View -> the last view between the root and it that has elements outside of the view that
        # it was taken from, and the version of the root at that time.
        self._beyond: dict[fx.Node, tuple[fx.Node, int]] = {}
        self._alias: dict[fx.Node, fx.Node] = {}
        self.changed: dict[fx.Node, fx.Node] = {}

    def move_to(self, node: fx.Node) -> None:
        """New nodes are put before ``node``, and come from the same place."""
        self._at = node

    def emit(self, target, *args, **kwargs) -> fx.Node:
        """Adds a node, with its value computed from those of its operands."""
        with self._graph.inserting_before(self._at):
            node = self._graph.create_node("call_function", target, args, kwargs,
                                           name=target.overloadpacket.__name__)
        with self._fake_mode:
            val = target(*fx.map_arg(args, _val), **fx.map_arg(kwargs, _val))
        node.meta = {**self._at.meta, "val": val}
        node.meta.pop("nop", None)
        node.meta.pop("seed", None)
        return node

    def emit_part(self, node: fx.Node, index: int) -> fx.Node:
        """Adds a node for one of several results."""
        with self._graph.inserting_before(self._at):
            part = self._graph.create_node("call_function", operator.getitem, (node, index), {})
        part.meta = {**node.meta, "val": node.meta["val"][index]}
        return part

    def add_view(self, node: fx.Node, parent: fx.Node) -> None:
        """Notes that the tensor of ``node`` shares memory with that of ``parent``."""
        parent = self._alias.get(parent, parent)
        root = self._root.get(parent, parent)
        version = self._version.get(root, 0)
        self._parent[node], self._root[node] = parent, root
        self._view_value[node] = (version, node)
        if node.meta.get("is_beyond"):
            self._beyond[node] = (node, version)
        elif parent in self._beyond:
            self._beyond[node] = self._beyond[parent]

    def add_alias(self, node: fx.Node, other: fx.Node) -> None:
        """Notes that ``node`` is the same tensor as ``other``."""
        self._alias[node] = self._alias.get(other, other)

    def _check_beyond(self, node: fx.Node) -> None:
        """Checks the gradient of a view whose memory was changed: eager takes it from the tensor
        that owns the memory. Autograd under capture goes from view to view, and each view has only
        its own elements."""
        beyond, version = self._beyond.get(node, (None, 0))
        if beyond is None or version == self._version.get(self._root[node], 0):
            return
        if _val(beyond).requires_grad:
            raise self.error("[capture] a view made by as_strided has elements that are not in "
                             "its base tensor. It is used after its memory was "
                             "changed in place, and a gradient flows through it. Call as_strided "
                             "on the whole tensor, or after the change.")

    def _check_pick(self, node: fx.Node) -> None:
        """Checks that a pick that is computed again has no history that is to be eager's."""
        if "picked_from" in node.meta and has_history(node):
            raise self.error("[capture] an element x[i], where i is an integer tensor without "
                             "dimensions, is used after x was changed in place, and a gradient "
                             "flows through it. Take x[i] again after the change, or take a copy "
                             "before it: `x[i].clone()`.")

    def present(self, node: fx.Node) -> fx.Node:
        """The value that the tensor of ``node`` has now."""
        node = self._alias.get(node, node)
        root = self._root.get(node)
        if root is None:
            return self.changed.get(node, node)
        self._check_beyond(node)
        version, value = self._view_value[node]
        if version != self._version.get(root, 0):
            self._check_pick(node)
            value = views.again(self.emit, node, self.present(self._parent[node]))
            self._view_value[node] = (self._version[root], value)
        return value

    def change(self, node: fx.Node, value: fx.Node, is_uniform: bool = False) -> None:
        """Gives the tensor of ``node``, and all that shares memory with it, a new value. If
        ``is_uniform``, all its elements are equal."""
        node = self._alias.get(node, node)
        root, chain = self.root(node), []
        lies_on_itself = layout.lies_on_itself(_val(root).shape, _val(root).stride())
        while node in self._parent:
            parent = self._parent[node]
            chain.append((node, value))
            changed = None if lies_on_itself else \
                self._changed_base(node, self.present(parent), value)
            if changed is None:  # several elements share memory: only its owner can tell
                parent = self._owner(chain[0][0])
                if any(view is parent for view, _ in chain):
                    raise self._overlap_error()
                changed = self._changed_root(parent, *chain[0], is_uniform)
                # Where elements of the view are one, others have changed with those written.
                del chain[1:]
            node, value = parent, changed
        if lies_on_itself and not chain and not is_uniform:
            raise self._overlap_error()
        self._version[node] = version = self._version.get(node, 0) + 1
        self.changed[node] = value
        for view, view_value in chain:
            self._view_value[view] = (version, view_value)

    def root(self, node: fx.Node) -> fx.Node:
        """The recorded node whose memory the tensor of ``node`` is in."""
        node = self._alias.get(node, node)
        return self._root.get(node, node)

    def _owner(self, view: fx.Node) -> fx.Node:
        """The root of a view, or the pick that it views: the address of a pick is unknown."""
        node = self._parent[view]
        while node in self._parent and "picked_from" not in node.meta:
            node = self._parent[node]
        return node

    def _changed_base(self, view: fx.Node, base: fx.Node, value: fx.Node) -> fx.Node | None:
        """The value of ``base`` after ``view`` of it got ``value``; None if it does not follow."""
        target, arguments, options = view.target, view.args[1:], dict(view.kwargs)
        if "picked_from" in view.meta:
            dim, position = arguments
            return self.emit(aten.index_put.default, base, [None] * dim + [position], value)
        if target is operator.getitem:
            split, index = view.args
            target, arguments, options = split.target, split.args[1:], {"index": index}
            inverse = views.SPLITS.get(target)
        else:
            inverse = views.VIEWS.get(target)
        return inverse and inverse(self.emit, base, value, *arguments, **options)

    def _changed_root(self, root: fx.Node, view: fx.Node, value: fx.Node,
                      is_uniform: bool) -> fx.Node:
        """The value of ``root`` after ``view`` of it got ``value``, by their places in memory."""
        val, window = _val(root), _val(view)
        own = layout.distinct(val)
        if is_uniform:
            window = layout.distinct(window)
            value = self._first(value, window.shape)
        if own.dtype != window.dtype or own.is_neg() != window.is_neg() or any(
                layout.lies_on_itself(t.shape, t.stride()) for t in (own, window)):
            raise self._overlap_error()
        offset = window.storage_offset() - own.storage_offset()
        written = value, list(window.shape), list(window.stride()), offset
        scatter = ops.elements_scatter.default
        flat, dims = self._first(self.present(root), own.shape), layout.dims_in_memory(val)
        if dims is not None:
            flat = self.emit(scatter, layout.flat(self.emit, flat, dims), *written)
            return layout.unflat(self.emit, flat, dims, list(val.shape))
        memory = self.emit(aten.full.default, [layout.extent(own)], 0, dtype=own.dtype)
        flat = self.emit(scatter, memory, flat, list(own.shape), list(own.stride()), 0)
        flat = self.emit(scatter, flat, *written)
        return self.emit(ops.elements.default, flat, list(val.shape), list(val.stride()), 0)

    def _first(self, value: fx.Node, sizes) -> fx.Node:
        """The first elements of ``value``, as many as ``sizes`` says."""
        for dim, size in enumerate(sizes):
            if _val(value).shape[dim] != size:
                value = self.emit(aten.slice.Tensor, value, dim, 0, size, 1)
        return value

    def _overlap_error(self):
        return self.error("[capture] forward changes a view of a tensor in place, but several of "
                          "its elements share memory, such as after expand or unfold. Change a "
                          "copy of it (.clone()), or the tensor that it is a view of.")

    def error(self, message: str):
        """A :class:`poptorch.Error` at the place of the node that is being rewritten."""
        return error_at(message, self._at.meta.get("place"), self._at.meta.get("module", ""))


def _val(node: fx.Node):
    return node.meta["val"]


@torch.no_grad()  # a tensor may be part of one that is changed after it is used
def functionalize(graph: fx.Graph, outputs: list[fx.Node], fake_mode) -> tuple[list, dict]:
    """Rewrites a recorded graph, which has no output node yet, so that no node changes a tensor.

    Returns the nodes of the values that ``outputs`` have in the end, and the final value of each
    placeholder that is changed. Raises a :class:`poptorch.Error` for a change without functional
    form.
    """
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    if not any(mutated_arguments(node.target) for node in nodes):
        return outputs, {}
    values = Values(graph, fake_mode)
    replaced = []
    for node in nodes:
        values.move_to(node)
        mutated = mutated_arguments(node.target)
        try:
            if mutated:
                _replace_change(values, node, mutated)
                replaced.append(node)
            else:
                _rewire(values, node)
        except Error:
            raise
        except Exception as error:
            raise node_errors.of_node(error, node) from error
    end = graph.create_node("call_function", _end, (), {})
    end.meta = {**nodes[-1].meta, "val": None}
    values.move_to(end)
    outputs = [values.present(node) for node in outputs]
    graph.erase_node(end)
    for node in reversed(replaced):
        graph.erase_node(node)
    return outputs, {node: value for node, value in values.changed.items()
                     if node.op == "placeholder"}


def _end():
    """Stands at the end of the graph while values are computed there."""


def _rewire(values: Values, node: fx.Node) -> None:
    """Lets a node that changes nothing read present values; notes its base."""
    if node.target is operator.getitem:
        source = node.args[0]
        if source.target in views.SPLITS:
            values.add_view(node, source.meta["viewed"])
        return
    if views.is_view(node.target):
        viewed = node.args[0]
        if node.target in views.SPLITS:
            node.meta["viewed"] = viewed
        else:
            values.add_view(node, viewed)
    if "picked_from" in node.meta:
        values.add_view(node, node.meta["picked_from"])
    if any(values.present(source) is not source for source in node.all_input_nodes):
        node.args = fx.map_arg(node.args, values.present)
        node.kwargs = fx.map_arg(node.kwargs, values.present)


def _replace_change(values: Values, node: fx.Node, mutated: tuple) -> None:
    """Computes what a mutating node writes, and binds it to the tensors it writes to."""
    targets = []
    for position, name in mutated:
        tensor = node.args[position] if position < len(node.args) else node.kwargs.get(name)
        targets.append(tensor)
    if node.meta.get("writes_back"):  # what the pick's own change has done
        values.add_alias(node, targets[0])
        return
    written = _written(values, node, targets)
    for tensor, value in zip(targets, written):
        if node.target not in _FILLING:
            _check_cast(values, node, value, tensor)
        values.change(tensor, _shaped_like(values, value, tensor), _is_uniform(node))
    if len(targets) == 1:
        values.add_alias(node, targets[0])


def _is_uniform(node: fx.Node) -> bool:
    """Whether a mutating node writes one number to all elements."""
    if node.target is aten.copy_.default and isinstance(node.args[1], fx.Node):
        source = node.args[1].meta["val"]
        return source.numel() == 1 or not any(
            step for size, step in zip(source.shape, source.stride()) if size > 1)
    return node.target in (*_FILLING, aten.zero_.default)


def _written(values: Values, node: fx.Node, targets: list) -> list[fx.Node]:
    """The new value of each target."""
    target = node.target
    is_filled = target in _FILLING
    if is_filled and isinstance(node.args[1], fx.Node):
        return [values.present(node.args[1])]
    if is_filled or target is aten.zero_.default:
        filling = node.args[1] if is_filled else 0
        val = targets[0].meta["val"]
        return [values.emit(aten.full.default, list(val.shape), filling, dtype=val.dtype)]
    functional = functional_form(target)
    if functional is None or len(functional._schema.returns) != len(targets) \
            or not all(isinstance(t, fx.Node) for t in targets):
        raise values.error(f"[capture] {target} changes tensors in place and has no functional "
                           f"form. Use operations that return new tensors.")
    args = fx.map_arg(node.args, values.present) + _defaults(target, functional, node)
    outs = {argument.name for argument in target._schema.arguments if argument.is_out}
    kwargs = {name: fx.map_arg(value, values.present) for name, value in node.kwargs.items()
              if name not in outs}
    result = values.emit(functional, *args, **kwargs)
    if len(targets) == 1:
        return [result]
    return [values.emit_part(result, index) for index in range(len(targets))]


def _defaults(target, functional, node: fx.Node) -> tuple:
    """Positional arguments left at their defaults, where the functional form has none."""
    rest = zip(target._schema.arguments[len(node.args):],
               functional._schema.arguments[len(node.args):])
    return tuple(given.default_value for given, needed in rest
                 if given.name not in node.kwargs and given.has_default_value()
                 and not needed.has_default_value() and not needed.kwarg_only)


def _check_cast(values: Values, node: fx.Node, value: fx.Node, tensor: fx.Node) -> None:
    """In place, results are not cast to another kind of number."""
    result, own = value.meta["val"].dtype, tensor.meta["val"].dtype
    if not torch.can_cast(result, own):
        raise values.error(f"[capture] {node.target} gives {result}, which cannot be written to a "
                           f"tensor of {own}. Use an operation that returns a new tensor.")


def _shaped_like(values: Values, value: fx.Node, tensor: fx.Node) -> fx.Node:
    """``value`` in the dtype and shape of the tensor that it is written to."""
    val, wanted = value.meta["val"], tensor.meta["val"]
    if val.dtype != wanted.dtype:
        value = values.emit(aten._to_copy.default, value, dtype=wanted.dtype)
    if val.shape != wanted.shape:
        value = values.emit(aten.expand.default, value, list(wanted.shape))
    return value
