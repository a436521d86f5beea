"""The user's optimizer and the compiled update: what may change, and what each call is given."""

import weakref

import torch

from poptorch._executor.optimizer_attributes import AttributeWatch
from poptorch._executor.optimizer_state import OptimizerState
from poptorch._translate import optimizer_kinds as kinds
from poptorch.optim import Optimizer


def _already_compiled(what: str, number: int, got) -> ValueError:
    return ValueError(f"[setOptimizer] {what} of parameter group {number} is already compiled, "
                      f"got {got}. Call destroy() on the executor first.")


class OptimizerLink:
    """Connects an executor with the torch optimizer that the user holds.

    Args:
        module: the user's module, for the default optimizer.
        optimizer: the user's; None: SGD with a learning rate of 0.01.
        relax: tell of attributes that the device does not know at level DEBUG only.

    Attributes:
        optimizer: the one in use.
        state: its state, on the device or waiting for it.

    Raises:
        poptorch.Error: The device has no update of its kind.
    """

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer | None,
                 relax: bool = False):
        if optimizer is None:
            trained = [p for p in module.parameters() if p.requires_grad]
            optimizer = torch.optim.SGD([{"params": trained or list(module.parameters())}], lr=0.01)
        kinds.kind_of(optimizer)
        self.state = OptimizerState()
        # An executor that was forgotten without destroy() leaves the state to its optimizer.
        weakref.finalize(self, self.state.release).atexit = False
        self._watch = AttributeWatch(relax)
        self._layout = None
        self._sent: list = []
        self._use(optimizer)

    def _use(self, optimizer: torch.optim.Optimizer) -> None:
        if isinstance(optimizer, Optimizer):
            optimizer._check_settings()
            optimizer._attach(self.state)
        self._watch.look(optimizer)
        self.optimizer = optimizer

    def check_settings(self) -> None:
        """Raises an Error when a setting of the device was changed to what comes later."""
        if isinstance(self.optimizer, Optimizer):
            self.optimizer._check_settings()

    def set(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes another optimizer.

        Raises:
            ValueError: It would change what is compiled in.
        """
        if self._layout is not None:
            self._check_compatible(optimizer, self._layout)
        else:
            kinds.kind_of(optimizer)
        self._use(optimizer)
        self._sent = [None] * len(optimizer.param_groups)

    def numbers(self) -> list[list[float]]:
        """The hyper-parameters of each group, as the device wants them."""
        _, kind = kinds.kind_of(self.optimizer)
        return [kinds.hyper_values(kind, group) for group in self.optimizer.param_groups]

    def forget(self) -> None:
        """Takes note that nothing is compiled any more: any optimizer may come next, and one of
        ours brings its state along."""
        self._layout, self._sent = None, []
        self.state.release()

    def check_compatible(self, layout) -> None:
        """Raises a ValueError when the present optimizer is not one that ``layout`` is for."""
        self.check_settings()
        self._check_compatible(self.optimizer, layout)

    def _check_compatible(self, optimizer, layout) -> None:
        cls, kind = kinds.kind_of(optimizer)
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
        *old_flags, had_momentum = compiled.flags
        *new_flags, has_momentum = kinds.flag_values(kind, group)
        for name, old, new in zip(kind.flags, old_flags, new_flags):
            if old != new:
                raise _already_compiled(f"{name}={old}", number, new)
        if had_momentum != has_momentum:
            what = "an update with momentum" if had_momentum else "an update without momentum"
            raise _already_compiled(what, number, f"momentum={group['momentum']}")

    def compiled(self, program, executable, can_run: bool) -> None:
        """Takes note of what was compiled and writes the optimizer's present state.

        Args:
            program: what translate made.
            executable: the compiled program.
            can_run: whether the program is to run here.
        """
        self._layout = program.optimizer
        self._sent = [None] * len(self._layout.groups)
        self.state.bind(self.optimizer, program, executable, can_run)

    def refresh(self, call) -> None:
        """Before a call: sends the hyper-parameters of groups where they changed since the last
        one, and the state that was loaded."""
        kind = self._layout.kind
        groups = zip(self.optimizer.param_groups, self._layout.groups)
        for number, (group, compiled) in enumerate(groups):
            values = kinds.hyper_values(kind, group)
            if kinds.flag_values(kind, group) != compiled.flags:
                self._check_flags(kind, number, group, compiled)
            if self._sent[number:number + 1] != [values]:
                call.bind(compiled.stream, torch.tensor(values, dtype=torch.float64))
                self._sent[number:number + 1] = [values]
        self.state.before_run()
