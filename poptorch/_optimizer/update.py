"""Emits the weight update: which op updates which parameter, with which state and numbers."""

from collections.abc import Callable
from functools import partial

import torch

from poptorch import _C
from poptorch._optimizer.factor import GradientFactor
from poptorch._optimizer.layout import GroupLayout, UpdateLayout
from poptorch._optimizer.spec import COUNT, STEP, OptimizerSpec, Setting
from poptorch._translate.tensor_names import UPDATED
from poptorch._types import ir_dtype


def emit_update(e, program, gradients: dict, spec: OptimizerSpec, groups: list[dict],
                count_of: Callable[[str, torch.Tensor], float],
                factor: GradientFactor) -> UpdateLayout:
    """Appends the update of every parameter that has a gradient and stands in the optimizer.

    Args:
        e: emitter of the iteration graph.
        program: gets the states that are updated, and the values that updates use and make.
        gradients: combined gradient of each parameter, by name.
        spec: the row of the optimizer.
        groups: its parameter groups, with the settings of the device.
        count_of: how many updates a parameter, of a name, has had.
        factor: by which the gradients are multiplied.
    """
    layout = UpdateLayout(spec)
    names = {id(tensor): name for name, tensor in program.states.items()}
    for number, group in enumerate(groups):
        found = [(names[id(p)], p) for p in group["params"]
                 if id(p) in names and names[id(p)] in gradients]
        compiled = GroupLayout(f"optimizer.group{number}", spec.compiled_in(group), found)
        layout.groups.append(compiled)
        if found:
            _GroupUpdate(e, program, spec, group, compiled, factor).emit(gradients, count_of)
    if program.bound:
        program.bound |= factor.bound(e)
    return layout


class _GroupUpdate:
    """Emits the updates of one parameter group."""

    def __init__(self, e, program, spec: OptimizerSpec, group: dict, compiled: GroupLayout,
                 factor: GradientFactor):
        self.e, self.program, self.spec = e, program, spec
        self.compiled, self.group, self.factor = compiled, group, factor
        self.grad_scale = factor.of(e, group, compiled.stream)
        self.states = spec.states_of(group)
        self.row = _C.op_row(spec.op)
        self.operands = [name.rstrip("?*") for name in self.row["operands"]]
        self.attrs = {name: bool(group.get(name)) for name in spec.flags}
        # Numbers of the host, in double: 1 - beta2 in float32 would be off by 1e-5 of itself.
        self.hyper = e.named("stream_in", compiled.stream,
                             {"stream": compiled.stream, "repeat": True}, "f64",
                             [len(spec.hyper)])
        # (path, value after this update) of each counter, by the number of updates so far
        self.counters: dict[float, tuple] = {}

    def _counter(self, count: float) -> tuple:
        if count not in self.counters:
            path = f"{self.compiled.stream}.step"
            if self.counters:
                path += str(len(self.counters))
            before = self.e.state(path, "optimizer", ir_dtype(torch.float64), [])
            one = self.e.constant(1.0, torch.float64)
            after = self.e.plain("add", [before, one], {})[0]
            if self.factor.skip is not None:
                after = self.e.plain("where", [self.factor.skip, before, after], {})[0]
            self.e.plain("assign", [after], {"path": path}, [])
            self.counters[count] = path, after
        return self.counters[count]

    def emit(self, gradients: dict, count_of) -> None:
        for name, parameter in self.compiled.params:
            counter = self._counter(count_of(name, parameter) if self.states else 0.0)
            self._update(name, parameter, gradients[name], counter)
            for setting in self.spec.settings:
                self.program.bound[setting.of(name)] = partial(self._setting, setting)

    def _update(self, name: str, parameter, gradient, counter: tuple) -> None:
        type_ = (ir_dtype(parameter.dtype), list(gradient.sizes))
        before = self.program.changed.get(name)
        if before is None:
            before = self.e.state(name, "parameter", *type_)
        values = {"param": before, "grad": gradient, "hyper": self.hyper, "step": counter[1],
                  "grad_scale": self.grad_scale, "skip": self.factor.skip}
        if self.states:
            self.compiled.states.append((counter[0], name, COUNT))
        kept = {}
        for state in self.states:
            path = f"{self.compiled.stream}.{state.key}.{name}"
            own = ir_dtype(state.dtype_for(parameter, self.group))
            operand = state.operand or state.key
            values[operand] = self.e.state(path, "optimizer", own,
                                           [] if state.has_no_dims else type_[1])
            kept[operand] = path, state.of(name)
            self.compiled.states.append((path, name, state.key))
        operands = [values.get(o) for o in self.operands]
        while operands[-1] is None:
            operands.pop()
        results = self.e.plain(self.spec.op, operands, self.attrs)
        self._bind(name, UPDATED + name, results[0])
        for result, operand in zip(results[1:], self.row["results"][1:]):
            if operand.rstrip("?*") in kept:
                self._bind(*kept[operand.rstrip("?*")], result)
        if kept:
            self.program.bound[f"{STEP}___{name}"] = lambda: counter[1]

    def _bind(self, path: str, name: str, value) -> None:
        self.e.plain("assign", [value], {"path": path}, [])
        self.program.updated.add(path)
        self.program.bound[name] = lambda: value

    def _setting(self, setting: Setting):
        """The value of a setting, float32 without dimensions."""
        e, product = self.e, None
        for name in setting.hyper:
            index = self.spec.index_of(name)
            factor = e.reshape(e.slice(self.hyper, 0, index, index + 1), [])
            product = factor if product is None else e.op("mul", product, factor)
        if setting.is_complement:
            one = e.op("cast", e.constant(1.0, torch.float32), dtype=_C.DType(product.dtype))
            product = e.op("sub", one, product)
        if setting.over_loss_scale and self.factor.loss_scale is not None:
            product = e.op("div", product, e.op(
                "cast", self.factor.loss_scale, dtype=_C.DType(product.dtype)))
        return e.cast(product, torch.float32)
