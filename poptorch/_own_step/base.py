"""What links to optimizers have in common whose ``step()`` runs on the host."""

import inspect

import torch

from poptorch._optimizer import checks
from poptorch._optimizer.gradient_factor import GradientFactor
from poptorch.errors import Error

# Attributes that torch's base class keeps for itself.
OF_TORCH = ("_optimizer_", "_zero_grad_profile_name", "_patch", "_warned")
_OF_SCHEDULERS = ("step", "_opt_called")


def attributes_of(optimizer: torch.optim.Optimizer) -> dict:
    """All that makes an optimizer. Torch's ``__getstate__`` omits what a subclass adds."""
    return {key: value for key, value in vars(optimizer).items()
            if not key.startswith(OF_TORCH) and key not in _OF_SCHEDULERS}


def _check_call(optimizer: torch.optim.Optimizer) -> None:
    try:
        inspect.signature(type(optimizer).step).bind(optimizer)  # schedulers wrap optimizer.step
    except TypeError as error:
        raise Error(f"[optimizer] expected that step() of {type(optimizer).__name__} needs no "
                    f"arguments, such as a closure, got: {error}. Give them defaults, or train "
                    f"with eager PyTorch.") from None


class StepOnHost:
    """Connects an executor with an optimizer; the methods are those of ``OptimizerLink``.

    Raises an Error if the optimizer holds no parameter of the module.
    """

    has_loss_scale = has_loaded = False
    what = ""  # how step() runs, for messages

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer):
        self._module, self._member_check = module, checks.MemberCheck(module)
        self._current = None  # the layout of the current program
        self._iterations = self._replicas = 1
        self._use(optimizer, "trainingModel")

    def _use(self, optimizer: torch.optim.Optimizer, where: str) -> None:
        self._member_check(optimizer, where)
        _check_call(optimizer)
        self.optimizer = optimizer

    def set(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes another optimizer, with a state of its own."""
        if optimizer is not self.optimizer:
            self._use(optimizer, "setOptimizer")

    def numbers(self) -> list[list[float]]:
        """None is checked when a file is read."""
        return []

    def has_begun(self) -> bool:
        """Whether the optimizer has a state."""
        return bool(self.optimizer.state)

    def exported(self) -> torch.optim.Optimizer:
        return self.optimizer

    def loaded_with_program(self) -> None:
        """The state is that of the optimizer."""

    def check_values(self) -> None:
        checks.check_differentiable(self.optimizer)

    # -- the programs of the executor ----------------------------------------------------------

    def compiled(self, program, executable, can_run: bool) -> None:
        self.select(program)

    def select(self, program) -> None:
        self._current = program.optimizer

    def forget(self, program=None) -> None:
        if program is None or program.optimizer is self._current:
            self._current = None

    @property
    def is_compiled(self) -> bool:
        return self._current is not None

    def recompile_reason(self, program=None) -> str | None:
        return None

    # -- runs ----------------------------------------------------------------------------------

    def before_run(self, call) -> bool:
        """Whether the program suits the update; nothing is to be sent."""
        return True

    def after_run(self) -> None:
        """All is in the store of weights."""

    def ended(self, call) -> None:
        """Nothing is left to do."""

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
                        f"{type(self.optimizer).__name__} {self.what}, and automatic loss scaling "
                        f"skips updates on the device. Turn it off, or use an optimizer of "
                        f"poptorch.optim on the device.")
        self._iterations, self._replicas = spec.device_iterations, spec.replicas
        is_wide = any(value.dtype == "f64" for value in gradients.values())
        wide = torch.float64 if is_wide else torch.float32
        factor = GradientFactor(None, wide, spec, gradients, program.shards)
        if spec.clip_norm is not None:
            factor.clip_norm(e, [e.constant(spec.clip_norm, wide)])
        if spec.clip_value is not None:
            gradients = {**gradients, **factor.clip_values(e, spec.clip_value)}
        return gradients, factor

    def whole_states(self, params: dict[str, torch.Tensor]) -> dict[str, str]:
        return dict.fromkeys(params, f"step() of {type(self.optimizer).__name__} {self.what}")
