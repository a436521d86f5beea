"""What of an optimizer's settings is part of a compiled model, and what may not change."""

from poptorch._optimizer import constants, device_settings
from poptorch._optimizer.device_settings import dtype_of
from poptorch._optimizer.factor import LARGEST
from poptorch._optimizer.layout import COMBINED
from poptorch._optimizer.spec import OptimizerSpec
from poptorch.errors import Error


def check_constants(compiled: dict, present: dict, where: str) -> None:
    """Checks that constants are those that were compiled.

    Args:
        compiled: name and value of each constant.
        present: names and values now.
        where: for the message.

    Raises:
        ValueError: One is another.
    """
    for name, old in compiled.items():
        if constants.plain(present[name]) != old:
            raise ValueError(
                f"[setOptimizer] {name}={old}{where} is a constant of the compiled model, got "
                f"{present[name]}. Before the first call, pass it to the optimizer of "
                f"poptorch.optim or call optimizer.variable_attrs.markAsVariable({name!r}), or "
                f"give one of torch.optim another value than its default; or call destroy() on the "
                f"executor now.")


def check_loss_scale(scale: float, loss: str) -> None:
    """Checks that a loss scale fits into the type of the loss.

    Args:
        scale: the loss scale.
        loss: dtype of the loss on the device; "": it is not scaled.

    Raises:
        poptorch.Error: It does not.
    """
    if loss and scale > LARGEST[loss]:
        raise Error(f"[loss_scaling] the loss scale is {scale:g}, the loss is of {loss}, of which "
                    f"the largest number is {LARGEST[loss]:g}: all gradients would be infinite. "
                    f"Choose a smaller one, or compute the loss in float32.")


def types_of(spec: OptimizerSpec, group: dict, params: list) -> list[tuple]:
    """What a group's settings say of types: ``(setting, dtype of a parameter, dtype)``."""
    is_combined = device_settings.is_combined(group)
    names = dict.fromkeys(state.type_setting for state in spec.states
                          if state.is_in(group) and state.type_setting)
    names = ["accum_type", *names] if not is_combined else []
    dtypes = dict.fromkeys(p.dtype for p in params)
    return [(COMBINED, "", str(is_combined)),
            *((name, str(dtype), str(dtype_of(group, name, dtype)))
              for name in names for dtype in dtypes)]


def fixed_of(spec: OptimizerSpec, group: dict, compiled) -> tuple:
    """What of a group is checked before a call, where it is not what it was before the last one.

    Args:
        spec: the row.
        group: with the settings of the device.
        compiled: the ``GroupLayout``.
    """
    return (spec.compiled_in(group), [group[name] for name in device_settings.SETTINGS],
            [constants.plain(group[name]) for name in compiled.constants])
