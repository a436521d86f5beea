"""Emits the update that the forms of ``step()`` describe."""

from collections.abc import Sequence

import torch

from poptorch._base.types import ir_dtype, unnarrowed
from poptorch._capture import capture_formula
from poptorch._capture.graph.regions import region_of
from poptorch._optimizer.captured_formula import FormulaNodes
from poptorch._optimizer.gradient_factor import GradientFactor, number
from poptorch._own_step import interpret
from poptorch._own_step.layout import STREAM, StepLayout, program_path
from poptorch._own_step.record import Trace
from poptorch._translate import loops
from poptorch._translate.tensor_names import UPDATED
from poptorch.ops.loops import cond


class StepNodes(FormulaNodes):
    """Translates captured calls of ``step()``, with branches."""

    def translate(self, node: torch.fx.Node) -> None:
        if region_of(node) is not None:
            self.values[node] = loops.emit(self, node)
        else:
            super().translate(node)


def emit_update(e, program, gradients: dict, layout: StepLayout, factor: GradientFactor,
                gathered: dict) -> None:
    """Appends the update of the parameters and states of a layout; ``gathered`` has the whole
    values of sharded weights."""
    before, (e.place, e.notes) = (e.place, e.notes), (None, {})
    try:
        with unnarrowed(torch.int64, torch.float64):
            _emit(e, program, gradients, layout, factor, gathered)
    finally:
        e.place, e.notes = before
    if program.bound:
        program.bound |= factor.bound(e)


def _emit(e, program, gradients: dict, layout: StepLayout, factor: GradientFactor,
          gathered: dict) -> None:
    captured = _Captured(layout)
    stream = e.named("stream_in", STREAM, {"stream": STREAM, "repeat": layout.iterations == 1},
                     "f64", [layout.width])
    values = {}
    for what, node in captured.inputs.items():
        # A state that step() only writes is one of the program all the same.
        if what[0] == "state" or node.users or node in captured.results.values():
            values[node] = _source(e, program, gradients, layout, factor, gathered, what, stream)
    nodes = StepNodes(e)
    nodes.values = values
    for node, tensor in captured.constants.items():
        nodes.values[node] = e.constant(tensor, tensor.dtype)
    for node in captured.nodes:
        nodes.translate(node)
    for what, node in captured.results.items():
        if node is not captured.inputs[what]:
            _assign(e, program, layout, what, nodes.values[node])


def _source(e, program, gradients: dict, layout: StepLayout, factor: GradientFactor,
            gathered: dict, what: tuple, stream):
    """The value of an input of the captured calls."""
    kind, name = what
    if kind == "number":
        return number(e, stream, name)
    if kind == "state":
        tensor = layout.states[name]
        path = program_path(name)
        program.states[path] = tensor
        return e.state(path, "optimizer", ir_dtype(tensor.dtype), list(tensor.shape))
    parameter = layout.params[name]
    if kind == "grad":
        gradient = factor.applied(e, gradients[name])
        return e.cast(gradient, parameter.dtype)
    return _parameter(e, program, gathered, name, parameter)


def _parameter(e, program, gathered: dict, name: str, parameter: torch.Tensor):
    if name in gathered:
        return gathered[name]
    if name in program.changed:
        return program.changed[name]
    sizes, dtype = list(parameter.shape), ir_dtype(parameter.dtype)
    if name in program.shards.weights:
        return program.shards.gathered(
            e, program.shards.state(e, name, "parameter", dtype, sizes), sizes)
    program.states.setdefault(name, parameter)
    return e.state(name, "parameter", dtype, sizes)


def _assign(e, program, layout: StepLayout, what: tuple, value) -> None:
    kind, name = what
    tensor = layout.params[name] if kind == "param" else layout.states[name]
    path = name if kind == "param" else program_path(name)
    value = e.reshape(e.cast(value, tensor.dtype), list(tensor.shape))
    stored = program.shards.part(e, value) if path in program.shards.weights else value
    e.plain("assign", [stored], {"path": path}, [])
    program.updated.add(path)
    program.bound[UPDATED + name if kind == "param" else path] = lambda: value


class _Captured:
    """The captured calls of all forms. ``inputs`` are nodes by the keys of
    :attr:`Trace.inputs`, and by ``("number", place in the stream)``; ``results`` those of what
    changes."""

    def __init__(self, layout: StepLayout):
        traces = layout.traces
        kept = [("param", name) for name in layout.params] + \
               [("state", path) for path in layout.states]
        names = [*kept, *(("grad", name) for name in layout.grads),
                 *(("number", place) for place in range(layout.width))]
        examples = [torch.empty_like(layout.params[name], requires_grad=False)
                    if kind in ("param", "grad")
                    else torch.empty_like(layout.states[name]) if kind == "state"
                    else torch.empty((), dtype=torch.float64) for kind, name in names]
        module = torch.nn.Module()

        def forward(*tensors):
            given = dict(zip(names, tensors))
            return tuple(_computed(traces, given, kept, tensors[-layout.width:]))

        module.forward = forward
        captured = capture_formula(module, tuple(examples))
        placeholders = [node for node in captured.graph.nodes if node.op == "placeholder"]
        self.inputs = dict(zip(names, placeholders))
        self.constants = {node: spec.tensor for node, spec in zip(placeholders, captured.inputs)
                          if spec.kind == "constant"}
        self.nodes = [node for node in captured.graph.nodes if node.op == "call_function"]
        self.results = {what: spec.node for what, spec in zip(kept, captured.outputs)}


def _computed(traces: Sequence[Trace], given: dict, kept: list, numbers: tuple) -> list:
    """The values of ``kept`` after the form that the first number names."""
    form, own = numbers[0], numbers[1:]
    if len(traces) == 1:
        found = interpret.run(traces[0], given, own)
        return [found.get(what, given[what]) for what in kept]
    results = [given[what] for what in kept]
    rest = [what for what in given if what[0] == "grad"]
    for index, trace in enumerate(traces):
        def updated(*tensors, trace=trace):
            inner = dict(zip([*kept, *rest], tensors))
            found = interpret.run(trace, inner, own)
            return [found.get(what, inner[what]) for what in kept]

        inputs = [*(given[what] for what in kept), *(given[what] for what in rest)]
        results = cond(form == index, updated, inputs, lambda *same: list(same), results)
    return results
