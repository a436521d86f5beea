"""The kinds of optimizers that the device has: one row for each.

Names outside, for a parameter ``fc.weight``:

    Accl1___fc.weight                              a state: momentum, or the first moment
    Accl2___fc.weight, MaxAccl2___fc.weight        the second moment of Adam, its maximum
    Step___fc.weight                               updates so far, where there are other states
    scaledLearningRate0___specific___fc.weight     a setting of the update
    lossScaling_FLOAT                              one that all parameters share
"""

from dataclasses import replace

import torch

from poptorch._optimizer.spec import Hyper, OptimizerSpec, Setting, StateTensor
from poptorch.errors import Error

# Settings that say what type moments have.
_FIRST = "first_order_momentum_accum_type"
_SECOND = "second_order_momentum_accum_type"

_SGD = OptimizerSpec(
    cls=torch.optim.SGD,
    op="sgd_update",
    hyper=(Hyper("lr", "lr", velocity_power=-1), Hyper("momentum", "momentum"),
           Hyper("dampening", "dampening"),
           Hyper("weight_decay", "weight_decay", velocity_power=1)),
    flags=("nesterov", "maximize"),
    states=(StateTensor("momentum_buffer", "Accl1", when="momentum",
                        type_setting="velocity_accum_type"),),
    settings=(Setting("scaledLearningRate0", ("lr",), over_loss_scale=True),
              Setting("weightDecayScaleFactor0", ("lr", "weight_decay"), is_complement=True),
              Setting("scaledMomentum0", ("momentum",)),
              Setting("dampeningScaleFactor0", ("dampening",), is_complement=True)),
    counts=False,
    doc="Stochastic gradient descent; with momentum it has a state.")

_ADAM = OptimizerSpec(
    cls=torch.optim.Adam,
    op="adam_update",
    hyper=(Hyper("lr", "lr"), Hyper("beta1", "betas.0"), Hyper("beta2", "betas.1"),
           Hyper("eps", "eps"), Hyper("weight_decay", "weight_decay")),
    flags=("amsgrad", "maximize", "decoupled_weight_decay", "bias_correction"),
    states=(StateTensor("exp_avg", "Accl1", type_setting=_FIRST),
            StateTensor("exp_avg_sq", "Accl2", type_setting=_SECOND),
            StateTensor("max_exp_avg_sq", "MaxAccl2", when="amsgrad", type_setting=_SECOND)),
    settings=(Setting("learningRate", ("lr",)), Setting("weightDecay", ("weight_decay",)),
              Setting("beta1", ("beta1",)), Setting("beta2", ("beta2",)),
              Setting("eps", ("eps",))),
    doc="Adam, also with the largest second moment (amsgrad).")

_ADAMW = replace(_ADAM, cls=torch.optim.AdamW, doc="Adam with decoupled weight decay.")

ROWS: dict[type, OptimizerSpec] = {spec.cls: spec for spec in (_SGD, _ADAM, _ADAMW)}


def spec_of(optimizer: torch.optim.Optimizer) -> OptimizerSpec:
    """The row of an optimizer.

    Raises:
        poptorch.Error: There is none; the message lists those that can be used.
    """
    for cls in type(optimizer).__mro__:
        if cls in ROWS:
            return ROWS[cls]
    raise Error(f"[optimizer] {type(optimizer).__name__} has no update op on the device. Use one "
                f"of: {', '.join(spec.name for spec in ROWS.values())} (of poptorch.optim or "
                f"torch.optim).")
