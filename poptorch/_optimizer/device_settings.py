"""Settings of optimizers that only the device knows."""

import torch

from poptorch.errors import Error

# Those that are not implemented, and the only value that they take.
SETTINGS = {
    "loss_scaling": 1.0, "velocity_scaling": 1.0, "use_combined_accum": False,
    "accum_type": torch.float32, "velocity_accum_type": torch.float32,
    "first_order_momentum_accum_type": torch.float32,
    "second_order_momentum_accum_type": torch.float32,
    "max_grad_norm": float("inf"), "bias_correction": True,
}


class DeviceSettings:
    """Has such settings as attributes: the optimizers of ``poptorch.optim``.

    Attributes:
        of_groups: those that are keys of the parameter groups instead, with any value.
    """

    of_groups: frozenset[str] = frozenset()

    def _configure(self, **settings) -> None:
        """Keeps the settings of the device as attributes; None stands for the default."""
        for name, value in settings.items():
            setattr(self, name, SETTINGS[name] if value is None else value)
        check(self)


def check(optimizer) -> None:
    """Raises an Error when a setting, of an optimizer of ``poptorch.optim`` or of its groups, has a
    value that is not implemented."""
    if not isinstance(optimizer, DeviceSettings):
        return
    for where, settings in [("", vars(optimizer)), *(
            (f" of parameter group {number}", group)
            for number, group in enumerate(getattr(optimizer, "param_groups", ())))]:
        for name, neutral in SETTINGS.items():
            value = settings.get(name)
            if value is not None and value != neutral and name not in optimizer.of_groups:
                raise Error(f"[optim.{type(optimizer).__name__}] {name}={value!r}{where} is not "
                            f"implemented: this version of poptorch has only {neutral!r}. "
                            f"Leave it out.")
