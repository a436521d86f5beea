"""Records every ATen operation that runs, as a node of an FX graph.

The recorder is a dispatch mode above a fake-tensor mode: operations arrive after autograd, one
by one, are run without data, and become nodes. Each fake tensor knows its node.
"""

import contextlib
import operator
from functools import partial

import torch
from torch import fx

from poptorch import _annotations as annotations
from poptorch import _interrupts as interrupts
from poptorch._capture import attached, decompose_shape  # noqa: F401  (adds to the table)
from poptorch._capture import torch_private as private
from poptorch._capture.decompose import DECOMPOSITIONS, ELEMENTWISE, computed_in
from poptorch._capture.decomposed import fits, mismatch, with_own_memory
from poptorch._capture.functional_ops import functional_form, mutated_arguments
from poptorch._capture.input_layouts import InputLayouts
from poptorch._capture.memory import Memory
from poptorch._capture.operand_types import OperandTypes
from poptorch._capture.picks import Picks
from poptorch._capture.places import Places
from poptorch._capture.recorded_ops import OTHER_STATISTICS, SAME_VALUES, WRONG_RULES, cast, steps
from poptorch._capture.shapes import Shapes
from poptorch._pytree import map_only
from poptorch._types import check_dense
from poptorch.errors import error_at

aten = torch.ops.aten


class Recorder(private.DispatchMode):
    """Turns what runs under it into ``graph``.

    Attributes:
        graph: all nodes so far; in-place operations and views stand as they ran.
        fake_mode: the mode of all tensors.
        module: dotted path of the module that runs.
        in_backward: whether the backward pass runs.
        constants: real tensors that operations took from outside, by placeholder node.
        met_real: all real tensors that operations took, by their identity; parameters too.
        layouts: what the program has from how its inputs lie in memory.
        shapes: what changed the shape of a tensor in place.
        picks: elements taken at places that tensors name.
        changes: how many operations changed tensors in place.
        kept: of each operation of namespace ``poptorch``, see :mod:`kept`.
        failed: exception and meta of the operation that failed last in the backward pass, or None.
    """

    def __init__(self, fake_mode, draw_salt, places: Places):
        super().__init__()
        self.graph = fx.Graph()
        self.fake_mode = fake_mode
        self.places = places
        self.module = ""
        self.in_backward = False
        self.constants: dict[fx.Node, torch.Tensor] = {}
        self._draw_salt = draw_salt
        self.failed: tuple[Exception, dict] | None = None
        self._met_real = False
        self.layouts = InputLayouts()
        self._writes_back = False
        self.kept: list[list[tuple]] = []
        self.shapes, self.picks = Shapes(self), Picks(self)
        self.changes, self._types = 0, OperandTypes()
        self._handlers: dict = {
            **Memory(self).handlers, **self.shapes.handlers, **self.picks.handlers}
        self._origin: dict[int, dict] = {}
        self.met_real: dict[int, torch.Tensor] = {}
        self._known_constants: dict[int, fx.Node] = {}
        self._inputs_end = self.graph.create_node("call_function", _end_of_inputs, (), {})

    # -- inputs and constants ------------------------------------------------------------------

    def placeholder(self, tensor: torch.Tensor, name: str) -> fx.Node:
        """Declares a fake tensor as an input of the graph."""
        with self.graph.inserting_before(self._inputs_end):
            node = self.graph.placeholder(name)
        node.target = node.name  # the name as an identifier, without dots
        node.meta = {"val": tensor, "place": None, "module": "", "annotations": annotations.NONE,
                     "backward": False, "recompute": 0}
        attached.attach(tensor, node)
        return node

    def finish_inputs(self) -> None:
        """Ends the recording."""
        self.graph.erase_node(self._inputs_end)

    def node_of(self, tensor: torch.Tensor) -> fx.Node:
        """The node whose value ``tensor`` is; a real tensor becomes a constant."""
        node = attached.node_of(tensor)
        if node is not None:
            return node
        if isinstance(tensor, private.FakeTensor):
            raise self.error("[capture] a tensor without a value of its own was used: it comes "
                             "from another tracing or fake-tensor mode. Make it inside forward, "
                             "or register it as a buffer.")
        return self._constant_node(tensor)

    def stand_for(self, tensor: torch.Tensor, node: fx.Node, name: str) -> None:
        """Lets ``node`` stand for a parameter or buffer wherever an operation takes it."""
        self._known_constants[id(tensor)] = node
        self.shapes.watch(node.meta["val"], name)

    def fake(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake tensor that stands for a real one of the user's."""
        if isinstance(tensor, private.FakeTensor):
            return tensor
        return self._constant_node(tensor).meta["val"]

    def _constant_node(self, tensor: torch.Tensor) -> fx.Node:
        node = self._known_constants.get(id(tensor))
        self.met_real[id(tensor)] = tensor
        if node is None:
            check_dense(tensor, "constant")
            fake = self.fake_mode.from_tensor(tensor.detach())
            fake.requires_grad_(tensor.requires_grad and tensor.is_leaf)
            node = self.placeholder(fake, f"constant_{len(self.constants)}")
            self.constants[node] = tensor
            self._known_constants[id(tensor)] = node
        return node

    # -- operations ----------------------------------------------------------------------------

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        handler = self._handlers.get(func) or self.handler_of(func)
        try:
            if func not in OTHER_STATISTICS:
                self._types.check(func, args, kwargs or {})
            return handler(func, args, kwargs or {})
        except Exception as error:
            if self.in_backward and (self.failed is None or self.failed[0] is not error):
                self.failed = error, self._backward_meta(None)
            raise

    def handler_of(self, func):
        """What is called when an operation is met."""
        return self._handlers.get(func) or self._handlers.setdefault(func, self._find_handler(func))

    def _find_handler(self, func):
        if func in SAME_VALUES:
            return self._same_values
        if func is aten.detach_.default:
            return self._query
        if func.namespace == "prim":
            return self._device if func is torch.ops.prim.device.default else self._query
        if func is aten.native_batch_norm.default:
            return self._native_batch_norm
        if func in DECOMPOSITIONS:
            return self._decomposed
        if private.is_composite(func):
            return self._composite
        if mutated_arguments(func) and functional_form(func) in DECOMPOSITIONS:
            return self._decomposed_in_place
        if func in (aten.lift_fresh.default, aten.lift.default, aten.lift_fresh_copy.default):
            return self._lift
        tags = func.tags
        if torch.Tag.nondeterministic_seeded in tags:
            return self._random
        if torch.Tag.data_dependent_output in tags:
            return self._data_dependent
        return self._in_place if mutated_arguments(func) else self._plain

    def _plain(self, func, args, kwargs):
        return self._record(func, args, kwargs)[0]

    def _in_place(self, func, args, kwargs):
        shape = args[0].shape if args and isinstance(args[0], torch.Tensor) else None
        out = self._plain(func, args, kwargs)
        if shape is not None and args[0].shape != shape:  # where PyTorch's own tensors refuse
            raise self.error(
                f"[capture] {func} gives {list(args[0].shape)}, which does not fit the tensor of "
                f"{list(shape)} that it changes in place. Use an operation that returns a new "
                f"tensor.")
        return out

    def _record(self, func, args, kwargs):
        """Runs an operation and adds its node: (result, node)."""
        interrupts.check()
        self._met_real = False
        arguments = tuple(map(self._argument, args))
        named = {key: self._argument(value) for key, value in kwargs.items()} if kwargs else {}
        if kwargs and "device" in kwargs:
            self._check_device(func, kwargs["device"])
        if self._met_real:
            args, kwargs = tuple(map(self._faked, args)), self._faked(kwargs)
        if func in WRONG_RULES:
            out = self._asked_operator(func, args, kwargs)
            return out, self.add(func, arguments, named, out)
        try:
            out = func(*args, **kwargs)
        except private.DataDependentOutputException:
            raise self.data_error(func) from None
        except private.DynamicOutputShapeException:
            raise
        except Exception:
            # Some of torch's rules for fake tensors refuse what eager takes: empty tensors, types.
            if func.namespace != "aten" or mutated_arguments(func):
                raise
            out = self._asked_operator(func, args, kwargs)
        return out, self.add(func, arguments, named, out)

    def _asked_operator(self, func, args, kwargs):
        """What the operator gives for real tensors like these, or its own refusal."""
        with private.without_modes(), torch.no_grad():
            real_args, real_kwargs = map_only(
                torch.Tensor, _zeros_like, (args, kwargs or {}))
            out = func(*real_args, **real_kwargs)
        return map_only(torch.Tensor, self._like, out)

    def _like(self, tensor: torch.Tensor):
        return private.fake_like(self.fake_mode, tensor)

    def add(self, func, arguments: tuple, named: dict, out) -> fx.Node:
        """Adds the node of an operation that gave ``out``."""
        node = self.graph.create_node("call_function", func, arguments, named,
                                      func.overloadpacket.__name__)
        node.meta = self._meta(out)
        if func._schema.is_mutable:
            self.changes += 1
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

    def run(self, func, *args, **kwargs):
        """The result of an operation, which is recorded as it is."""
        return self._record(func, args, kwargs)[0]

    def _check_device(self, func, device) -> None:
        if device is not None and device.type != "cpu":
            raise self.error(
                f"[capture] forward makes a tensor on device {device} ({func}), but all tensors "
                f"of a captured program are on the CPU; the executor moves data to the IPU "
                f"itself. Leave the device out, or take it from another tensor: `x.device`.")

    def _argument(self, value):
        kind = type(value)
        if kind is private.FakeTensor or isinstance(value, torch.Tensor):
            node = attached.node_of(value)
            if node is None:
                self._met_real = True
                return self.node_of(value)
            return node
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
            if attached.node_of(out) is None:
                attached.attach(out, node)
        elif isinstance(out, (tuple, list)):
            for index, item in enumerate(out):
                if isinstance(item, torch.Tensor):
                    self._attach_item(item, node, index)

    def _attach_item(self, item, node, index: int) -> None:
        if attached.node_of(item) is None:
            part = self.graph.create_node("call_function", operator.getitem, (node, index), {})
            part.meta = {**node.meta, "val": item}
            attached.attach(item, part)

    def _meta(self, val) -> dict:
        """Everything known about a node that is being recorded."""
        if self.in_backward:
            return self._backward_meta(val)
        said = annotations.current()
        meta = {"val": val, "place": self.places.here(), "module": said.path(self.module),
                "annotations": said, "backward": False, "recompute": 0}
        self._origin.setdefault(private.forward_sequence_number(), meta)
        return meta

    def _backward_meta(self, val) -> dict:
        number = private.backward_sequence_number()
        origin = self._origin.get(number)
        place, recompute = self.places.in_backward()
        if origin is None:
            origin = {"place": place, "module": self.module, "annotations": annotations.NONE}
        meta = {"val": val, "place": place or origin["place"], "module": origin["module"],
                "backward": True, "recompute": recompute}
        if not recompute:
            return {**meta, "annotations": origin["annotations"].of_gradient}
        said = annotations.in_recomputation(origin["annotations"], recompute)
        meta["annotations"] = said
        if self.module:
            meta["module"] = said.path(self.module)
        self._origin.setdefault(private.forward_sequence_number(), meta)
        return meta

    # -- special ones --------------------------------------------------------------------------

    def _device(self, func, args, kwargs):
        """``tensor.device``, which torch asks for at nearly every operation."""
        return args[0].fake_device

    def _query(self, func, args, kwargs):
        """A question about a tensor that is no operation, such as its device."""
        return func(*args, **kwargs)

    def _same_values(self, func, args, kwargs):
        tensor = self.fake(args[0])
        out = private.detached(self.fake_mode, tensor)
        # Called by autograd where no error may be raised: one without a node is met later.
        attached.attach_like(out, tensor)
        return out

    def attach(self, tensor: torch.Tensor, node: fx.Node) -> None:
        """Lets ``node`` stand for a tensor."""
        attached.attach(tensor, node)

    def value_of(self, node: fx.Node) -> torch.Tensor:
        """The fake tensor of a node, which operations can take."""
        value = node.meta["val"]
        if attached.node_of(value) is None:
            attached.attach(value, node)
        return value

    def laid_out(self, tensor, stride):
        """``tensor``, which owns its memory, with the strides that eager gives it."""
        if steps(tensor.shape, tensor.stride()) == steps(tensor.shape, stride):
            return tensor
        out = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype)
        node = self.node_of(tensor)
        node.meta["val"] = out
        attached.attach(out, node)
        return out

    def _native_batch_norm(self, func, args, kwargs):
        """Changes the running statistics, though its schema does not say so."""
        running_mean, training = args[3], args[5]
        if training and running_mean is not None:
            raise self.error("[capture] torch.native_batch_norm updates running statistics "
                             "unseen. Call torch.nn.functional.batch_norm.")
        return self._plain(func, args, kwargs)

    def _decomposed(self, func, args, kwargs):
        out = self._taken_apart(func, args, kwargs)
        return self._plain(func, args, kwargs) if out is NotImplemented else out

    def _decomposed_in_place(self, func, args, kwargs):
        """In place, or with ``out=``: what the decomposition gives, copied there."""
        named = {name: kwargs[name] for _, name in mutated_arguments(func) if name in kwargs}
        others = {name: value for name, value in kwargs.items() if name not in named}
        found = self._taken_apart(functional_form(func), args, others)
        targets = list(named.values()) or [args[0]]
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        if found is NotImplemented or not all(map(fits, results, targets)):
            return self._plain(func, args, kwargs)
        with self:
            for target, result in zip(targets, results, strict=True):
                target.copy_(result)
        return targets[0] if len(targets) == 1 else tuple(targets)

    def _taken_apart(self, func, args, kwargs):
        """The result of a decomposition, in the type and the memory that PyTorch gives it."""
        expected = func(*map(self._faked, args), **self._faked(kwargs))
        several = isinstance(expected, (tuple, list))
        with self, self._types.unasked():
            if func in ELEMENTWISE:
                dtype = computed_in((expected[0] if several else expected).dtype)
                args, kwargs = map_only(torch.Tensor, partial(cast, dtype), (args, kwargs))
            out = DECOMPOSITIONS[func](*args, **kwargs)
            if out is NotImplemented:
                return out
            results, expected = (list(x) if several else [x] for x in (out, expected))
            if func in ELEMENTWISE:
                results = [cast(val.dtype, x) for x, val in zip(results, expected)]
            results = with_own_memory(results, (*args, *kwargs.values()))
        words = mismatch(func, args, results, expected)
        if words:
            raise self.error(f"[{func.overloadpacket.__name__}] the decomposition gives {words}. "
                             f"Please report this.")
        laid = [self.laid_out(x, val.stride()) for x, val in zip(results, expected)]
        return tuple(laid) if several else laid[0]

    def _composite(self, func, args, kwargs):
        with self:
            out = private.decompose_composite(func, args, kwargs)
        return self._plain(func, args, kwargs) if out is NotImplemented else out

    def _lift(self, func, args, kwargs):
        """``torch.tensor(...)`` in forward: a fresh constant that may be changed in place."""
        if isinstance(args[0], private.FakeTensor):
            return self._same_values(func, args, kwargs)
        out = func(*args, **kwargs)
        node = self.placeholder(out, f"constant_{len(self.constants)}")
        node.meta["fresh"] = True
        self.constants[node] = args[0]
        return out

    def _random(self, func, args, kwargs):
        if kwargs.get("generator") is not None:
            kwargs = {**kwargs, "generator": None}
        salt = self._draw_salt()
        out, node = self._record(func, args, kwargs)
        node.meta["salt"] = salt
        return out

    def _data_dependent(self, func, args, kwargs):
        if not any(map(self._has_no_value, args)):
            with private.without_modes():
                return func(*args, **kwargs)
        try:
            return func(*args, **kwargs)
        except private.DataDependentOutputException:
            raise self.data_error(func) from None

    def _has_no_value(self, argument) -> bool:
        """Whether a tensor has no data, or its data are out of date."""
        if not isinstance(argument, torch.Tensor):
            return False
        node = self._known_constants.get(id(argument))
        return isinstance(argument, private.FakeTensor) or (
            node is not None and any(mutated_arguments(user.target) for user in node.users))

    # -- errors --------------------------------------------------------------------------------

    def error(self, message: str):
        """A :class:`poptorch.Error` that ends with the user's place."""
        return error_at(message, self.places.here(), self.module)

    def data_error(self, func):
        """The error for Python code that asks for the value of a tensor."""
        return self.error(
            f"[capture] Python code needs the value of a tensor ({func}), but forward is compiled "
            f"before there are values. Use torch.where, torch.clamp or masks instead of `if` and "
            f".item(), or compute the value outside of forward and pass it in.")


def _end_of_inputs():
    """Stands in the graph between placeholders and operations while it is recorded."""


def _zeros_like(tensor: torch.Tensor) -> torch.Tensor:
    """A real tensor of zeros that looks at its memory as ``tensor`` does."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).zero_()
