"""The graph of a capture while it is recorded: nodes of tensors, and what is known about them."""

import contextlib
import operator

import torch
from torch import fx

from poptorch._annotations import annotations, block_uses
from poptorch._base.layout import copied_strides, memory_of, same_bits
from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._base.types import check_dense
from poptorch._capture.graph.regions import Region, Rounds, region
from poptorch._capture.graph.source_location import Places
from poptorch._capture.graph.unknown_sizes import UnknownSize
from poptorch._capture.graph.views import written_by
from poptorch._capture.library import tensor_nodes
from poptorch.errors import error_at


class Recording:
    """A graph that grows. Each fake tensor refers to its node.

    Attributes:
        graph: that of the region that is recorded, or of the whole capture; in-place operations
            and views stand as they ran.
        module: dotted path of the module that runs.
        constants: real tensors that operations took from outside, by placeholder node.
        changed: the memory that operations change in place so far, with a tensor in it.
        met_real: all real tensors that operations took, by their identity; parameters too.
        changes: how many operations changed tensors in place.
    """

    def __init__(self, fake_mode, places: Places):
        self._whole = Region()
        self.graph = self._whole.graph
        self._regions: dict[fx.Graph, Region] = {self.graph: self._whole}
        self.fake_mode = fake_mode
        self.places = places
        self.module = ""
        self.in_backward = False
        self.constants: dict[fx.Node, torch.Tensor] = {}
        self.changed: dict[int, torch.Tensor] = {}
        self._copies: dict[fx.Node, torch.Tensor] = {}
        self.met_real: dict[int, torch.Tensor] = {}
        self.changes = 0
        self._known_constants: dict[int, fx.Node] = {}
        self._met_real = False
        self._writes_back = False
        self._origin: dict[int, dict] = {}

    # -- inputs and constants ------------------------------------------------------------------

    def placeholder(self, tensor: torch.Tensor, name: str) -> fx.Node:
        """Declares a fake tensor as an input of the captured graph."""
        node = self._whole.placeholder(name, {
            "val": tensor, "place": None, "module": "", "annotations": annotations.NONE,
            "backward": False, "recompute": 0})
        tensor_nodes.attach(tensor, node)
        return node

    def finish_inputs(self) -> None:
        """Ends the recording."""
        self._whole.finish_inputs()

    def node_of(self, tensor: torch.Tensor) -> fx.Node:
        """The node of the present graph whose value ``tensor`` is; a real tensor becomes a
        constant."""
        node = tensor_nodes.node_of(tensor)
        if node is not None:
            return self._here(node)
        if isinstance(tensor, UnknownSize):
            raise tensor.refusal(None)
        if fake_tensors.is_fake(tensor):
            raise self.error("[capture] a tensor without a value of its own was used: it comes "
                             "from another tracing or fake-tensor mode. Make it inside forward, "
                             "or register it as a buffer.")
        return self._here(self._constant_node(tensor))

    def fake(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake tensor that stands for a real one of the user's."""
        if fake_tensors.is_fake(tensor):
            return tensor
        return self._constant_node(tensor).meta["val"]

    def _constant_node(self, tensor: torch.Tensor) -> fx.Node:
        node = self._known_constants.get(id(tensor))
        self.met_real[id(tensor)] = tensor
        if node is None:
            check_dense(tensor, "constant")
            fake = fake_tensors.fake_like(self.fake_mode, tensor)
            fake.requires_grad_(tensor.requires_grad and tensor.is_leaf)
            node = self.placeholder(fake, f"constant_{len(self.constants)}")
            self.add_constant(node, tensor)
            self._known_constants[id(tensor)] = node
        elif node in self._copies and not self._is_as_copied(node):
            raise self.error(
                "[capture] forward writes to a NumPy array after using a tensor that shares its "
                "memory, and uses the tensor again. Copy the values into a new tensor each time: "
                "torch.tensor(array).")
        return node

    def known_constant(self, tensor: torch.Tensor) -> fx.Node | None:
        """The node of a real tensor that was met: of a constant, a parameter or a buffer."""
        return self._known_constants.get(id(tensor))

    def add_constant(self, node: fx.Node, tensor: torch.Tensor) -> None:
        """Notes the tensor of a placeholder. One in memory of another library (NumPy) is copied:
        the library may write to it before the program is compiled."""
        self.constants[node] = tensor
        with private.without_modes():
            if not tensor.untyped_storage().resizable():
                self._copies[node] = tensor.detach().clone()

    def constant(self, node: fx.Node) -> torch.Tensor:
        """The value of a constant, as it was when it was first used."""
        return self._copies.get(node, self.constants[node])

    def _is_as_copied(self, node: fx.Node) -> bool:
        with private.without_modes():
            return same_bits(self.constants[node], self._copies[node])

    # -- regions -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def region(self, name: str, operands: list[fx.Node] = (), rounds: Rounds | None = None):
        """A context in which operations are recorded as a region's, see :mod:`regions`, that begins
        with the operands."""
        node = self.graph.create_node("call_function", region, tuple(operands), {}, name)
        node.meta = {**self._meta(()), "region": (inner := Region(node, rounds))}
        self._regions[inner.graph] = inner
        with self._in(inner.graph):
            yield inner

    def is_in_region(self) -> bool:
        """Whether the operations of a region are recorded."""
        return self.graph is not self._whole.graph

    def described(self, tensor: torch.Tensor) -> dict:
        """What is known about a placeholder of the present region."""
        return {**self._meta(tensor), "place": None}

    def attach_results(self, node: fx.Node, results: list[torch.Tensor]) -> None:
        """Lets tensors stand for the results of a loop."""
        node.meta["val"] = tuple(results)
        self._attach(results, node)

    @contextlib.contextmanager
    def backward(self):
        """A context in which operations are recorded as those of the backward pass."""
        outer, self.in_backward = self.in_backward, True
        try:
            yield
        finally:
            self.in_backward = outer

    @contextlib.contextmanager
    def after(self, node: fx.Node):
        """A context in which operations are recorded behind a node, in its graph."""
        with self._in(node.graph), node.graph.inserting_after(node):
            yield

    @contextlib.contextmanager
    def _in(self, graph: fx.Graph):
        outer, self.graph = self.graph, graph
        try:
            yield
        finally:
            self.graph = outer

    def _here(self, node: fx.Node) -> fx.Node:
        """What stands for a node in the present graph, captured by regions around this one."""
        if node.graph not in self._regions:
            raise self.error("[capture] a tensor of another capture was used: its forward kept it, "
                             "or a module that has it, where it is found again. Keep nothing "
                             "outside of the module that forward makes.")
        around = self._graphs_around(self.graph)
        if node.graph not in around:
            raise self.error("[capture] a tensor that the body of a loop or a branch made is used "
                             "outside of it. Return it from the body.")
        for graph in reversed(around[:around.index(node.graph)]):
            node = self._regions[graph].capture(node)
        return node

    def _graphs_around(self, graph: fx.Graph) -> list[fx.Graph]:
        """A graph and those around it, the innermost first."""
        found = [graph]
        while self._regions[found[-1]].node is not None:
            found.append(self._regions[found[-1]].node.graph)
        return found

    def is_within(self, node: fx.Node, region: Region) -> bool:
        """Whether a node belongs to a region, or to one inside of it."""
        return region.graph in self._graphs_around(node.graph)

    def is_across(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor was made in another region than the present one, or outside of it."""
        node = tensor_nodes.node_of(tensor)
        return node is not None and node.graph is not self.graph

    # -- nodes ---------------------------------------------------------------------------------

    def add(self, func, arguments: tuple, named: dict, out) -> fx.Node:
        """Adds the node of an operation that gave ``out``."""
        node = self.graph.create_node("call_function", func, arguments, named,
                                      func.overloadpacket.__name__)
        node.meta = self._meta(out)
        if func._schema.is_mutable:
            self.changes += 1
            for part in written_by(node):
                self.changed[memory_of(part.meta["val"])] = part.meta["val"]
            node.meta["writes_back"] = self._writes_back
        self._attach(out, node)
        return node

    @contextlib.contextmanager
    def writing_back(self):
        """What is recorded in it is for autograd alone: the values are there already."""
        self._writes_back = True
        try:
            yield
        finally:
            self._writes_back = False

    def _argument(self, value):
        kind = type(value)
        if isinstance(value, torch.Tensor):
            node = tensor_nodes.node_of(value)
            if node is None:
                self._met_real = True
                return self.node_of(value)
            return node if node.graph is self.graph else self._here(node)
        if kind is list or kind is tuple:
            return [self._argument(item) for item in value]
        return value

    def _faked(self, value):
        """``value`` with fake tensors for all real ones."""
        if isinstance(value, torch.Tensor):
            return self.fake(value)
        if isinstance(value, dict):
            return {key: self._faked(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._faked(item) for item in value]
        return value

    def _attach(self, out, node) -> None:
        if isinstance(out, torch.Tensor):
            if tensor_nodes.node_of(out) is None:
                tensor_nodes.attach(out, node)
        elif isinstance(out, (tuple, list)):
            for index, item in enumerate(out):
                if isinstance(item, torch.Tensor):
                    self._attach_item(item, node, index)

    def _attach_item(self, item, node, index: int) -> None:
        if tensor_nodes.node_of(item) is None:
            part = self.graph.create_node("call_function", operator.getitem, (node, index), {})
            part.meta = {**node.meta, "val": item}
            tensor_nodes.attach(item, part)

    def _meta(self, val) -> dict:
        """Everything known about a node that is being recorded."""
        if self.in_backward:
            return self._backward_meta(val)
        said, uses = annotations.current(), block_uses.uses()
        meta = {"val": val, "place": self.places.here(), "module": said.path(self.module),
                "annotations": said, "backward": False, "recompute": 0,
                "block_before": uses[-1] if uses else None}
        self._origin.setdefault(private.forward_sequence_number(), meta)
        return meta

    def note_origin(self) -> None:
        """Notes that the newest autograd node belongs to what runs now. An operation that is
        recorded before it has an autograd node needs it: its gradient has its block and place."""
        self._meta(None)

    def origin_of(self, node) -> dict | None:
        """What is known about the call that an autograd node computes the gradient of."""
        return self._origin.get(node._sequence_nr())

    def _backward_meta(self, val) -> dict:
        number = private.backward_sequence_number()
        origin = self._origin.get(number)
        place, recompute = self.places.in_backward()
        if origin is None:
            origin = {"place": place, "module": self.module, "annotations": annotations.NONE}
        meta = {"val": val, "place": place or origin["place"], "module": origin["module"],
                "backward": True, "recompute": recompute}
        if "block_before" in origin:
            meta["block_before"] = origin["block_before"]
        if not recompute:
            return {**meta, "annotations": origin["annotations"].of_gradient}
        said = annotations.in_recomputation(origin["annotations"], recompute)
        meta["annotations"] = said
        if self.module:
            meta["module"] = said.path(self.module)
        self._origin.setdefault(private.forward_sequence_number(), meta)
        return meta

    def value_of(self, node: fx.Node) -> torch.Tensor:
        """The fake tensor of a node, which operations can take."""
        value = node.meta["val"]
        if tensor_nodes.node_of(value) is None:
            tensor_nodes.attach(value, node)
        return value

    def laid_out(self, tensor, stride):
        """``tensor``, which owns its memory, with the strides that eager gives it."""
        if tensor.stride() == tuple(stride):
            return tensor
        out = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype)
        node = self.node_of(tensor)
        node.meta["val"] = out
        tensor_nodes.attach(out, node)
        return out

    def as_copy_of(self, like, tensor):
        """``tensor``, which owns its memory, with the strides of ``like.clone()``."""
        with private.without_modes():
            strides = copied_strides(like)
        return self.laid_out(tensor, strides)

    def error(self, message: str):
        """A :class:`poptorch.Error` that ends with the user's place."""
        return error_at(message, self.places.here(), self.module)
