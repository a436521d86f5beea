"""Captures formulas and appends what they compute to the graph of the update.

A formula is captured once for the types and flags that it is used with; one that is not element by
element for each number of dimensions, too, and one that uses sizes for each shape. All others are
translated for the sizes of the values at hand. What depends on no parameter (powers of the decay
rates, say) is computed once for all parameters of a group that have made equally many updates.
"""

import operator
from collections.abc import Callable, Iterable, Sequence

import torch

from poptorch._base.types import unnarrowed
from poptorch._capture import capture_formula
from poptorch._optimizer.spec import OptimizerSpec
from poptorch._translate.nodes import Nodes


class FormulaNodes(Nodes):
    """Translates a captured formula, for parameters of any sizes. Where each replica has a part of
    the parameter, ``whole`` gathers a value of its sizes."""

    whole: Callable | None = None

    def translate(self, node: torch.fx.Node) -> None:
        if node.target is operator.getitem:
            self.values[node] = self.values[node.args[0]][node.args[1]]
            return
        e = self.emitter
        e.place, e.notes, e.part = None, {}, "update"
        how = self._rules.get(node.target)
        if how is None:
            how = self._rules[node.target] = self.rule_for(node.target)
        operands = tuple(self._operand(a) for a in node.args)
        if self.whole is not None and node.target is torch.ops.aten.sum.default:
            operands = self.whole(operands[0]), *operands[1:]
        named = {key: self._operand(value) for key, value in node.kwargs.items()}
        self.values[node] = how(e, node, *operands, **named)


class CapturedFormula:
    """One formula with types and flags. ``own`` has examples of the inputs that each parameter has
    for itself, ``numbers`` the names of the others."""

    def __init__(self, spec: OptimizerSpec, fixed: dict, own: dict[str, torch.Tensor],
                 numbers: list[str]):
        names, results = [*own, *numbers], [name for name in own if name != "grad"]
        module = torch.nn.Module()

        def forward(*tensors):
            new = spec.evaluate(fixed, dict(zip(names, tensors)))
            return tuple(new[name] for name in results)

        module.forward = forward
        scalars = [torch.empty((), dtype=torch.float64) for _ in numbers]
        captured = capture_formula(module, (*own.values(), *scalars))
        nodes = list(captured.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        self._inputs = dict(zip(names, inputs))
        self._constants = {node: spec.tensor for node, spec in zip(inputs, captured.inputs)
                           if spec.kind == "constant"}
        self._results = {name: spec.node for name, spec in zip(results, captured.outputs)}
        depends = {self._inputs[name] for name in own}
        self._shared, self._nodes = [], []
        for node in nodes:
            if node.op == "call_function":
                is_own = not depends.isdisjoint(node.all_input_nodes)
                depends |= {node} if is_own else set()
                (self._nodes if is_own else self._shared).append(node)

    def emit(self, nodes: FormulaNodes, own: dict, numbers: dict, known: dict) -> dict:
        """Appends the update of one parameter, from the values of its own inputs and of the
        numbers.

        ``known`` has the values of nodes that depend on ``numbers`` alone; it is empty the first
        time.
        """
        if not known:
            known |= {self._inputs[name]: value for name, value in numbers.items()}
            known |= {node: nodes.emitter.constant(tensor, tensor.dtype)
                      for node, tensor in self._constants.items()}
            nodes.values = known
            for node in self._shared:
                nodes.translate(node)
        nodes.values = known | {self._inputs[name]: value for name, value in own.items()}
        for node in self._nodes:
            nodes.translate(node)
        return {name: nodes.values[node] for name, node in self._results.items()}


class Formulas:
    def __init__(self, e):
        self.emitter = e
        self._nodes = FormulaNodes(e)
        self._captured: dict[tuple, CapturedFormula] = {}
        self._known: dict[tuple, dict] = {}

    def emit(self, spec: OptimizerSpec, flags: dict, own: dict, numbers: dict, shared: object,
             scale=None, skip=None, whole: Callable | None = None) -> dict:
        """Appends the update of one parameter; returns the new values by name, in the types of
        ``own``.

        ``numbers`` are hyper-parameters and step, without dimensions; ``shared`` is equal where
        they are the same values. The gradient is multiplied by ``scale``; nothing changes where
        ``skip`` holds. ``whole``: the values are parts, and it gathers one.
        """
        e = self.emitter
        wide = torch.promote_types(e.dtype_of(own["param"]), torch.float32)
        before, (e.place, e.notes) = (e.place, e.notes), (None, {})
        self._nodes.whole = whole
        try:
            with unnarrowed(torch.int64, torch.float64):
                plain = {state.key for state in spec.states if state.has_no_dims}
                # A tensor without dimensions would not keep its type in an operation with a number.
                cast = {name: e.cast(value, torch.float64) if name in plain
                        else e.reshape(e.cast(value, wide), value.sizes or [1])
                        for name, value in own.items()}
                if scale is not None:
                    cast["grad"] = e.op("mul", cast["grad"], e.cast(scale, wide))
                numbers = {name: e.cast(value, torch.float64) for name, value in numbers.items()}
                fixed = {**flags, "dtype": e.dtype_of(own["param"])}
                sizes = _example_sizes(spec, tuple(cast["param"].sizes))
                key = spec.cls, sizes, *fixed.values(), *cast
                if key not in self._captured:
                    self._captured[key] = CapturedFormula(
                        spec, fixed, _examples(spec, cast, wide, sizes), list(numbers))
                new = self._captured[key].emit(self._nodes, cast, numbers,
                                               self._known.setdefault((key, shared), {}))
                return {name: _kept(e, value, own[name], skip) for name, value in new.items()}
        finally:
            e.place, e.notes = before


def _kept(e, value, old, skip):
    """A new value in the type of the old one; the old one where the update is skipped."""
    if list(value.sizes or [1]) != list(old.sizes or [1]):
        raise AssertionError(f"[optimizer] The formula of an optimizer gives {value.type_text} "
                             f"for {old.type_text}. Please report this.")
    value = e.reshape(e.cast(value, e.dtype_of(old)), old.sizes)
    return value if skip is None else e.op("where", skip, old, value)


def _example_sizes(spec: OptimizerSpec, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that a formula is captured with: the same for all parameters that it is emitted
    for."""
    if spec.is_elementwise:
        return (3,)
    return sizes if spec.uses_sizes else tuple(range(3, 3 + len(sizes)))


def _examples(spec: OptimizerSpec, own: Iterable[str], dtype: torch.dtype,
              sizes: Sequence[int]) -> dict[str, torch.Tensor]:
    """Tensors to capture a formula with, for a parameter of these sizes, by name."""
    found = {}
    for name in own:
        state = next((state for state in spec.states if state.key == name), None)
        if state is not None and state.has_no_dims:
            found[name] = torch.empty((), dtype=torch.float64)
        else:
            found[name] = torch.empty(state.sizes_for(sizes) if state else sizes, dtype=dtype)
    return found
