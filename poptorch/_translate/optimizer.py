"""The weight update: which op updates which parameter, with which state and hyper-parameters."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch

from poptorch import _C
from poptorch import _schema as schema
from poptorch._translate.optimizer_kinds import (
    KINDS,
    LOSS_SCALING,
    STEP,
    Kind,
    Setting,
    flag_values,
    has_momentum,
    hyper_values,
    kind_of,
    state_name,
)
from poptorch._translate.tensor_names import UPDATED
from poptorch._translate.types import ir_dtype


@dataclass
class GroupLayout:
    """What is compiled for one parameter group.

    Attributes:
        stream: of the group's hyper-parameters.
        step: path of the group's step counter state.
        params: ``(parameter name, parameter)`` of those that are updated.
        states: ``(path, parameter, key)`` of state tensors.
        flags: values of the compiled-in settings.
    """

    stream: str
    step: str
    params: list = field(default_factory=list)
    states: list = field(default_factory=list)
    flags: tuple = ()


class StateEntry(NamedTuple):
    """A state of one parameter.

    Attributes:
        name: outside.
        path: on the device; parameters of one group share their ``Step``.
        parameter: its name.
        tensor: the parameter itself.
        key: what torch's optimizer calls it.
    """

    name: str
    path: str
    parameter: str
    tensor: torch.Tensor
    key: str


@dataclass
class UpdateLayout:
    """What is compiled for a whole optimizer: its kind and its groups."""

    cls: type
    kind: Kind
    groups: list[GroupLayout] = field(default_factory=list)

    def entries(self) -> Iterator[StateEntry]:
        """The states of all parameters."""
        for group in self.groups:
            names = {id(parameter): name for name, parameter in group.params}
            for path, parameter, key in group.states:
                name = names[id(parameter)]
                yield StateEntry(state_name(self.kind.states[key], name), path, name, parameter,
                                 key)
            for name, parameter in group.params if group.states else ():
                yield StateEntry(state_name(STEP, name), group.step, name, parameter, "step")

    def settings(self, groups: list[dict]) -> dict[str, float]:
        """The numbers that updates use, by the names that they have outside.

        Args:
            groups: the optimizer's parameter groups.
        """
        found = {}
        for group, compiled in zip(groups, self.groups):
            hyper = hyper_values(self.kind, group)
            for setting in self.kind.settings:
                value = setting.value(self.kind, hyper)
                found |= {setting.of(name): value for name, _ in compiled.params}
        return {**found, LOSS_SCALING: 1.0}

    def to_data(self) -> dict:
        """This as plain data, parameters by name."""
        groups = []
        for group in self.groups:
            names = {id(parameter): name for name, parameter in group.params}
            states = [(path, names[id(parameter)], key) for path, parameter, key in group.states]
            groups.append({"stream": group.stream, "step": group.step, "params": list(
                names.values()), "states": states, "flags": group.flags})
        return {"class": self.cls.__name__, "groups": groups}

    @classmethod
    def from_data(cls, data: dict, parameters: dict[str, torch.Tensor]) -> "UpdateLayout":
        """The layout that :meth:`to_data` described, of the parameters of these names."""
        by_name = {known.__name__: (known, kind) for known, kind in KINDS}
        schema.check(data, {"class": {*by_name}, "groups": list}, "optimizer")
        known, kind = by_name[data["class"]]
        form = {"stream": str, "step": str, "params": [str],
                "states": [(str, str, {*kind.states})], "flags": tuple}
        schema.check(data["groups"], [form], "optimizer.groups")
        groups = [GroupLayout(group["stream"], group["step"],
                              [(name, parameters[name]) for name in group["params"]],
                              [(path, parameters[name], key)
                               for path, name, key in group["states"]], tuple(group["flags"]))
                  for group in data["groups"]]
        return cls(known, kind, groups)


def emit_update(e, program, gradients: dict, link) -> UpdateLayout:
    """Appends the update of every parameter that has a gradient and stands in the optimizer.

    Args:
        e: emitter of the iteration graph.
        program: gets the states that are updated, and the values that updates use and make.
        gradients: combined gradient of each parameter, by name.
        link: the executor's ``OptimizerLink``, which knows the optimizer.
    """
    link.check_settings()
    optimizer = link.optimizer
    cls, kind = kind_of(optimizer)
    layout = UpdateLayout(cls, kind)
    names = {id(tensor): name for name, tensor in program.states.items()}
    for number, group in enumerate(optimizer.param_groups):
        found = [(names[id(p)], p) for p in group["params"]
                 if id(p) in names and names[id(p)] in gradients]
        compiled = GroupLayout(f"optimizer.group{number}", "", found,
                               flags=flag_values(kind, group))
        layout.groups.append(compiled)
        if found:
            _GroupUpdate(e, program, kind, group, compiled).emit(gradients)
    if program.bound:
        program.bound[LOSS_SCALING] = partial(e.constant, 1.0, torch.float32)
    return layout


class _GroupUpdate:
    """Emits the updates of one parameter group."""

    def __init__(self, e, program, kind: Kind, group: dict, compiled: GroupLayout):
        self.e, self.program, self.kind = e, program, kind
        self.group, self.compiled = group, compiled
        self.row = next(row for row in _C.op_table() if row["name"] == kind.op)
        self.operands = [name.rstrip("?*") for name in self.row["operands"]]
        # Numbers of the host, in double: 1 - beta2 in float32 would be off by 1e-5 of itself.
        self.hyper = e.named("stream_in", compiled.stream,
                             {"stream": compiled.stream, "repeat": True}, "f64",
                             [len(kind.hyper)])
        self.step = self._step(ir_dtype(torch.float64))

    def _step(self, scalar: str):
        path = self.compiled.step = f"{self.compiled.stream}.step"
        before = self.e.state(path, "optimizer", scalar, [])
        one = self.e.constant(1.0, torch.float64)
        after = self.e.plain("add", [before, one], {})[0]
        self.e.plain("assign", [after], {"path": path}, [])
        return after

    def emit(self, gradients: dict) -> None:
        for name, parameter in self.compiled.params:
            self._update(name, parameter, gradients[name])
            for setting in self.kind.settings:
                self.program.bound[setting.of(name)] = partial(self._setting, setting)

    def _update(self, name: str, parameter, gradient) -> None:
        type_ = (ir_dtype(parameter.dtype), list(gradient.sizes))
        before = self.program.changed.get(name)
        if before is None:
            before = self.e.state(name, "parameter", *type_)
        values = {"param": before, "grad": gradient, "hyper": self.hyper, "step": self.step}
        for key in self.kind.states:
            if self._wants(key):
                path = f"{self.compiled.stream}.{key}.{name}"
                values[key] = self.e.state(path, "optimizer", *type_)
                self.compiled.states.append((path, parameter, key))
        attrs = {name: bool(self.group.get(name)) for name, _, _ in self.row["attrs"]}
        results = self.e.plain(self.kind.op, [values.get(o) for o in self.operands], attrs)
        self._bind(name, UPDATED + name, results[0])
        for result, key in zip(results[1:], self.row["results"][1:]):
            key = key.rstrip("?*")
            if key in values:
                self._bind(f"{self.compiled.stream}.{key}.{name}",
                           state_name(self.kind.states[key], name), result)
                self.program.bound[state_name(STEP, name)] = lambda: self.step

    def _wants(self, operand: str) -> bool:
        if operand == "momentum_buffer":
            return has_momentum(self.kind, self.group)
        return operand != "max_exp_avg_sq" or bool(self.group.get("amsgrad"))

    def _bind(self, path: str, name: str, value) -> None:
        self.e.plain("assign", [value], {"path": path}, [])
        self.program.updated.add(path)
        self.program.bound[name] = lambda: value

    def _setting(self, setting: Setting):
        """The value of a setting, float32 without dimensions."""
        e, product = self.e, None
        for key in setting.keys:
            index = self.kind.hyper.index(key)
            factor = e.reshape(e.slice(self.hyper, 0, index, index + 1), [])
            product = factor if product is None else e.op("mul", product, factor)
        if setting.is_complement:
            one = e.op("cast", e.constant(1.0, torch.float32), dtype=_C.DType(product.dtype))
            product = e.op("sub", one, product)
        return e.cast(product, torch.float32)
