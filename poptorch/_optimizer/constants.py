"""Which hyper-parameters are constant: compiled in as far as checks go, though all are streamed.

Of ``poptorch.optim`` those that were not passed explicitly, unless ``variable_attrs`` says
otherwise; of other optimizers those that had their default when the model was compiled. The
learning rate is always variable.
"""

import inspect

import torch

from poptorch._optimizer.device_settings import SHARED
from poptorch._optimizer.spec import OptimizerSpec

_VARIABLE = "lr"


def of_group(optimizer: torch.optim.Optimizer, spec: OptimizerSpec, group: dict) -> dict:
    """Name and value of the constant hyper-parameters of one group.

    Args:
        optimizer: whose group it is.
        spec: its row.
        group: with the settings of the device.
    """
    names = dict.fromkeys(hyper.key.partition(".")[0] for hyper in spec.hyper if hyper.key)
    if group.get("use_combined_accum"):
        names["velocity_scaling"] = None
    return {name: plain(group[name]) for name in names
            if is_constant(optimizer, spec, name, group[name])}


def of_all(optimizer: torch.optim.Optimizer, spec: OptimizerSpec, values: dict) -> dict:
    """Name and value of the constant settings that all groups share."""
    return {name: plain(values[name]) for name in SHARED
            if is_constant(optimizer, spec, name, values[name])}


def is_constant(optimizer: torch.optim.Optimizer, spec: OptimizerSpec, name: str, value) -> bool:
    """Whether an attribute of an optimizer is constant.

    Args:
        optimizer: whose attribute it is.
        spec: its row.
        name: of a group key, or of a setting of the device.
        value: which it has.
    """
    if name == _VARIABLE:
        return False
    marked = getattr(optimizer, "variable_attrs", None)
    if marked is not None and name in marked:
        return marked.isConstant(name)
    if name in SHARED:  # torch.optim does not have it
        return True
    parameter = inspect.signature(spec.cls.__init__).parameters.get(name)
    return parameter is not None and parameter.default is not parameter.empty \
        and plain(parameter.default) == plain(value)


def plain(value):
    """A value that can be compared, and written to a file: numbers as float."""
    if isinstance(value, (tuple, list)):
        return tuple(map(plain, value))
    is_number = isinstance(value, (int, float, torch.Tensor)) and not isinstance(value, bool)
    return float(value) if is_number else value
