"""What an executor has to do with an optimizer whose ``step()`` is captured.

The state tensors of the optimizer are states of the program, as buffers of the module are: the
store of weights moves them (docs/internals/weights.md). All else stays with the optimizer, on the
host, where ``step()`` changes it for each update.
"""


import torch

from poptorch._base.logging import logger
from poptorch._base.torch_private.basic import plain_access
from poptorch._optimizer import checks
from poptorch._optimizer.gradient_factor import GradientFactor
from poptorch._own_step import emit
from poptorch._own_step.layout import STREAM, StepLayout
from poptorch._own_step.variants import Variants
from poptorch._runtime.lifecycle import Superseded
from poptorch._weights.store import STORE
from poptorch._weights.watched import watch_tensor
from poptorch.errors import Error


class StepLink:
    """Connects an executor with an optimizer that has its own ``step()``; the methods are those of
    ``OptimizerLink``."""

    has_loss_scale = has_loaded = False

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer,
                 where: str = "trainingModel"):
        self._module, self._has_warned_of_others = module, False
        self._use(optimizer, where)

    def _use(self, optimizer: torch.optim.Optimizer, where: str) -> None:
        others, held = checks.check_members(optimizer, self._module, where)
        if others and not self._has_warned_of_others:
            self._has_warned_of_others = True
            logger.warning("%d of the %d parameters of the optimizer %s do not belong to the model "
                           "%s; this executor does not train them.", others, held,
                           type(optimizer).__name__, type(self._module).__name__)
        self.optimizer = optimizer
        self._members = _members(optimizer)
        self._variants = Variants(optimizer, self._names(optimizer))
        self._layouts: list[StepLayout] = []
        self._current: StepLayout | None = None
        self._iterations = 1
        self._reason: str | None = None

    def _names(self, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
        own = {id(p): name for name, p in checks.parameters(self._module)}
        held = [p for group in optimizer.param_groups for p in group["params"]]
        return {own.get(id(p), f"other.{number}"): p for number, p in enumerate(held)}

    def set(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes another optimizer, with a state of its own: the next call compiles for it."""
        if optimizer is self.optimizer:
            return
        self._use(optimizer, "setOptimizer")
        self._reason = "another optimizer was set"

    def numbers(self) -> list[list[float]]:
        return []

    # -- the programs of the executor ----------------------------------------------------------

    def compiled(self, program, executable, can_run: bool) -> None:
        self._layouts.append(program.optimizer)
        self.select(program)
        self._reason = None

    def select(self, program) -> None:
        self._current = program.optimizer

    def forget(self, program=None) -> None:
        if program is None:
            self._layouts, self._current = [], None
        else:
            self._layouts.remove(program.optimizer)

    @property
    def is_compiled(self) -> bool:
        return self._current is not None

    def recompile_reason(self, program=None) -> str | None:
        layout = self._current if program is None else program.optimizer
        if layout is None:
            return None
        if self._reason is not None:
            return self._reason
        if not _is_same(self._members, _members(self.optimizer)):
            return "parameters or groups were added to the optimizer, or removed from it, after " \
                   "the model was compiled"
        if layout.version != self._variants.version:
            return f"step() of {layout.kind} takes a form that it did not have before"
        return None

    # -- runs ----------------------------------------------------------------------------------

    def before_run(self, call) -> None:
        """Runs ``step()`` on the host for each update of the call, and sends the numbers."""
        layout, variants = self._current, self._variants
        self._publish(variants.take_states())
        before, rows = variants.snapshot(), []
        for _ in range(layout.iterations):
            form, numbers = variants.step()
            rows.append([float(form), *map(float, numbers)])
        if variants.version != layout.version:
            before.restore()
            raise Superseded
        replicas = 1 if layout.iterations == 1 else call.replicas
        padded = [row + [0.0] * (layout.width - len(row)) for row in rows for _ in range(replicas)]
        call.bind(STREAM, torch.tensor(padded, dtype=torch.float64))

    def _publish(self, written: list[torch.Tensor]) -> None:
        """Gives the programs the values that the host wrote to states."""
        for tensor in self._current.states.values():
            record = STORE.known(tensor)
            if record is not None and record.mark[0] != tensor._version:
                written.append(tensor)
        if written:
            STORE.publish_to_all(written)

    def after_run(self) -> None:
        """All is in the store of weights."""

    def after_success(self, call) -> None:
        """Nothing is left to do."""

    # -- files ---------------------------------------------------------------------------------

    def before_save(self) -> None:
        raise Error(f"[save] the update is that of step() of {type(self.optimizer).__name__}, "
                    f"which is Python code and not part of a file. Save the state_dict() of the "
                    f"model and of the optimizer, and compile the model again where they are "
                    f"loaded.")

    # -- what translate reads ------------------------------------------------------------------

    def sum_dtypes(self, gradients: dict[str, tuple]) -> dict[str, torch.dtype]:
        return {name: dtype for name, (_, dtype) in gradients.items()}

    def has_half_sums(self) -> bool:
        return any(p.dtype in (torch.float16, torch.bfloat16)
                   for _, p in checks.parameters(self._module) if p.requires_grad)

    def adds_to_velocities(self, spec, params) -> bool:
        return False

    def factor(self, e, spec, program, gradients: dict, scaling) -> tuple:
        if scaling is not None:
            raise Error(f"[Training.setAutomaticLossScaling] step() of "
                        f"{type(self.optimizer).__name__} runs for each update, but loss scaling "
                        f"skips updates. Turn it off, or use an optimizer of poptorch.optim.")
        self._iterations = spec.device_iterations
        factor = GradientFactor(None, torch.float32, spec, gradients, program.shards)
        if spec.clip_norm is not None:
            factor.clip_norm(e, [e.constant(spec.clip_norm, torch.float32)])
        if spec.clip_value is not None:
            gradients = {**gradients, **factor.clip_values(e, spec.clip_value)}
        return gradients, factor

    def whole_states(self, params: dict[str, torch.Tensor]) -> dict[str, str]:
        why = f"the update of {type(self.optimizer).__name__} needs the whole tensor"
        return dict.fromkeys(params, why)

    def emit_update(self, e, program, gradients: dict, factor: GradientFactor,
                    gathered: dict) -> StepLayout:
        self._check(program)
        self._use_members()
        variants, names = self._variants, {id(p): n for n, p in self._variants.params.items()}
        grads = {names[id(program.states[name])]: program.states[name] for name in gradients
                 if id(program.states[name]) in names}
        variants.explore(grads)
        for tensor in variants.tensors.values():
            watch_tensor(tensor)
        layout = StepLayout(type(self.optimizer).__name__, variants.params, list(grads),
                            dict(variants.tensors), list(variants.traces), variants.version,
                            self._iterations)
        emit.emit_update(e, program, gradients, layout, factor, gathered)
        layout.updated = [path for path in map(emit.program_path, layout.states)
                          if path in program.updated]
        return layout

    def _use_members(self) -> None:
        if not _is_same(self._members, _members(self.optimizer)):
            self._use(self.optimizer, "trainingModel")

    def _check(self, program) -> None:
        checks.check_differentiable(self.optimizer)
        if program.weight_groups:
            raise Error(f"[optimizer] step() of {type(self.optimizer).__name__} is captured for "
                        f"one value of each parameter, but {next(iter(program.weight_groups))} has "
                        f"one for each group of replicas. Use an optimizer of poptorch.optim.")


def _members(optimizer: torch.optim.Optimizer) -> list[list[torch.Tensor]]:
    return [list(group["params"]) for group in optimizer.param_groups]


def _is_same(one: list[list], other: list[list]) -> bool:
    return len(one) == len(other) and all(
        len(a) == len(b) and all(x is y for x, y in zip(a, b)) for a, b in zip(one, other))
