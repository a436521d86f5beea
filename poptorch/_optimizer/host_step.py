"""``step()`` on the CPU of optimizers that PyTorch does not have; LAMB, which is one of them."""

import math
from collections.abc import Callable

import torch
from torch.optim.optimizer import ParamsT

from poptorch._optimizer import formulas
from poptorch._optimizer.settings import groups_of
from poptorch._optimizer.spec import (
    COUNT,
    FIRST_MOMENT_TYPE,
    SECOND_MOMENT_TYPE,
    Hyper,
    OptimizerSpec,
    Setting,
    StateTensor,
    number_type,
)


@torch.no_grad()
def host_step(optimizer: torch.optim.Optimizer, spec: OptimizerSpec, closure: Callable | None):
    """Updates every parameter that has a gradient.

    Args:
        optimizer: of the kind of ``spec``.
        spec: a row with a formula.
        closure: computes the loss and its gradients first; None: they are there.

    Returns:
        What the closure returned.

    Raises:
        RuntimeError: A gradient is sparse.
    """
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    for group in groups_of(optimizer):
        numbers = {hyper.name: torch.tensor(value, dtype=torch.float64)
                   for hyper, value in zip(spec.hyper, spec.hyper_values(group))}
        for parameter in group["params"]:
            if parameter.grad is not None:
                _update(spec, group, parameter, optimizer.state[parameter], numbers)
    return loss


def _update(spec: OptimizerSpec, group: dict, parameter: torch.Tensor, kept: dict,
            numbers: dict) -> None:
    if parameter.grad.is_sparse:
        raise RuntimeError(f"{spec.name} does not support sparse gradients")
    states = spec.states_of(group, parameter.shape)
    if not kept:
        kept[COUNT] = torch.zeros((), dtype=number_type())
        kept |= {state.key: torch.full_like(parameter, state.initial_in(group))
                 for state in states}
    kept[COUNT] += 1
    wide = torch.promote_types(parameter.dtype, torch.float32)
    own = {"param": parameter, "grad": parameter.grad,
           **{state.key: kept[state.key] for state in states}}
    fixed = spec.flag_values(group) | {"dtype": parameter.dtype}
    new = spec.evaluate(fixed, {**numbers, "step": kept[COUNT].double(),
                                **{name: value.to(wide) for name, value in own.items()}})
    for name, value in new.items():
        own[name].copy_(value)


class LAMB(torch.optim.Optimizer):
    """LAMB as an optimizer of torch, without settings of the device.

    Args:
        params: parameters, or dictionaries of parameter groups.
        lr: learning rate.
        betas: decay rates of the two moments.
        eps: added to the denominator.
        weight_decay: factor of the parameter in its update.
        bias_correction: correct the moments for their beginning at zero.
        max_weight_norm: the largest norm of a parameter that counts; None: any.

    Raises:
        ValueError: A setting is out of range.
    """

    def __init__(self, params: ParamsT, lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, bias_correction: bool = True,
                 max_weight_norm: float | None = None):
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay),
                            ("max_weight_norm", max_weight_norm)):
            if value is not None and not value >= 0.0:
                raise ValueError(f"[optim.LAMB] {name} must be at least 0, got {value}.")
        for value in betas:
            if not 0.0 <= value < 1.0:
                raise ValueError(f"[optim.LAMB] betas must be at least 0 and below 1, got {betas}.")
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "bias_correction": bias_correction, "max_weight_norm": max_weight_norm,
            "maximize": False})

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Updates the parameters on the CPU.

        Args:
            closure: computes the loss and its gradients first; None: they are there.

        Returns:
            What the closure returned.
        """
        return host_step(self, LAMB_ROW, closure)


LAMB_ROW = OptimizerSpec(
    cls=LAMB,
    formula=formulas.lamb,
    is_elementwise=False,
    hyper=(Hyper("lr", "lr"), Hyper("beta1", "betas.0"), Hyper("beta2", "betas.1"),
           Hyper("eps", "eps"), Hyper("weight_decay", "weight_decay"),
           Hyper("max_weight_norm", "max_weight_norm", math.inf)),
    flags=("bias_correction", "maximize"),
    states=(StateTensor("exp_avg", "Accl1", type_setting=FIRST_MOMENT_TYPE),
            StateTensor("exp_avg_sq", "Accl2", type_setting=SECOND_MOMENT_TYPE)),
    settings=(Setting("learningRate", ("lr",)), Setting("weightDecay", ("weight_decay",)),
              Setting("beta1", ("beta1",)), Setting("beta2", ("beta2",)), Setting("eps", ("eps",)),
              Setting("maxWeightNorm", ("max_weight_norm",))),
    doc="Adam with steps scaled by the parameter's norm (arXiv 1904.00962).")
