"""``options.Training.optimizerOnHost``: the device computes gradients, the host runs ``step()``."""

from dataclasses import dataclass, field

import torch

from poptorch._base import schema
from poptorch._optimizer.gradient_factor import GradientFactor
from poptorch._optimizer.rows import check_is_optimizer
from poptorch._optimizer.settings import SETTINGS, groups_of
from poptorch._own_step.base import StepOnHost
from poptorch._weights.store import STORE
from poptorch.errors import Error


@dataclass
class GradientLayout:
    """What a program without an update has of an optimizer: the parameters with a gradient."""

    params: dict[str, torch.Tensor]
    loss: str = ""
    groups: list = field(default_factory=list)

    def streams(self) -> dict[str, list[int]]:
        return {}

    def entries(self) -> tuple:
        return ()

    def to_data(self) -> dict:
        """This as plain data, parameters by name."""
        return {"on_host": list(self.params)}

    @classmethod
    def from_data(cls, data: dict, parameters: dict[str, torch.Tensor]) -> "GradientLayout":
        """The layout that :meth:`to_data` described. Raises a ValueError for data of another form.
        """
        schema.check(data, {"on_host": [{*parameters}]}, "optimizer")
        return cls({name: parameters[name] for name in data["on_host"]})


class HostLink(StepOnHost):
    """Connects an executor with an optimizer whose ``step()`` runs after each call.

    Raises an Error if one call makes several updates, or the optimizer has a setting of the device.
    """

    what = "runs on the host"

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer, options):
        if options.device_iterations != 1:
            raise Error(f"[Training.optimizerOnHost] step() runs on the host after each call, but "
                        f"a call makes deviceIterations({options.device_iterations}) updates. Set "
                        f"deviceIterations(1), or leave optimizerOnHost out.")
        super().__init__(module, optimizer)

    def _use(self, optimizer: torch.optim.Optimizer, where: str) -> None:
        check_is_optimizer(optimizer)
        for number, group in enumerate(groups_of(optimizer)):
            for name in ("loss_scaling", "velocity_scaling", "use_combined_accum",
                         "max_grad_norm"):
                if group[name] != SETTINGS[name]:
                    raise Error(f"[Training.optimizerOnHost] {name} of parameter group {number} is "
                                f"{group[name]!r}, which only the update on the device has. Leave "
                                f"it out, or leave optimizerOnHost out.")
        super()._use(optimizer, where)

    def emit_update(self, e, program, gradients: dict, factor: GradientFactor,
                    gathered: dict) -> GradientLayout:
        self.check_values()
        if program.bound:
            program.bound |= factor.bound(e)
        return GradientLayout({name: program.states[name] for name in gradients})

    def ended(self, call) -> None:
        """Gives the parameters the gradients of a run, and makes an update."""
        gradients = call.gradients()
        held = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        trained = {name: p for name, p in self._current.params.items() if id(p) in held}
        for name, parameter in trained.items():
            parameter.grad = gradients[name].to(parameter.dtype).reshape(parameter.shape)
        self.optimizer.step()
        STORE.publish_to_all(trained.values())

    def before_save(self) -> None:
        """The host has all of the optimizer."""

    def fixed_update(self) -> tuple[str | None, dict, dict]:
        """Why a program needs Python; no numbers, no states."""
        return f"step() of {type(self.optimizer).__name__} runs on the host", {}, {}

    def check_compatible(self, layout) -> None:
        """Raises a ValueError when ``layout``, of a file, is not for the present optimizer."""
        if not isinstance(layout, GradientLayout):
            raise ValueError("[setOptimizer] an update on the device is already compiled, got "
                             "optimizerOnHost(True). Leave it out")
