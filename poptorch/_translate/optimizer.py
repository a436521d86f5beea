"""The weight update: which op updates which parameter, with which state and hyper-parameters."""

from dataclasses import dataclass, field

import torch

from poptorch import _C
from poptorch._translate.types import ir_dtype
from poptorch.errors import Error


@dataclass(frozen=True)
class Kind:
    """One kind of update: an op, and how it reads torch's parameter groups.

    Attributes:
        op: name of the op row.
        hyper: group keys in the order of the op's hyper-parameter vector; ``betas.0`` is the
            first item of ``betas``.
        flags: group keys that are attributes of the op, compiled in.
        states: operand name -> key of torch's optimizer state, for tensors like the parameter.
    """

    op: str
    hyper: tuple[str, ...]
    flags: tuple[str, ...]
    states: dict[str, str]


_SGD = Kind("sgd_update", ("lr", "momentum", "dampening", "weight_decay"),
            ("nesterov", "maximize"), {"momentum_buffer": "momentum_buffer"})
_ADAM = Kind("adam_update", ("lr", "betas.0", "betas.1", "eps", "weight_decay"),
             ("amsgrad", "maximize", "decoupled_weight_decay"),
             {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq",
              "max_exp_avg_sq": "max_exp_avg_sq"})

# Most derived class first: torch's AdamW is an Adam.
_KINDS = ((torch.optim.AdamW, _ADAM), (torch.optim.Adam, _ADAM), (torch.optim.SGD, _SGD))


def kind_of(optimizer: torch.optim.Optimizer) -> tuple[type, Kind]:
    """The class of the table that the optimizer belongs to, and its kind.

    Raises:
        poptorch.Error: It belongs to none; the message lists those that can be used.
    """
    for cls, kind in _KINDS:
        if isinstance(optimizer, cls):
            return cls, kind
    raise Error(f"[optimizer] {type(optimizer).__name__} has no update op on the device. Use one "
                f"of: {', '.join(cls.__name__ for cls, _ in reversed(_KINDS))} (of poptorch.optim "
                f"or torch.optim).")


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


@dataclass
class UpdateLayout:
    """What is compiled for a whole optimizer: its kind and its groups."""

    cls: type
    kind: Kind
    groups: list[GroupLayout] = field(default_factory=list)

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
        known, kind = next(row for row in _KINDS if row[0].__name__ == data["class"])
        groups = [GroupLayout(group["stream"], group["step"],
                              [(name, parameters[name]) for name in group["params"]],
                              [(path, parameters[name], key)
                               for path, name, key in group["states"]], tuple(group["flags"]))
                  for group in data["groups"]]
        return cls(known, kind, groups)


def hyper_values(kind: Kind, group: dict) -> list[float]:
    """The hyper-parameter vector of one group, as the op wants it."""
    values = []
    for key in kind.hyper:
        name, _, index = key.partition(".")
        value = group[name][int(index)] if index else group[name]
        values.append(float(value))
    return values


def flag_values(kind: Kind, group: dict) -> tuple:
    """The compiled-in settings of one group."""
    return tuple(bool(group.get(key)) for key in kind.flags) + (_has_momentum(kind, group),)


def _has_momentum(kind: Kind, group: dict) -> bool:
    return kind is _SGD and group["momentum"] != 0


def emit_update(e, program, gradients: dict, link) -> UpdateLayout:
    """Appends the update of every parameter that has a gradient and stands in the optimizer.

    Args:
        e: emitter of the iteration graph.
        program: gets the states that are updated.
        gradients: combined gradient of each parameter, by name.
        link: the executor's ``OptimizerLink``, which knows the optimizer.
    """
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

    def _update(self, name: str, parameter, gradient) -> None:
        type_ = (ir_dtype(parameter.dtype), list(gradient.sizes))
        before = self.program.changed.get(name)
        if before is None:
            before = self.e.state(name, "parameter", *type_)
        values = {"param": before, "grad": gradient, "hyper": self.hyper, "step": self.step}
        for operand, key in self.kind.states.items():
            if self._wants(operand):
                path = f"{self.compiled.stream}.{key}.{name}"
                values[operand] = self.e.state(path, "optimizer", *type_)
                self.compiled.states.append((path, parameter, key))
        attrs = {name: bool(self.group.get(name)) for name, _, _ in self.row["attrs"]}
        results = self.e.plain(self.kind.op, [values.get(o) for o in self.operands], attrs)
        self._bind(name, "param", results[0])
        self.program.bound[name] = results[0]
        for result, operand in zip(results[1:], self.row["results"][1:]):
            operand = operand.rstrip("?*")
            if operand in values:
                self._bind(f"{self.compiled.stream}.{self.kind.states[operand]}.{name}", operand,
                           result)

    def _wants(self, operand: str) -> bool:
        if operand == "momentum_buffer":
            return _has_momentum(self.kind, self.group)
        return operand != "max_exp_avg_sq" or bool(self.group.get("amsgrad"))

    def _bind(self, path: str, operand: str, value) -> None:
        self.e.plain("assign", [value], {"path": path}, [])
        self.program.updated.add(path)
