"""Emits the weight update: which op updates which parameter, with which state and numbers."""

from collections.abc import Callable
from functools import partial

import torch

from poptorch import _C
from poptorch._base.types import ir_dtype
from poptorch._optimizer import combined
from poptorch._optimizer.captured_formula import Formulas
from poptorch._optimizer.device_settings import is_combined
from poptorch._optimizer.factor import GradientFactor, number
from poptorch._optimizer.layout import GroupLayout, UpdateLayout
from poptorch._optimizer.spec import COUNT, STEP, OptimizerSpec, Setting
from poptorch._translate.tensor_names import UPDATED
from poptorch.errors import Error


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
    layout, formulas = UpdateLayout(spec), Formulas(e)
    names = {id(tensor): name for name, tensor in program.states.items()}
    for number, group in enumerate(groups):
        found = [(names[id(p)], p) for p in group["params"]
                 if id(p) in names and names[id(p)] in gradients]
        compiled = GroupLayout(f"optimizer.group{number}", spec.compiled_in(group), found)
        if is_combined(group):
            compiled.velocity_scaling = float(group["velocity_scaling"])
        layout.groups.append(compiled)
        if found:
            scale = factor.of(e, group, compiled.stream)
            update = _OpUpdate(e, spec, group, scale, factor.skip) if spec.op else \
                _FormulaUpdate(formulas, spec, group, scale, factor.skip)
            _GroupUpdate(program, group, compiled, update, factor).emit(gradients, count_of)
    if program.bound:
        program.bound |= factor.bound(e)
    return layout


class _OpUpdate:
    """The update by the native op of the row."""

    def __init__(self, e, spec: OptimizerSpec, group: dict, scale, skip):
        self.e, self.spec = e, spec
        self._values = {"grad_scale": scale, "skip": skip}
        self._row = _C.op_row(spec.op)
        self._operands = [name.rstrip("?*") for name in self._row["operands"]]
        self._attrs = {name: bool(group.get(name)) for name in spec.flags}
        self._names = {state.key: state.operand or state.key for state in spec.states}

    def emit(self, own: dict, hyper, counter: tuple) -> dict:
        """Appends the update of one parameter.

        Args:
            own: the values of parameter, gradient and states, by ``param``, ``grad`` and key.
            hyper: the value of the vector of hyper-parameters.
            counter: path and value of the count of updates, this one included.

        Returns:
            The new values of the parameter and of the states, by the same names.
        """
        values = {self._names.get(key, key): value for key, value in own.items()}
        values |= {"hyper": hyper, "step": counter[1], **self._values}
        operands = [values.get(name) for name in self._operands]
        while operands[-1] is None:
            operands.pop()
        results = self.e.plain(self.spec.op, operands, self._attrs)
        made = dict(zip((name.rstrip("?*") for name in self._row["results"]), results))
        return {key: made[self._names.get(key, key)] for key in own if key != "grad"}


class _FormulaUpdate:
    """The update by the formula of the row."""

    def __init__(self, formulas: Formulas, spec: OptimizerSpec, group: dict, scale, skip):
        self.e, self.spec, self._formulas = formulas.emitter, spec, formulas
        self._scale, self._skip = scale, skip
        self._flags = {name: bool(group.get(name)) for name in spec.flags}
        self._numbers: dict = {}

    def emit(self, own: dict, hyper, counter: tuple) -> dict:
        """As :meth:`_OpUpdate.emit`."""
        if not self._numbers:
            self._numbers = {known.name: number(self.e, hyper, index)
                             for index, known in enumerate(self.spec.hyper)}
        path, step = counter
        return self._formulas.emit(self.spec, self._flags, own, {**self._numbers, "step": step},
                                   shared=path, scale=self._scale, skip=self._skip)


class _GroupUpdate:
    """Emits the updates of one parameter group."""

    def __init__(self, program, group: dict, compiled: GroupLayout, update,
                 factor: GradientFactor):
        e, spec = self.e, self.spec = update.e, update.spec
        self.program, self.group, self.compiled = program, group, compiled
        self.update, self.factor = update, factor
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
        """Appends the updates.

        Args:
            gradients: of all parameters, by name.
            count_of: how many updates a parameter, of a name, has had.
        """
        for name, parameter in self.compiled.params:
            states = self.spec.states_of(self.group, gradients[name].sizes)
            counter = self._counter(count_of(name, parameter) if states else 0.0)
            self._update(name, parameter, gradients[name], states, counter)
            for setting in self.spec.settings:
                self.program.bound[setting.of(name)] = partial(self._setting, setting)

    def _update(self, name: str, parameter, gradient, states: list, counter: tuple) -> None:
        own_type, sizes = ir_dtype(parameter.dtype), list(gradient.sizes)
        before = self.program.changed.get(name)
        if before is None:
            before = self.e.state(name, "parameter", own_type, sizes)
        own = {"param": before, "grad": gradient}
        if states:
            self.compiled.states.append((counter[0], name, COUNT))
        for state in states:
            path = self._path(state, name)
            dtype = ir_dtype(state.dtype_for(parameter, self.group))
            own[state.key] = self.e.state(path, "optimizer", dtype, self._sizes(state, name, sizes))
            self.compiled.states.append((path, name, state.key))
        velocities = self.factor.velocities
        if velocities is not None and name in velocities.begun:
            new = combined.emit(self.e, own, self.hyper)
        else:
            new = self.update.emit(own, self.hyper, counter)
        self._bind(name, UPDATED + name, new["param"])
        for state in states:
            self._bind(self._path(state, name), state.of(name), new[state.key])
        if states:
            self.program.bound[f"{STEP}___{name}"] = lambda: counter[1]

    def _path(self, state, name: str) -> str:
        return f"{self.compiled.stream}.{state.key}.{name}"

    def _sizes(self, state, name: str, sizes: list[int]) -> list[int]:
        if state.sizes is not None and name in self.program.weight_groups:
            raise Error(f"[optimizer] {self.spec.name} keeps {state.key} of other sizes than "
                        f"{name}, which has a value for each group of replicas: that is not "
                        f"implemented. Use another optimizer for it, or one value for all "
                        f"replicas.")
        return state.sizes_for(sizes)

    def _bind(self, path: str, name: str, value) -> None:
        self.e.plain("assign", [value], {"path": path}, [])
        self.program.updated.add(path)
        self.program.bound[name] = lambda: value

    def _setting(self, setting: Setting):
        """The value of a setting, float32 without dimensions."""
        e, product = self.e, None
        for name in setting.hyper:
            factor = number(e, self.hyper, self.spec.index_of(name))
            product = factor if product is None else e.op("mul", product, factor)
        if setting.is_complement:
            one = e.op("cast", e.constant(1.0, torch.float32), dtype=_C.DType(product.dtype))
            product = e.op("sub", one, product)
        if setting.over_loss_scale and self.factor.loss_scale is not None:
            product = e.op("div", product, e.op(
                "cast", self.factor.loss_scale, dtype=_C.DType(product.dtype)))
        return e.cast(product, torch.float32)
