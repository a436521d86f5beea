"""What an executor has to do with an optimizer whose ``step()`` is captured.

The state tensors of the optimizer are states of the program, as buffers of the module are: the
store of weights moves them (docs/internals/weights.md). All else stays with the optimizer, on the
host, where ``step()`` changes it for each update.
"""

import torch

from poptorch._optimizer import checks
from poptorch._optimizer.gradient_factor import GradientFactor
from poptorch._optimizer.rows import check_has_own_step
from poptorch._own_step import emit
from poptorch._own_step.base import StepOnHost
from poptorch._own_step.layout import STREAM, StepLayout, program_path
from poptorch._own_step.variants import Variants
from poptorch._own_step.without_python import FixedUpdate
from poptorch._weights.store import STORE
from poptorch._weights.watched import watch_tensor
from poptorch.errors import Error


class StepLink(StepOnHost):
    """Connects an executor with an optimizer that has its own ``step()``."""

    what = "is captured"

    def _use(self, optimizer: torch.optim.Optimizer, where: str) -> None:
        check_has_own_step(optimizer, where)
        super()._use(optimizer, where)
        self._members = _members(optimizer)
        self._variants = Variants(optimizer, self._names(optimizer))
        self._is_new = True  # for the compiled programs

    def _names(self, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
        own = {id(p): name for name, p in checks.parameters(self._module)}
        held = [p for group in optimizer.param_groups for p in group["params"]]
        return {own.get(id(p), f"other.{number}"): p for number, p in enumerate(held)}

    def compiled(self, program, executable, can_run: bool) -> None:
        super().compiled(program, executable, can_run)
        self._is_new = False

    def recompile_reason(self, program=None) -> str | None:
        """Why a program (None: the current one) does not fit the optimizer any more; None: it does.
        """
        layout = self._current if program is None else program.optimizer
        if layout is None:
            return None
        if self._is_new:
            return "another optimizer was set"
        if not _is_same(self._members, _members(self.optimizer)):
            return checks.MEMBERS_CHANGED
        if layout.version != self._variants.version:
            return f"step() of {layout.kind} takes a form that it did not have before"
        return None

    # -- runs ----------------------------------------------------------------------------------

    def before_run(self, call) -> bool:
        """Runs ``step()`` on the host for each update of the call, and sends the numbers. False:
        it takes a form that the program does not have, and nothing is done."""
        layout, variants = self._current, self._variants
        self._publish(variants.take_states())
        before = variants.snapshot()
        try:
            updates = [variants.step() for _ in range(layout.iterations)]
        except BaseException:
            before.restore()
            variants.begun = []
            raise
        if variants.version != layout.version:
            before.restore()
            variants.begun = []
            return False
        self._publish(variants.take_begun())
        rows = [layout.row(*update) for update in updates
                for _ in range(layout.rows // layout.iterations)]
        call.bind(STREAM, torch.tensor(rows, dtype=torch.float64))
        return True

    def _publish(self, written: list[torch.Tensor]) -> None:
        """Gives the programs the values that the host wrote to states."""
        for tensor in self._current.states.values():
            record = STORE.known(tensor)
            if record is not None and record.mark[0] != tensor._version:
                written.append(tensor)
        if written:
            STORE.publish_to_all(written)

    # -- files ---------------------------------------------------------------------------------

    def before_save(self) -> None:
        """Gives the layout the state of the optimizer. Raises an Error if the program does not fit
        the optimizer any more, or the updates of its next call."""
        self._publish(self._variants.take_states())
        self._variants.look_ahead()
        checks.check_can_save(self.recompile_reason())
        self._current.state_dict = self.optimizer.state_dict()

    def fixed_update(self) -> tuple[str | None, dict, dict]:
        """Why a program needs Python; the numbers by stream; states by path in the program."""
        fixed = FixedUpdate.of(self._variants, self._current)
        return fixed.reason, {STREAM: fixed.numbers * self._current.rows}, fixed.states

    def check_compatible(self, layout) -> None:
        """Raises a ValueError when ``layout``, of a file, is not for the present optimizer.
        Otherwise the states of the layout get the values that the optimizer will have."""
        kind, names = type(self.optimizer).__name__, self._group_names()
        if not isinstance(layout, StepLayout):
            raise ValueError(f"[setOptimizer] the file was written for an optimizer that the "
                             f"device updates, got {kind} with its own step()")
        for what, own, saved in (("the class", kind, layout.kind),
                                 ("the parameter groups", names, layout.group_names)):
            if own != saved:
                raise ValueError(f"[setOptimizer] {what} of the optimizer is {own}, in the file "
                                 f"{saved}")
        before = self._variants.snapshot()
        try:
            self._take_state_dict(layout)
            self._variants.adopt(layout)
        finally:
            before.restore()
        for tensor in layout.states.values():
            watch_tensor(tensor)

    def _take_state_dict(self, layout: StepLayout) -> None:
        if not self.has_begun():
            self.optimizer.load_state_dict(layout.state_dict)

    def loaded_with_program(self) -> None:
        """Gives the optimizer the state of the file, unless it has one."""
        self._take_state_dict(self._current)
        self._current.state_dict = None

    def _group_names(self) -> list[list[str]]:
        names = {id(p): name for name, p in self._variants.params.items()}
        return [[names[id(p)] for p in group] for group in self._members]

    # -- what translate reads ------------------------------------------------------------------

    def emit_update(self, e, program, gradients: dict, factor: GradientFactor,
                    gathered: dict) -> StepLayout:
        self.check_values()
        if program.weight_groups:
            raise Error(f"[optimizer] step() of {type(self.optimizer).__name__} is captured for "
                        f"one value of each parameter, but {next(iter(program.weight_groups))} has "
                        f"one for each group of replicas. Use an optimizer of poptorch.optim.")
        if not _is_same(self._members, _members(self.optimizer)):
            self._use(self.optimizer, "trainingModel")
        variants, names = self._variants, {id(p): n for n, p in self._variants.params.items()}
        grads = {names[id(program.states[name])]: program.states[name] for name in gradients
                 if id(program.states[name]) in names}
        variants.explore(grads, self._iterations)
        for tensor in variants.tensors.values():
            watch_tensor(tensor)
        layout = StepLayout(type(self.optimizer).__name__, variants.params, list(grads),
                            dict(variants.tensors), variants.forms(), variants.version,
                            self._iterations, self._replicas, self._group_names())
        emit.emit_update(e, program, gradients, layout, factor, gathered)
        layout.updated = [path for path in map(program_path, layout.states)
                          if path in program.updated]
        return layout


def _members(optimizer: torch.optim.Optimizer) -> list[list[torch.Tensor]]:
    return [list(group["params"]) for group in optimizer.param_groups]


def _is_same(one: list[list], other: list[list]) -> bool:
    return len(one) == len(other) and all(
        len(a) == len(b) and all(x is y for x, y in zip(a, b)) for a, b in zip(one, other))
