"""Builds the module of a whole step: loops, streams, states, forward, backward and update.

    main:       loop {body=@iteration, count=D}
    iteration:  [loop {body=@micro, count=G}, or the micro-step itself when G = 1],
                all_reduce over replicas, optimizer update
    micro:      stream_in, forward and backward, accumulate, stream_out

D is the number of device iterations, G the gradient accumulation.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from poptorch import _C
from poptorch._annotations.strategy_rows import _IExecutionStrategy
from poptorch._base.types import ir_dtype, ir_type, real_dtype, unnarrowed
from poptorch._capture.graph.captured import OutputSpec
from poptorch._translate import integer_ranges, reduction
from poptorch._translate.emitter import Emitter, Precision
from poptorch._translate.loss_scale import LossScale
from poptorch._translate.nodes import Nodes, part_of
from poptorch._translate.overlaps import check_overlaps, overlap_attrs
from poptorch._translate.partition import emit_strategy, partition_of
from poptorch._translate.recomputation import recomputed
from poptorch._translate.replica_groups import ReplicaGroups, WeightGroups
from poptorch._translate.sharding import Shards, shards_of, sources
from poptorch._translate.tensor_names import GRADIENT, GRADIENT_NORM, TensorNames
from poptorch.enums import MeanReductionStrategy, Recomputation, SyncPattern
from poptorch.errors import Error, error_at
from poptorch.strategies import Partition, PipelinedExecution


@dataclass(frozen=True)
class StepSpec:
    """What surrounds the captured graph, as the options say it.

    Gradients are reduced over ``replicas``; ``input_group_size`` of them read the same inputs.
    ``weight_groups`` has the weights with a value for each group of replicas. ``anchors`` are
    ``(short name, name)`` of tensors that the host gets too. ``locations`` has role and attributes
    of each op ``tensor_location``. States of the optimizer, or weights, of more than
    ``sharded_optimizer`` or ``sharded_weights`` elements are sharded; None: none are.
    """

    training: bool
    device_iterations: int = 1
    accumulation: int = 1
    replicas: int = 1
    input_group_size: int = 1
    weight_groups: tuple[tuple[str, WeightGroups], ...] = ()
    mean: bool = True
    mean_strategy: MeanReductionStrategy | None = None
    automatic_loss_scaling: bool = False
    clip_norm: float | None = None
    clip_value: float | None = None
    synthetic_data: bool = False
    keep_gradients: bool = False
    anchors: tuple[tuple[str, str], ...] = ()
    stochastic_rounding: bool = False
    float16_partials: bool = False
    strategy: _IExecutionStrategy = field(default_factory=PipelinedExecution)
    io_tiles: int = 0
    sync_pattern: SyncPattern = SyncPattern.Full
    recomputation: Recomputation = Recomputation.Auto
    locations: tuple[tuple[str, tuple[tuple[str, str | int], ...]], ...] = ()
    sharded_optimizer: int | None = None
    sharded_weights: int | None = None

    @property
    def precision(self) -> Precision:
        """How 16-bit numbers are computed."""
        return Precision(self.stochastic_rounding, self.float16_partials)

    def reducing(self, path: str) -> ReplicaGroups:
        """The groups of replicas whose gradients of a parameter become one."""
        return dict(self.weight_groups).get(path, ReplicaGroups(self.replicas, self.replicas))

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one call, over all groups of replicas."""
        return (self.device_iterations * self.accumulation * self.replicas
                // self.input_group_size)

    @property
    def micro_batch_formula(self) -> str:
        """How that number comes about, for messages."""
        names, values = zip(*[(name, value) for name, value in (
            ("device_iterations", self.device_iterations),
            ("gradient_accumulation", self.accumulation),
            ("replication_factor", self.replicas)) if self.training or name[0] != "g"])
        left, numbers = " * ".join(names), " * ".join(map(str, values))
        if self.input_group_size > 1:
            left, numbers = f"{left} / input_group_size", f"{numbers} / {self.input_group_size}"
        return f"{left} = {numbers} = {self.micro_batches}"


@dataclass
class Program:
    """A translated module and the names by which the host talks to it.

    ``inputs`` has the stream of each tensor input that the graph reads, by position, and
    ``layouts`` its memory layout, where that makes a difference; ``reshaped`` has the methods
    that change the shapes of tensor inputs, by position; ``outputs`` has ``(stream, output spec)``.
    ``states`` are the host tensors of parameters, buffers and captured tensors by
    path; a run changes those in ``updated``, and ``changed`` has the values of trained parameters
    that ``forward`` itself changes. ``bound`` makes the tensors of the update by name, until all is
    translated. ``shards`` makes the ops of sharded tensors; ``sharding`` is its report.
    """

    module: object
    partition: Partition | None = None
    inputs: dict[int, str] = field(default_factory=dict)
    layouts: dict[int, tuple] = field(default_factory=dict)
    reshaped: dict[int, list] = field(default_factory=dict)
    outputs: list = field(default_factory=list)
    states: dict[str, torch.Tensor] = field(default_factory=dict)
    weight_groups: dict[str, WeightGroups] = field(default_factory=dict)
    updated: set[str] = field(default_factory=set)
    changed: dict[str, object] = field(default_factory=dict)
    optimizer: object = None
    bound: dict[str, Callable] = field(default_factory=dict)
    shards: Shards | None = None
    sharding: dict[str, dict[str, str]] = field(default_factory=dict)
    tensor_names: list[str] = field(default_factory=list)
    host_sites: list = field(default_factory=list)


def translate(captured, spec: StepSpec, optimizer=None) -> Program:
    """Translates a captured graph into the module of a whole step.

    ``optimizer`` is for training: an ``OptimizerLink``, which appends the update and says what
    types sums of gradients have. What cannot be translated is an Error with the user's place.
    """
    return _Translation(captured, spec, optimizer).program


class _Translation:
    """The state of one translation: a graph after the other, innermost last."""

    def __init__(self, captured, spec: StepSpec, optimizer):
        # A region that runs once is where its node is; loops will be graphs of the module.
        captured = recomputed(captured)
        self.captured = captured
        self.spec = spec
        partition = partition_of(captured, spec)
        check_overlaps(captured, spec, partition)
        self.program = Program(_C.Module(), partition,
                               weight_groups=dict(spec.weight_groups),
                               host_sites=captured.host_sites)
        self.program.reshaped = {position: spec.reshaped for position, spec in
                                 enumerate(captured.inputs) if spec.reshaped}
        self.optimizer = optimizer
        self.scaling = self._loss_scale()
        self.velocities = None  # that gradients are added to
        self.large = None  # large elements of 16-bit gradients, where it is needed
        self.names = TensorNames(captured)
        self._parameters = {spec.name: spec.tensor for spec in captured.inputs
                            if spec.kind == "param"}
        self._sum_dtypes = {} if optimizer is None else optimizer.sum_dtypes(
            {spec.name: (self._parameters[spec.name], real_dtype(spec.node.meta["val"].dtype))
             for spec in self._gradient_outputs()})
        self.shards = self.program.shards = shards_of(captured, spec, self.optimizer, partition)
        self.program.sharding = self.shards.report
        self.whole: dict[str, object] = {}  # sharded weights, gathered
        module = self.program.module
        main = Emitter(module, module.add_graph("main"))
        emit_strategy(main, self.program.partition, spec)
        for role, attrs in spec.locations:
            main.graph.op("tensor_location", [], {"role": role, **dict(attrs)}, [])
        main.loop("iteration", spec.device_iterations, [])
        main.graph.outputs = []
        iteration = Emitter(module, module.add_graph("iteration"), spec.precision)
        self._iteration(iteration)
        self._anchor_updates(iteration)
        iteration.advance_rng()  # the update alone may round by chance
        iteration.graph.outputs = []

    def _loss_scale(self) -> LossScale | None:
        loss = [spec.node for spec in self.captured.outputs if spec.kind == "loss"]
        has_scale = self.spec.training and (
            self.spec.automatic_loss_scaling or self.optimizer.has_loss_scale)
        if not has_scale or not loss or not self._gradient_outputs():
            return None
        return LossScale(self.spec, loss[0].meta["val"].dtype)

    def _iteration(self, e: Emitter) -> None:
        if not self.spec.training:
            self._micro_step(e)
        elif self.spec.accumulation == 1:
            self._update(e, self._micro_step(e))
        else:
            self._update(e, self._accumulated(e))

    def _accumulated(self, e: Emitter) -> dict:
        """Loops over micro-batches; returns the combined gradient of each parameter."""
        specs = self._gradient_outputs()
        e.part = "backward"
        self.velocities = self._velocities(e, specs)
        begun = self.velocities.begun if self.velocities is not None else {}
        zeros = [begun.get(spec.name) or
                 self._zero(e, self._sum_dtypes[spec.name], ir_type(spec.node.meta["val"])[1])
                 for spec in specs]
        names = [spec.name for spec in specs]
        counts = self.scaling is not None and self.scaling.is_automatic
        if counts:
            zeros.append(self._zero(e, torch.float32, []))
            names.append("large")
        factors = self.velocities.factors if begun else {}
        zeros += factors.values()
        names += (f"factor.{stream}" for stream in factors)
        weights = self._gathered_weights(e)
        zeros += weights.values()
        names += (f"whole.{path}" for path in weights)
        micro = Emitter(self.program.module, self.program.module.add_graph("micro"),
                        self.spec.precision)
        micro.salts = e.salts  # a draw is named by its salt and the random state, which may agree
        micro.part = "backward"
        carried = [micro.named("input", f"sum.{name}", {"index": i}, z.dtype, list(z.sizes))
                   for i, (z, name) in enumerate(zip(zeros, names))]
        kept = carried[len(carried) - len(factors) - len(weights):]
        factor_of = dict(zip(factors, kept))
        self.whole = dict(zip(weights, kept[len(factors):]))
        gradients = self._micro_step(micro)
        micro.part = "backward"
        sums = []
        for total, spec in zip(carried, specs):
            operands = [total, gradients[spec.name]]
            if spec.name in begun:
                operands.append(factor_of[self.velocities.factor_of[spec.name]])
            scale = 1.0 / reduction.of(self.spec, total, spec.name).each
            sums += micro.plain("accumulate", operands, {"scale": scale})
        if counts:
            sums.append(micro.plain("add", [carried[len(specs)], self.large], {})[0])
        micro.advance_rng()  # sums alone may be rounded by chance
        e.has_advanced_rng = micro.has_advanced_rng
        micro.graph.outputs = [*sums, *kept]
        results = e.loop("micro", self.spec.accumulation, zeros)
        self.whole = dict(zip(weights, results[len(results) - len(weights):]))
        if counts:
            self.large = results[len(specs)]
        return {spec.name: value for spec, value in zip(specs, results)}

    def _gathered_weights(self, e: Emitter) -> dict:
        """The sharded weights that micro-batches read, as whole tensors."""
        e.part = "forward"
        found = {}
        for node, spec in sources(self.captured):
            if spec.name in self.shards.weights and node.users:
                found[spec.name] = self.shards.weight(e, spec)
        e.part = "backward"
        return found

    def _velocities(self, e: Emitter, specs: list[OutputSpec]):
        """The states that gradients are added to; None: there are none."""
        shown = {name for _, name in self.spec.anchors
                 if name.startswith(GRADIENT) or name == GRADIENT_NORM}
        if self.spec.keep_gradients or shown:
            return None
        params = {spec.name: self._parameters[spec.name] for spec in specs}
        if not self.optimizer.adds_to_velocities(self.spec, params):
            return None
        if self.scaling is not None:
            self.scaling.finish(e, {})
        inverse = None if self.scaling is None else self.scaling.inverse
        sizes = {spec.name: ir_type(spec.node.meta["val"])[1] for spec in specs}
        return self.optimizer.velocities(e, self.spec, params, sizes, inverse)

    def _zero(self, e: Emitter, dtype: torch.dtype, sizes: list[int]):
        return e.plain("full", [], {"size": sizes, "fill_value": 0.0,
                                    "dtype": _C.DType(ir_dtype(dtype))})[0]

    def _gradient_outputs(self) -> list:
        return [spec for spec in self.captured.outputs if spec.kind == "grad"]

    def _micro_step(self, e: Emitter) -> dict:
        """Streams in, forward and backward, streams out; returns the gradients by parameter."""
        e.part = "forward"
        nodes = Nodes(e, has_blocks=bool(self.captured.blocks))
        anchored = {short: self.names.nodes[name] for short, name in self.spec.anchors
                    if name in self.names.nodes}
        for position, (node, spec) in enumerate(sources(self.captured)):
            if node.users or node in anchored.values():
                nodes.values[node] = self._source(e, position, node, spec)
            if spec.kind == "constant":
                nodes.ranges[node] = integer_ranges.of_constant(spec.tensor)
        for node in self.captured.graph.nodes:
            if self.scaling is not None and node.meta.get("seed"):
                e.part = "backward"
                nodes.values[node] = self.scaling.seed(e, node)
            elif node.op == "call_function":
                nodes.translate(node)
        e.notes, e.place = {}, None
        for short, node in anchored.items():
            e.part = part_of(node)
            self._anchor(e, short, nodes.narrowed_value(node))
        gradients = self._sinks(e, nodes)
        e.part = "backward"
        if self.scaling is not None and self.scaling.is_automatic:
            self.large = self.scaling.count_large(e, gradients)
        e.advance_rng()
        return gradients

    def _source(self, e: Emitter, position: int, node, spec):
        val = node.meta["val"]
        type_ = _source_type(node, spec)
        if spec.kind == "input" and self.spec.synthetic_data:
            return e.synthetic(spec.name, val)
        if spec.kind == "input":
            self.program.inputs[position] = f"input.{spec.name}"
            if spec.layout is not None:
                self.program.layouts[position] = spec.layout
            attrs = {"stream": f"input.{spec.name}",
                     **overlap_attrs(self.captured, True, spec.name)}
            return e.named("stream_in", spec.name, attrs, *type_)
        if spec.kind == "constant":
            fits = integer_ranges.fits_int32(integer_ranges.of_constant(spec.tensor))
            with unnarrowed(*(() if fits else (torch.int64,))):
                return e.constant(spec.tensor, spec.tensor.dtype)
        self.program.states[spec.name] = spec.tensor
        if spec.name in self.shards.weights:
            return self.whole.get(spec.name) or self.shards.weight(e, spec)
        role = "parameter" if spec.kind == "param" else "buffer"
        return e.state(spec.name, role, *type_)

    def _sinks(self, e: Emitter, nodes: Nodes) -> dict:
        gradients, rebound, index = {}, {}, 0
        for spec in self.captured.outputs:
            if spec.kind == "loss":
                continue
            e.part = part_of(spec.node)
            value = nodes.narrowed_value(spec.node)
            if spec.kind == "grad":
                gradients[spec.name] = value
            elif spec.kind == "buffer_update":
                rebound[spec.name] = value, e.part
            else:
                stream = f"{spec.kind}.{index if spec.kind == 'output' else spec.name}"
                index += spec.kind == "output"
                attrs = {"stream": stream}
                if spec.kind == "output":
                    attrs |= overlap_attrs(self.captured, False, spec.name)
                e.plain("stream_out", [value], attrs, [])
                spec.is_complex = spec.node.meta["val"].is_complex()
                self.program.outputs.append((stream, spec))
        for path, (value, e.part) in rebound.items():
            if path in gradients:
                self._change_trained(e, path, value)
            else:
                self._assign(e, path, value)
        return gradients

    def _change_trained(self, e: Emitter, path: str, value) -> None:
        """``forward`` changes a parameter that the optimizer updates after it."""
        if self.spec.accumulation > 1:
            raise Error(f"[translate] forward changes the trained parameter {path} in place, and "
                        f"gradientAccumulation({self.spec.accumulation}) runs it "
                        f"{self.spec.accumulation} times for each update of {path}. Use "
                        f"gradientAccumulation(1), or change it outside forward.")
        self.program.changed[path] = value

    def _assign(self, e: Emitter, path: str, value) -> None:
        if self._note_state(path):
            e.state(path, "buffer", value.dtype, list(value.sizes))
        e.plain("assign", [value], {"path": path}, [])
        self.program.updated.add(path)

    def _note_state(self, path: str) -> bool:
        """Notes a state that is written, which needs its place though nothing may read it; returns
        whether it is a new one."""
        if path in self.program.states:
            return False
        self.program.states[path] = next(
            spec.tensor for spec in self.captured.inputs if spec.name == path)
        return True

    def _update(self, e: Emitter, gradients: dict) -> None:
        e.share_rounding(self.spec.replicas)
        e.part = "backward"
        for name in gradients:
            self._note_state(name)
        gradients = {name: reduction.finished(e, self.spec, g, name, self._sum_dtypes[name],
                                              self.shards)
                     for name, g in gradients.items()}
        if self.scaling is not None:
            if self.scaling.inverse is None:
                self.scaling.finish(e, gradients)
            if self.scaling.is_automatic:
                self.scaling.advance(e, self.large)
        e.part = "update"
        gradients, factor = self.optimizer.factor(e, self.spec, self.program, gradients,
                                                  self.scaling)
        factor.velocities = self.velocities
        if self.spec.keep_gradients:
            for name, value in gradients.items():
                stream = f"Gradient___{name}"
                value = self.shards.whole(e, name, factor.applied(e, value))
                e.plain("stream_out", [value], {"stream": stream}, [])
                self.program.outputs.append((stream, None))
        for short, name in self.spec.anchors:
            path = name.removeprefix(GRADIENT)
            if path in gradients and name.startswith(GRADIENT):
                value = factor.applied(e, gradients[path])
                self._anchor(e, short, self.shards.whole(e, path, value))
        self.program.optimizer = self.optimizer.emit_update(e, self.program, gradients, factor,
                                                            self.whole)
        for path in sorted(self.program.changed.keys() - self.program.updated):
            self._assign(e, path, self.program.changed[path])

    # -- anchors -------------------------------------------------------------------------------

    def _anchor(self, e: Emitter, short: str, value) -> None:
        stream = f"anchor.{short}"
        e.plain("stream_out", [value], {"stream": stream}, [])
        self.program.outputs.append((stream, OutputSpec("anchor", short, None)))

    def _anchor_updates(self, e: Emitter) -> None:
        """Those of the update; and a check that every anchor has found its tensor."""
        bound = self.program.bound
        self.program.tensor_names = self.names.all(list(bound))
        for short, name in self.spec.anchors:
            if name not in self.program.tensor_names:
                raise self.names.unknown(name, list(bound))
            if name in bound:
                self._anchor(e, short, bound[name]())
        bound.clear()  # the values need the whole module


def _source_type(node: torch.fx.Node, spec) -> tuple[str, list[int]]:
    """The IR's dtype and sizes of a source; an error names the source and its use."""
    try:
        return ir_type(node.meta["val"])
    except Error as error:
        what = f"{_KINDS[spec.kind]} {spec.name!r}" if spec.kind in _KINDS else "a tensor"
        user = next((user.meta for user in node.users if user.meta.get("place")), {})
        text = error.message.replace("] ", f"] {what}: ", 1)
        raise error_at(text, user.get("place"), user.get("module") or "") from None


_KINDS = {"param": "parameter", "buffer": "buffer", "input": "input"}
