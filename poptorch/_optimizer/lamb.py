"""LAMB, which torch does not have: an optimizer for the CPU, and its row."""

import math
from collections.abc import Callable, Iterable

import torch
from torch.optim.optimizer import ParamsT

from poptorch._optimizer import formulas
from poptorch._optimizer.host_step import host_step
from poptorch._optimizer.spec import (
    FIRST_MOMENT_TYPE,
    SECOND_MOMENT_TYPE,
    Hyper,
    OptimizerSpec,
    Setting,
    StateTensor,
)


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
        return host_step(self, SPEC, closure)


SPEC = OptimizerSpec(
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
