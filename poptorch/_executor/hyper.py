"""The user's optimizer and the compiled update: hyper-parameters of a call, state at the start."""

import torch

from poptorch._executor import weights
from poptorch._executor.optimizer_attributes import AttributeWatch
from poptorch._translate import optimizer as layouts
from poptorch._translate.types import host_tensor


class OptimizerLink:
    """Connects an executor with the torch optimizer that the user holds.

    Args:
        module: the user's module, for the default optimizer.
        optimizer: the user's; None: SGD with a learning rate of 0.01.
        relax: tell of attributes that the device does not know at level DEBUG only.

    Attributes:
        optimizer: the one in use.

    Raises:
        poptorch.Error: The device has no update of its kind.
    """

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None,
                 relax: bool = False):
        if optimizer is None:
            trained = [p for p in module.parameters() if p.requires_grad]
            optimizer = torch.optim.SGD(trained or module.parameters(), lr=0.01)
        layouts.kind_of(optimizer)
        self.optimizer = optimizer
        self._watch = AttributeWatch(relax)
        self._watch.look(optimizer)
        self._layout = None
        self._sent: list = []

    def set(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes another optimizer.

        Raises:
            ValueError: It would change what is compiled in.
        """
        if self._layout is not None:
            self._check_compatible(optimizer, self._layout)
        else:
            layouts.kind_of(optimizer)
        self._watch.look(optimizer)
        self.optimizer = optimizer
        self._sent = [None] * len(optimizer.param_groups)

    def forget(self) -> None:
        """Takes note that nothing is compiled any more: any optimizer may come next."""
        self._layout, self._sent = None, []

    def check_compatible(self, layout) -> None:
        """Raises a ValueError when the present optimizer is not one that ``layout`` is for."""
        self._check_compatible(self.optimizer, layout)

    def _check_compatible(self, optimizer, layout) -> None:
        cls, kind = layouts.kind_of(optimizer)
        if cls is not layout.cls:
            raise ValueError(f"[setOptimizer] {layout.cls.__name__} is already compiled, "
                             f"got {cls.__name__}. Call destroy() on the executor first.")
        groups = optimizer.param_groups
        if len(groups) != len(layout.groups):
            raise ValueError(f"[setOptimizer] a number of {len(layout.groups)} parameter groups is "
                             f"already compiled, got {len(groups)}. Call destroy() on the "
                             f"executor first.")
        for number, (group, compiled) in enumerate(zip(groups, layout.groups)):
            self._check_flags(kind, number, group, compiled)
            self._check_parameters(number, group, compiled)

    def _check_parameters(self, number: int, group: dict, compiled) -> None:
        given = {id(parameter) for parameter in group["params"]}
        missing = [name for name, parameter in compiled.params if id(parameter) not in given]
        if missing:
            raise ValueError(f"[setOptimizer] {missing[0]} in parameter group {number} is already "
                             f"compiled, the new optimizer does not have it there. Make the "
                             f"optimizer of the same parameters, or call destroy() on the "
                             f"executor first.")

    def _check_flags(self, kind, number: int, group: dict, compiled) -> None:
        names = (*kind.flags, "momentum != 0")
        for name, old, new in zip(names, compiled.flags, layouts.flag_values(kind, group)):
            if old != new:
                raise ValueError(f"[setOptimizer] {name}={old} of parameter group {number} is "
                                 f"already compiled, got {new}. Call destroy() on the executor "
                                 f"first.")

    def compiled(self, program, executable) -> None:
        """Takes note of what was compiled and writes the optimizer's present state."""
        layout = program.optimizer
        self._layout, self._sent = layout, [None] * len(layout.groups)
        known = {state.path for state in executable.states()}
        for group, compiled in zip(self.optimizer.param_groups, layout.groups):
            names = {id(parameter): name for name, parameter in compiled.params}
            for path, parameter, key in compiled.states:
                value = self.optimizer.state.get(parameter, {}).get(key)
                if path not in known:
                    continue
                if value is None:
                    executable.clear_state(path)
                else:
                    weights.write(executable, path, host_tensor(value, path),
                                  program.weight_groups.get(names[id(parameter)]))
            if compiled.step in known:
                step = self._steps_done(group)
                weights.write(executable, compiled.step, host_tensor(step, compiled.step), None)

    def _steps_done(self, group: dict) -> torch.Tensor:
        for parameter in group["params"]:
            state = self.optimizer.state.get(parameter, {})
            step = state.get("step")
            if step is None and state.get("momentum_buffer") is not None:
                step = 1  # torch's SGD does not count; the device asks only for the first step
            if step is not None:
                return torch.as_tensor(step, dtype=torch.float64)
        return torch.zeros((), dtype=torch.float64)

    def refresh(self, call) -> None:
        """Sends the hyper-parameters of groups where they changed since the last call."""
        groups = zip(self.optimizer.param_groups, self._layout.groups)
        for number, (group, compiled) in enumerate(groups):
            values = layouts.hyper_values(self._layout.kind, group)
            if self._sent[number:number + 1] != [values]:
                self._check_flags(self._layout.kind, number, group, compiled)
                call.bind(compiled.stream, torch.tensor(values, dtype=torch.float64))
                self._sent[number:number + 1] = [values]
