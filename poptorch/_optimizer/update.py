"""Emits the weight update: which op updates which parameter, with which state and numbers."""

from collections.abc import Callable
from functools import partial

import torch

from poptorch import _C
from poptorch._base.types import ir_dtype, real_dtype
from poptorch._optimizer.captured_formula import Formulas
from poptorch._optimizer.gradient_factor import GradientFactor, number, stream, velocity_stream
from poptorch._optimizer.layout import GroupLayout, UpdateLayout
from poptorch._optimizer.settings import is_combined
from poptorch._optimizer.spec import COUNT, STEP, OptimizerSpec, Setting
from poptorch._translate import reduction
from poptorch._translate.emitter import Emitter
from poptorch._translate.tensor_names import UPDATED
from poptorch.errors import Error


def emit_update(e, program, gradients: dict, spec: OptimizerSpec, groups: list[dict],
                count_of: Callable[[str, torch.Tensor], float],
                factor: GradientFactor, gathered: dict) -> UpdateLayout:
    """Appends the update of every parameter that has a gradient and is in the optimizer.
    ``count_of`` returns the updates that a parameter had, from its name and itself; ``gathered``
    has the whole values of sharded weights."""
    layout, formulas = UpdateLayout(spec), Formulas(e)
    names = {id(tensor): name for name, tensor in program.states.items()}
    for index, group in enumerate(groups):
        found = [(names[id(p)], p) for p in group["params"]
                 if id(p) in names and names[id(p)] in gradients]
        compiled = GroupLayout(f"optimizer.group{index}", spec.compiled_in(group), found)
        if is_combined(group):
            compiled.velocity_scaling = float(group["velocity_scaling"])
        layout.groups.append(compiled)
        if found:
            update = _GroupUpdate(program, group, compiled, spec, formulas, factor)
            update.gathered = gathered
            update.emit(gradients, count_of)
    if program.bound:
        program.bound |= factor.bound(e)
    return layout


class _GroupUpdate:
    def __init__(self, program, group: dict, compiled: GroupLayout, spec: OptimizerSpec,
                 formulas: Formulas, factor: GradientFactor):
        e = self.e = formulas.emitter
        self.program, self.group, self.compiled, self.spec = program, group, compiled, spec
        self.formulas, self.factor = formulas, factor
        self.shards, self.gathered = program.shards, {}
        self.scale = factor.of(e, group, compiled.stream)
        # Numbers of the host, in double: 1 - beta2 in float32 would be off by 1e-5 of itself.
        self.hyper = stream(e, compiled.stream, [len(spec.hyper)])
        self._numbers: dict = {}
        # (path, value after this update) of each counter, by the number of updates so far
        self.counters: dict[float, tuple] = {}

    def _number(self, name: str):
        if name not in self._numbers:
            index = [known.name for known in self.spec.hyper].index(name)
            self._numbers[name] = number(self.e, self.hyper, index)
        return self._numbers[name]

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
            self._check_complex(name, parameter)
            sizes = self.shards.states.get(name) or gradients[name].sizes
            states = self.spec.states_of(self.group, sizes)
            counter = self._counter(count_of(name, parameter) if states else 0.0)
            self._update(name, parameter, gradients[name], sizes, states, counter)
            for setting in self.spec.settings:
                self.program.bound[setting.of(name)] = partial(self._setting, setting)

    def _check_complex(self, name: str, parameter) -> None:
        """Refuses an update that does not treat real and imaginary parts separately."""
        if parameter.is_complex() and not self.spec.acts_on_parts:
            raise Error(f"[optimizer] parameter {name} is {parameter.dtype}, and "
                        f"{self.spec.name} is not implemented for complex numbers. Use another "
                        f"optimizer for it, such as Adam, or make it a parameter of pairs of "
                        f"numbers and call torch.view_as_complex in forward.")

    def _update(self, name: str, parameter, gradient, sizes: list, states: list,
                counter: tuple) -> None:
        own = {"param": self._before(name, parameter, list(sizes)), "grad": gradient}
        if states:
            self.compiled.states.append((counter[0], name, COUNT))
        for state in states:
            path = self._path(state, name)
            dtype = ir_dtype(state.dtype_for(parameter, self.group))
            of_state = self._sizes(state, name, sizes)
            is_part = name in self.shards.states and not state.has_no_dims
            read = self.shards.state if is_part else Emitter.state
            own[state.key] = read(self.e, path, "optimizer", dtype, of_state)
            self.compiled.states.append((path, name, state.key))
        velocities = self.factor.velocities
        if velocities is not None and name in velocities.begun:
            new = _combined_update(self.e, own, self.hyper)
        else:
            new = self._by_op(own, counter) if self.spec.op else \
                self._by_formula(name, own, counter)
        self._bind_weight(name, new["param"])
        for state in states:
            self._bind(self._path(state, name), state.of(name), new[state.key],
                       "" if state.has_no_dims else name)
        if states:
            self.program.bound[f"{STEP}___{name}"] = lambda: counter[1]

    def _by_op(self, own: dict, counter: tuple) -> dict:
        """The new values of a parameter and its states, by the op of the row. ``own`` has the old
        ones and the gradient; ``counter`` counts this update, too."""
        row = _C.op_row(self.spec.op)
        values = {**own, "hyper": self.hyper, "step": counter[1], "grad_scale": self.scale,
                  "skip": self.factor.skip}
        operands = [values.get(name.rstrip("?*")) for name in row["operands"]]
        while operands[-1] is None:
            operands.pop()
        results = self.e.plain(self.spec.op, operands, self.spec.compiled_values(self.group))
        made = dict(zip((name.rstrip("?*") for name in row["results"]), results))
        return {key: made[key] for key in own if key != "grad"}

    def _before(self, name: str, parameter, sizes: list[int]):
        """The parameter, or its part, before the update."""
        dtype, e = ir_dtype(real_dtype(parameter.dtype)), self.e
        if name in self.shards.weights:
            if name in self.shards.states or name not in self.gathered:
                part = self.shards.state(e, name, "parameter", dtype, sizes)
                return part if name in self.shards.states else self.shards.gathered(e, part, sizes)
            return self.gathered[name]
        value = self.program.changed.get(name)
        if value is None:
            value = e.state(name, "parameter", dtype, sizes)
        return self.shards.part(e, value) if name in self.shards.states else value

    def _bind_weight(self, name: str, value) -> None:
        """Binds the parameter, from its new value or the part of it."""
        if name in self.shards.weights:
            part = value if name in self.shards.states else self.shards.part(self.e, value)
            self._bind(name, UPDATED + name, part, "")
            self.program.bound[UPDATED + name] = lambda: self.shards.whole(self.e, name, value)
        else:
            self._bind(name, UPDATED + name, self.shards.whole(self.e, name, value), "")

    def _by_formula(self, name: str, own: dict, counter: tuple) -> dict:
        """The same, by the formula of the row."""
        path, step = counter
        numbers = {known.name: self._number(known.name) for known in self.spec.hyper}
        return self.formulas.emit(self.spec, self.spec.compiled_values(self.group), own,
                                  {**numbers, "step": step}, shared=path, scale=self.scale,
                                  skip=self.factor.skip,
                                  whole=partial(self.shards.whole, self.e, name)
                                  if name in self.shards.states else None)

    def _path(self, state, name: str) -> str:
        return f"{self.compiled.stream}.{state.key}.{name}"

    def _sizes(self, state, name: str, sizes: list[int]) -> list[int]:
        if state.sizes is not None and name in self.program.weight_groups:
            raise Error(f"[optimizer] {self.spec.name} keeps {state.key} of other sizes than "
                        f"{name}, which has a value for each group of replicas: that is not "
                        f"implemented. Use another optimizer for it, or one value for all "
                        f"replicas.")
        return state.sizes_for(sizes)

    def _bind(self, path: str, name: str, value, parameter: str) -> None:
        self.e.plain("assign", [value], {"path": path}, [])
        self.program.updated.add(path)
        self.program.bound[name] = lambda: self.shards.whole(self.e, parameter, value)

    def _setting(self, setting: Setting):
        """The value of a setting, float32 without dimensions."""
        e, product = self.e, None
        for name in setting.hyper:
            factor = self._number(name)
            product = factor if product is None else e.op("mul", product, factor)
        if setting.is_complement:
            one = e.op("cast", e.constant(1.0, torch.float32), dtype=_C.DType(product.dtype))
            product = e.op("sub", one, product)
        if setting.over_loss_scale and self.factor.loss_scale is not None:
            product = e.op("div", product, e.op(
                "cast", self.factor.loss_scale, dtype=_C.DType(product.dtype)))
        return e.cast(product, torch.float32)


# -- SGD with use_combined_accum ------------------------------------------------------------------
#
# Gradients of micro-batches are added to the velocities, so there is no other accumulator:
#
#     before the micro-batches   velocity * momentum
#     each of them               + gradient / loss scale * velocity_scaling / divisors of means
#     after them                 the new velocity, but for weight decay, which the update adds
#
# What is added must be known at once. Gradients are added up first, with the same result, where the
# norm of all gradients limits them, an overflow may skip the update, the gradients may be read, or
# ``dampening`` may not be 0.

_VELOCITY = "momentum_buffer"


class Velocities:
    """The velocities of one program that gradients are added to. ``begun`` has their values before
    the micro-batches, by parameter. Gradients are multiplied by ``factors``; ``factor_of`` has the
    name of each parameter's factor."""

    def __init__(self, e, spec, inverse):
        self._e, self._spec, self._inverse = e, spec, inverse
        self.begun: dict[str, object] = {}
        self.factor_of: dict[str, str] = {}
        self.factors: dict[str, object] = {}

    def add_group(self, name: str, group: dict, params: dict[str, tuple], numbers: int) -> None:
        """Prepares the velocities of one parameter group. ``name`` is that of the stream of its
        ``numbers`` hyper-parameters; ``params`` are dtype and sizes by name."""
        e = self._e
        momentum = e.cast(number(e, stream(e, name, [numbers]), 1), torch.float32)
        scale = e.cast(stream(e, velocity_stream(name)), torch.float32)
        if self._inverse is not None:
            scale = e.op("mul", scale, e.cast(self._inverse, torch.float32))
        self.factors[name] = e.op("neg", scale) if group.get("maximize") else scale
        for parameter, (dtype, sizes) in params.items():
            before = e.state(f"{name}.{_VELOCITY}.{parameter}", "optimizer", ir_dtype(dtype), sizes)
            own = reduction.of(self._spec, before, parameter)
            groups = self._spec.reducing(parameter)
            # As the reduction after the micro-batches leaves it once.
            times = own.last / (groups.size if own.over_replicas == "sum" else 1)
            kept = e.cast(momentum, dtype)
            if times != 1:
                kept = e.op("mul", kept, e.cast(e.constant(times, torch.float32), dtype))
            self.begun[parameter] = e.op("mul", before, kept)
            self.factor_of[parameter] = name


def _combined_update(e, own: dict, hyper) -> dict:
    """The new values of a parameter and its combined velocity. ``grad`` of ``own`` is the velocity
    after the micro-batches."""
    none = e.op("mul", e.slice(hyper, 0, 1, 3), e.op("cast", e.constant(0.0, torch.float32),
                                                     dtype=_C.DType(hyper.dtype)))
    without = e.op("cat", e.slice(hyper, 0, 0, 1), none, e.slice(hyper, 0, 3, 4), dim=0)
    # The first step takes the given gradient as the velocity.
    operands = [own["param"], own["grad"], own[_VELOCITY], e.constant(1.0, torch.float32), without]
    param, velocity = e.plain("sgd_update", operands, {})
    return {"param": param, _VELOCITY: velocity}
