"""Records every ATen operation that runs, as a node of an FX graph.

The recorder is a dispatch mode above a fake-tensor mode: operations arrive after autograd, one
by one, are run without data, and become nodes. Each fake tensor refers to its node.
"""

import contextlib
from functools import partial

import torch
from torch import fx

from poptorch._base import interrupts
from poptorch._base.logging import logger
from poptorch._base.pytree.structure import map_only
from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._base.torch_private.basic import without_torch_function
from poptorch._capture.decompose import resampling  # noqa: F401  (adds to the table)
from poptorch._capture.decompose.functional_ops import functional_form, mutated_arguments
from poptorch._capture.decompose.results import fits, mismatch, with_own_memory
from poptorch._capture.decompose.table import DECOMPOSITIONS, ELEMENTWISE, computed_in
from poptorch._capture.graph.constant_values import real_like
from poptorch._capture.graph.memory_views import Memory
from poptorch._capture.graph.source_location import Places
from poptorch._capture.graph.tensor_index import Picks
from poptorch._capture.graph.views import root_of
from poptorch._capture.library import tensor_nodes
from poptorch._capture.library.layers import check_differentiated_forward, ops
from poptorch._capture.record import quick_rules
from poptorch._capture.record.in_place_shapes import Shapes
from poptorch._capture.record.input_layouts import InputLayouts
from poptorch._capture.record.operand_types import OperandTypes
from poptorch._capture.record.read_values import ReadValues
from poptorch._capture.record.recorded_ops import (
    OTHER_STATISTICS,
    SAME_VALUES,
    WRONG_RULES,
    are_row_major,
    cast,
    has_wrong_rule,
    may_differ_in_strides,
    sizes_by_values,
)
from poptorch._capture.record.recording import Recording
from poptorch._capture.record.value_checks import Checks
from poptorch.errors import place_text

aten = torch.ops.aten


class Recorder(Recording, private.DispatchMode):
    """Turns what runs under it into a graph.

    ``kept`` has the values kept for gradients, see :mod:`saved_for_backward`; ``failed`` exception
    and meta of the operation that failed last in the backward pass, or None.
    """

    def __init__(self, fake_mode, draw_salt, places: Places):
        private.DispatchMode.__init__(self)
        Recording.__init__(self, fake_mode, places)
        self._draw_salt = draw_salt
        self._generators_met: set[str] = set()
        self.failed: tuple[Exception, dict] | None = None
        self.layouts = InputLayouts()
        self.kept: list[list[tuple]] = []
        # What stands for each parameter and buffer, by its identity.
        self._standing: dict[int, torch.Tensor] = {}
        self.shapes, self.picks, self.values = Shapes(self), Picks(self), ReadValues(self)
        self._types, self.checks = OperandTypes(), Checks(self)
        self._handlers: dict = {
            **Memory(self).handlers, **self.checks.handlers, **self.shapes.handlers,
            **self.picks.handlers, aten._efficientzerotensor.default: self._zero_tensor}

    # -- inputs and constants ------------------------------------------------------------------

    def stand_for(self, tensor: torch.Tensor, node: fx.Node, name: str) -> None:
        """Lets ``node`` stand for a parameter or buffer wherever an operation takes it."""
        self._known_constants[id(tensor)] = node
        self._standing[id(tensor)] = node.meta["val"]
        self.shapes.watch(node.meta["val"], name)

    def stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake tensor of a parameter or buffer, so that autograd knows one leaf of it; another
        tensor itself."""
        standing = self._standing.get(id(tensor))
        if standing is None:
            return tensor
        self.met_real[id(tensor)] = tensor  # an autograd.Function may have it
        return standing

    # -- operations ----------------------------------------------------------------------------

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        handler = self._handlers.get(func) or self.handler_of(func)
        if private.is_traced():
            raise self.error("[capture] forward traces a function into a graph of its own "
                             "(make_fx, torch.func.linearize). The program would not have its "
                             "operations. Call the function itself, or torch.func.jvp.")
        try:
            if func not in OTHER_STATISTICS:
                self._types.check(func, args, kwargs or {})
            # Autograd calls operations where function modes are entered; none is the user's call.
            with without_torch_function(), private.below_function_transforms():
                return handler(func, args, kwargs or {})
        except Exception as error:
            if self.in_backward and (self.failed is None or self.failed[0] is not error):
                self.failed = error, self._backward_meta(None)
            raise

    def handler_of(self, func):
        """What is called when an operation is met."""
        return self._handlers.get(func) or self._handlers.setdefault(func, self._find_handler(func))

    def _find_handler(self, func):
        handler = self._find_plain_handler(func)
        has_out = any(argument.is_out for argument in func._schema.arguments)
        return partial(self._with_out, handler) if has_out else handler

    def _find_plain_handler(self, func):
        if func in SAME_VALUES:
            return self._same_values
        if func is aten.detach_.default:
            return self._query
        if func is aten._nested_tensor_from_mask_left_aligned.default:
            return lambda *_: False  # see private.padding_as_nested
        if "nested" in func.overloadpacket.__name__:
            return self._refuse_nested
        if func.namespace == "prim":
            return self._device if func is torch.ops.prim.device.default else self._query
        if func in (aten.native_batch_norm.default, aten._native_batch_norm_legit.default):
            return self._native_batch_norm
        if func is aten._batch_norm_with_update.default:
            return self._batch_norm_with_update
        if func in DECOMPOSITIONS:
            return self._decomposed
        if private.is_composite(func):
            return self._composite
        if mutated_arguments(func) and functional_form(func) in DECOMPOSITIONS:
            return self._decomposed_in_place
        if func in (aten.lift_fresh.default, aten.lift.default, aten.lift_fresh_copy.default):
            return self._lift
        if func is aten.polygamma_.default:
            return self._polygamma_in_place
        tags = func.tags
        if torch.Tag.nondeterministic_seeded in tags:
            return self._random
        if torch.Tag.data_dependent_output in tags:
            return self.values.operation
        return self._in_place if mutated_arguments(func) else self._plain

    def _with_out(self, handler, func, args, kwargs):
        """Checks that ``out=`` has the shape of the result: PyTorch would resize it."""
        outs = [a.name for a in func._schema.arguments if a.is_out and a.name in kwargs]
        form = functional_form(func)
        if form is not None:
            others = {name: value for name, value in kwargs.items() if name not in outs}
            results = form(*map(self._faked, args), **self._faked(others))
            for name, result in zip(outs, _as_list(results)):
                if kwargs[name].shape != result.shape:
                    raise self.error(
                        f"[capture] an out= tensor has shape {list(kwargs[name].shape)} but the "
                        f"result has {list(result.shape)}. Make it of that shape, or use the "
                        f"returned tensor.")
        return handler(func, args, kwargs)

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
        if has_wrong_rule(func, args):
            out = self._asked_operator(func, args, kwargs)
            return out, self.add(func, arguments, named, out)
        try:
            out = self._ruled(func, args, kwargs)
        except fake_tensors.DataDependentOutputException:
            raise self.values.error(func) from None
        except fake_tensors.DynamicOutputShapeException:
            raise
        except Exception:
            # Some of torch's rules for fake tensors refuse what eager takes: empty tensors, types.
            if func.namespace != "aten" or mutated_arguments(func) or sizes_by_values(func):
                raise
            out = self._asked_operator(func, args, kwargs)
        return out, self.add(func, arguments, named, out)

    def _ruled(self, func, args, kwargs):
        """What torch's rule for tensors without data gives."""
        out = quick_rules.result(self.fake_mode, func, args, kwargs)
        if out is not NotImplemented:
            return out
        if may_differ_in_strides(func, args):
            with contextlib.suppress(RuntimeError):  # some refuse zeros, or find no memory
                return self._asked_operator(func, args, kwargs)
        if func.namespace == "poptorch":
            if private.is_differentiated_forward():
                check_differentiated_forward(self, func)
            return fake_tensors.called_without_constants(func, args, kwargs)
        return func(*args, **kwargs)

    def _asked_operator(self, func, args, kwargs):
        """What the operator gives for real tensors like these, or its own refusal."""
        # Zeros are places that exist; where none is asked for, ones can be divided by.
        value = int(torch.Tag.pointwise in func.tags)
        with private.without_modes(), torch.no_grad():
            real_args, real_kwargs = map_only(
                torch.Tensor, lambda x: real_like(self, x, value), (args, kwargs or {}))
            out = func(*real_args, **real_kwargs)
        return map_only(torch.Tensor, self._like, out)

    def _like(self, tensor: torch.Tensor):
        return fake_tensors.fake_like(self.fake_mode, tensor)

    def run(self, func, *args, **kwargs):
        """The result of an operation, which is recorded as it is."""
        return self._record(func, args, kwargs)[0]

    def _check_device(self, func, device) -> None:
        if device is not None and device.type != "cpu":
            raise self.error(
                f"[capture] forward makes a tensor on device {device} ({func}), but all tensors "
                f"of a captured program are on the CPU; the executor moves data to the IPU "
                f"itself. Leave the device out, or take it from another tensor: `x.device`.")

    # -- special ones --------------------------------------------------------------------------

    def _device(self, func, args, kwargs):
        """``tensor.device``, which torch reads at nearly every operation."""
        return fake_tensors.device_of(args[0])

    def _query(self, func, args, kwargs):
        """A question about a tensor that is no operation, such as its device."""
        return func(*args, **kwargs)

    def _same_values(self, func, args, kwargs):
        tensor = self.fake(args[0])
        out = fake_tensors.detached(self.fake_mode, tensor)
        # Called by autograd where no error may be raised: one without a node is met later.
        tensor_nodes.attach_like(out, tensor)
        return out

    def _refuse_nested(self, func, args, kwargs):
        raise self.error(f"[capture] forward makes or takes a nested tensor ({func}), which has no "
                         f"shape that could be compiled. Pad its parts to one shape "
                         f"(torch.nn.utils.rnn.pad_sequence), and pass a mask of what is padding.")

    def _native_batch_norm(self, func, args, kwargs):
        """Changes the running statistics, though its schema does not say so; modules of TorchScript
        call it."""
        x, running_mean, training = args[0], args[3], args[5]
        if x.numel() == 0:  # torch's kernel of its gradient divides by a size
            raise self.error(f"[native_batch_norm] the input of shape {list(x.shape)} has no "
                             f"elements, which PyTorch does not take here. Call "
                             f"torch.nn.functional.batch_norm, or pass at least one.")
        if training and running_mean is not None:
            with self:
                _, _, _, *statistics = ops.batch_norm(x, *args[1:5], *args[6:])
                for running, value in zip(args[3:5], statistics):
                    running.copy_(value)
            args = *args[:3], None, None, *args[5:]
        return self._plain(aten.native_batch_norm.default, args, kwargs)

    def _batch_norm_with_update(self, func, args, kwargs):
        *arguments, momentum, eps = args
        results = self._native_batch_norm(func, (*arguments, True, momentum, eps), kwargs)
        with self:
            return *results, torch.empty(0, dtype=torch.uint8)

    def _decomposed(self, func, args, kwargs):
        out = self._taken_apart(func, args, kwargs)
        return self._plain(func, args, kwargs) if out is NotImplemented else out

    def _decomposed_in_place(self, func, args, kwargs):
        """In place, or with ``out=``: what the decomposition gives, copied there."""
        named = {name: kwargs[name] for _, name in mutated_arguments(func) if name in kwargs}
        others = {name: value for name, value in kwargs.items() if name not in named}
        found = self._taken_apart(functional_form(func), args, others)
        targets = list(named.values()) or [args[0]]
        results = _as_list(found)
        if found is NotImplemented or not all(map(fits, results, targets)):
            return self._plain(func, args, kwargs)
        with self:
            for target, result in zip(targets, results, strict=True):
                target.copy_(result)
        return targets[0] if len(targets) == 1 else tuple(targets)

    def _polygamma_in_place(self, func, args, kwargs):
        x, n = args
        with self:
            return x.copy_(torch.polygamma(n, x))

    def _taken_apart(self, func, args, kwargs):
        """The result of a decomposition, in the type and the memory that PyTorch gives it;
        NotImplemented if there is none for these arguments."""
        if any(isinstance(x, torch.Tensor) and x.is_complex() for x in (*args, *kwargs.values())):
            return NotImplemented
        expected = self._expected(func, tuple(map(self._faked, args)), self._faked(kwargs))
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
        laid = list(map(self._laid_as, results, expected))
        return tuple(laid) if several else laid[0]

    def _expected(self, func, args, kwargs):
        """What PyTorch gives for fake tensors, with eager's strides."""
        try:
            by_rule = func(*args, **kwargs)
        except Exception:  # the rule may refuse what eager takes
            return self._asked_operator(func, args, kwargs)
        if func is aten.log_sigmoid_backward.default:
            # Eager's buffer is like the operand; by the rule it has no elements, with which one
            # element would be broadcast to none.
            args = (*args[:2], args[1])
        if func not in WRONG_RULES and are_row_major((*args, *kwargs.values())):
            return by_rule
        try:
            return self._asked_operator(func, args, kwargs)
        except RuntimeError:  # only the rule takes these types
            return by_rule

    def _laid_as(self, result, expected):
        """The result of a decomposition, in memory of its own that is like another tensor's."""
        if result.shape != expected.shape:  # a buffer that nothing but its gradient reads
            return result
        root = root_of(self.node_of(result))
        if (root is not self.node_of(result)
                and (result.stride(), result.numel()) != (
                    expected.stride(), self.value_of(root).numel())):
            result = self.run(aten.clone.default, result)
        return self.laid_out(result, expected.stride())

    def _composite(self, func, args, kwargs):
        with self:
            out = private.decompose_composite(func, args, kwargs)
        if out is NotImplemented:
            return self._plain(func, args, kwargs)
        if private.has_cpu_kernel(func) and may_differ_in_strides(func, args):
            return self._laid_as(out, self._asked_operator(func, args, kwargs))
        return out

    def _lift(self, func, args, kwargs):
        """``torch.tensor(...)`` in forward: a fresh constant that may be changed in place."""
        if fake_tensors.is_fake(args[0]):
            return self._same_values(func, args, kwargs)
        out = func(*args, **kwargs)
        node = self.placeholder(out, f"constant_{len(self.constants)}")
        node.meta["fresh"] = True
        self.add_constant(node, args[0])
        return out

    def _zero_tensor(self, func, args, kwargs):
        if args[0]:
            return self._decomposed(func, args, kwargs)
        # The tangent of a Python number: torch itself reads its value.
        with private.without_modes():
            zero = torch.zeros((), dtype=kwargs["dtype"])
        self._constant_node(zero).meta["fresh"] = True
        return zero

    def _random(self, func, args, kwargs):
        generator = kwargs.get("generator")
        if generator is not None:
            self._warn_of_generator(func)
            kwargs = {**kwargs, "generator": None}
        salt = self._draw_salt(generator)
        out, node = self._record(func, args, kwargs)
        if func.overloadpacket.__name__.endswith("_like") and \
                kwargs.get("memory_format") in (None, torch.preserve_format):
            out = self.as_copy_of(args[0], out)
        node.meta["salt"] = salt
        return out

    def _warn_of_generator(self, func) -> None:
        place = place_text(self.places.here(), self.module)
        if place in self._generators_met:
            return
        self._generators_met.add(place)
        logger.warning(
            "[%s] generator= is a torch.Generator, but the device draws the numbers: they are "
            "others in each call, and its seed does not choose them. Set Options.randomSeed, or "
            "draw outside of forward and pass the numbers in.%s", func.overloadpacket.__name__,
            f"\n  at {place}" if place else "")


def _as_list(results) -> list:
    return list(results) if isinstance(results, (tuple, list)) else [results]
