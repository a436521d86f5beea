"""The kinds of optimizers that the device has: one row for each.

Names outside, for a parameter ``fc.weight``:

    Accl1___fc.weight                              a state: momentum, or the first moment
    Accl2___fc.weight, MaxAccl2___fc.weight        the second moment of Adam, its maximum
    Step___fc.weight                               updates so far, where there are other states
    scaledLearningRate0___specific___fc.weight     a setting of the update
    lossScaling_FLOAT                              one that all parameters share
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch.optim.adadelta import adadelta
from torch.optim.adagrad import adagrad
from torch.optim.adamax import adamax
from torch.optim.nadam import nadam
from torch.optim.optimizer import ParamsT
from torch.optim.radam import radam
from torch.optim.rprop import rprop

from poptorch._optimizer import formulas
from poptorch._optimizer.formulas import torch_form
from poptorch._optimizer.settings import FIRST_MOMENT_TYPE, SECOND_MOMENT_TYPE, DeviceSettings
from poptorch._optimizer.spec import Hyper, OptimizerSpec, Setting, StateTensor
from poptorch.errors import Error


def _numbers(*keys: str) -> tuple[Hyper, ...]:
    """Hyper-parameters that the row calls as torch does."""
    return tuple(Hyper(key, key) for key in keys)


def _rate(group: dict) -> float:
    return float(group["lr"])


_OF_ADAM = (Hyper("lr", "lr"), Hyper("beta1", "betas.0"), Hyper("beta2", "betas.1"),
            *_numbers("eps", "weight_decay"))
_EPS = Setting("eps", ("eps",))
_RATE_AND_DECAY = (Setting("learningRate", ("lr",)), Setting("weightDecay", ("weight_decay",)))
_SHOWN_OF_ADAM = (*_RATE_AND_DECAY, Setting("beta1", ("beta1",)), Setting("beta2", ("beta2",)),
                  _EPS)
_MOMENTS = (StateTensor("exp_avg", "Accl1", type_setting=FIRST_MOMENT_TYPE),
            StateTensor("exp_avg_sq", "Accl2", type_setting=SECOND_MOMENT_TYPE))

_SGD = OptimizerSpec(
    cls=torch.optim.SGD,
    op="sgd_update",
    hyper=(Hyper("lr", "lr", velocity_power=-1), Hyper("momentum", "momentum"),
           Hyper("dampening", "dampening"),
           Hyper("weight_decay", "weight_decay", velocity_power=1)),
    flags=("nesterov", "maximize"),
    states=(StateTensor("momentum_buffer", "Accl1", when="momentum",
                        type_setting="velocity_accum_type", velocity_power=1),),
    settings=(Setting("scaledLearningRate0", ("lr",), over_loss_scale=True),
              Setting("weightDecayScaleFactor0", ("lr", "weight_decay"), is_complement=True),
              Setting("scaledMomentum0", ("momentum",)),
              Setting("dampeningScaleFactor0", ("dampening",), is_complement=True)),
    counts=False,
    doc="Stochastic gradient descent; with momentum it has a state.")

_ADAM = OptimizerSpec(
    cls=torch.optim.Adam,
    op="adam_update",
    formula=formulas.adam,
    hyper=_OF_ADAM,
    flags=("amsgrad", "maximize", "decoupled_weight_decay", "bias_correction"),
    states=(*_MOMENTS,
            StateTensor("max_exp_avg_sq", "MaxAccl2", when="amsgrad",
                        type_setting=SECOND_MOMENT_TYPE)),
    settings=_SHOWN_OF_ADAM,
    doc="Adam, also with the largest second moment (amsgrad).")

_ADAMW = replace(_ADAM, cls=torch.optim.AdamW, doc="Adam with decoupled weight decay.")

_RMSPROP = OptimizerSpec(
    cls=torch.optim.RMSprop,
    formula=formulas.rmsprop,
    hyper=_numbers("lr", "alpha", "eps", "weight_decay", "momentum"),
    flags=("centered", "maximize", "use_tf_variant"),
    states=(StateTensor("square_avg", "Accl1", type_setting=SECOND_MOMENT_TYPE,
                        initial=lambda group: float(bool(group.get("use_tf_variant")))),
            StateTensor("momentum_buffer", "Accl3", when="momentum",
                        type_setting=FIRST_MOMENT_TYPE),
            StateTensor("grad_avg", "Accl2", when="centered", type_setting=FIRST_MOMENT_TYPE)),
    settings=(*_RATE_AND_DECAY, Setting("alpha", ("alpha",)), _EPS,
              Setting("momentum", ("momentum",))),
    doc="Steps by the root of the mean square; also as TensorFlow has it.")


class LAMB(torch.optim.Optimizer):
    """LAMB as an optimizer of torch, without settings of the device. Arguments: see ``optim.LAMB``.
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
        return formulas.host_step(self, spec_of(self), closure)


_LAMB = OptimizerSpec(
    cls=LAMB,
    formula=formulas.lamb,
    is_elementwise=False,
    sums_all=True,
    hyper=(*_OF_ADAM, Hyper("max_weight_norm", "max_weight_norm", math.inf)),
    flags=("bias_correction", "maximize"),
    states=_MOMENTS,
    settings=(*_SHOWN_OF_ADAM, Setting("maxWeightNorm", ("max_weight_norm",))),
    doc="Adam with steps scaled by the parameter's norm (arXiv 1904.00962).")

_ADAGRAD = OptimizerSpec(
    cls=torch.optim.Adagrad,
    formula=torch_form(adagrad, "sum"),
    hyper=_numbers("lr", "lr_decay", "weight_decay", "eps"),
    flags=("maximize",),
    states=(StateTensor("sum", "Accl1",
                        initial=lambda group: float(group["initial_accumulator_value"])),),
    settings=(*_RATE_AND_DECAY, _EPS),
    doc="Steps by the root of the sum of squares.")

_ADADELTA = OptimizerSpec(
    cls=torch.optim.Adadelta,
    formula=torch_form(adadelta, "square_avg", "acc_delta"),
    hyper=_numbers("lr", "rho", "eps", "weight_decay"),
    flags=("maximize",),
    states=(StateTensor("square_avg", "Accl1"), StateTensor("acc_delta", "Accl2")),
    settings=(*_RATE_AND_DECAY, Setting("rho", ("rho",)), _EPS),
    doc="Steps by the ratio of mean squares of steps and gradients.")

_ADAMAX = OptimizerSpec(
    cls=torch.optim.Adamax,
    formula=torch_form(adamax, "exp_avg", "exp_inf"),
    hyper=_OF_ADAM,
    flags=("maximize",),
    states=(StateTensor("exp_avg", "Accl1"), StateTensor("exp_inf", "Accl2")),
    settings=_SHOWN_OF_ADAM,
    doc="Adam with the infinity norm.")

_NADAM = OptimizerSpec(
    cls=torch.optim.NAdam,
    formula=torch_form(nadam, "exp_avg", "exp_avg_sq", "mu_product"),
    hyper=(*_OF_ADAM, *_numbers("momentum_decay")),
    flags=("decoupled_weight_decay", "maximize"),
    states=(StateTensor("mu_product", "Accl3", has_no_dims=True, initial=1.0),
            StateTensor("exp_avg", "Accl1"), StateTensor("exp_avg_sq", "Accl2")),
    settings=_SHOWN_OF_ADAM,
    doc="Adam with Nesterov momentum.")

_RADAM = OptimizerSpec(
    cls=torch.optim.RAdam,
    formula=torch_form(radam, "exp_avg", "exp_avg_sq", capturable=True),
    hyper=_OF_ADAM,
    flags=("decoupled_weight_decay", "maximize"),
    states=(StateTensor("exp_avg", "Accl1"), StateTensor("exp_avg_sq", "Accl2")),
    settings=_SHOWN_OF_ADAM,
    doc="Adam that warms up by itself.")

_RPROP = OptimizerSpec(
    cls=torch.optim.Rprop,
    formula=torch_form(rprop, "prev", "step_size", capturable=True),
    hyper=(Hyper("etaminus", "etas.0"), Hyper("etaplus", "etas.1"),
           Hyper("step_size_min", "step_sizes.0"), Hyper("step_size_max", "step_sizes.1")),
    flags=("maximize",),
    states=(StateTensor("prev", "Accl1"), StateTensor("step_size", "Accl2", initial=_rate)),
    settings=(Setting("etaMinus", ("etaminus",)), Setting("etaPlus", ("etaplus",))),
    doc="Steps by the signs of gradients; `lr` is the first step size.")

_ASGD = OptimizerSpec(
    cls=torch.optim.ASGD,
    formula=formulas.asgd,
    hyper=_numbers("lr", "lambd", "alpha", "t0", "weight_decay"),
    flags=("maximize",),
    states=(StateTensor("eta", "Accl2", has_no_dims=True, initial=_rate),
            StateTensor("mu", "Accl3", has_no_dims=True, initial=1.0),
            StateTensor("ax", "Accl1")),
    settings=(*_RATE_AND_DECAY, Setting("lambd", ("lambd",)), Setting("alpha", ("alpha",))),
    doc="Averaged SGD.")

_ADAFACTOR = OptimizerSpec(
    cls=torch.optim.Adafactor,
    formula=formulas.adafactor,
    is_elementwise=False,
    hyper=(*_numbers("lr", "beta2_decay"), Hyper("eps1", "eps.0", math.nan), Hyper("eps2", "eps.1"),
           *_numbers("d", "weight_decay")),
    flags=("maximize",),
    states=(StateTensor("row_var", "Accl1", sizes=partial(formulas.factors, dim=-1)),
            StateTensor("col_var", "Accl2", sizes=partial(formulas.factors, dim=-2)),
            StateTensor("variance", "Accl3",
                        sizes=lambda sizes: sizes if len(sizes) < 2 else None)),
    settings=_RATE_AND_DECAY,
    doc="Keeps mean squares of rows and columns alone.")

_MUON = OptimizerSpec(
    cls=torch.optim.Muon,
    formula=formulas.muon,
    is_elementwise=False,
    uses_sizes=True,
    hyper=_numbers("lr", "weight_decay", "momentum", "eps"),
    flags=("nesterov",),
    constants=("ns_coefficients", "ns_steps", "adjust_lr_fn"),
    states=(StateTensor("momentum_buffer", "Accl1"),),
    settings=(*_RATE_AND_DECAY, Setting("momentum", ("momentum",)), _EPS),
    counts=False,
    doc="For matrices: steps along the momentum after its rows are made orthogonal.")

ROWS: dict[type, OptimizerSpec] = {spec.cls: spec for spec in (
    _SGD, _ADAM, _ADAMW, _RMSPROP, _LAMB, _ADAGRAD, _ADADELTA, _ADAMAX, _NADAM, _RADAM, _RPROP,
    _ASGD, _ADAFACTOR, _MUON)}


# Of torch, too, and what to do instead.
_WITHOUT = {
    torch.optim.LBFGS: "It computes the loss several times for each update. Train with it on the "
                       "CPU, or use Adam",
    torch.optim.SparseAdam: "It takes sparse gradients, the device has dense ones. Use Adam, which "
                            "updates all rows",
}


def has_own_step(optimizer) -> bool:
    """Whether an optimizer has a ``step()`` that can be captured, and that is not the one of a row.
    """
    if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, DeviceSettings) \
            or isinstance(optimizer, tuple(_WITHOUT)):
        return False
    base = next((cls for cls in type(optimizer).__mro__ if cls in ROWS), torch.optim.Optimizer)
    # torch wraps step() of a class when the first object of the class is created.
    return inspect.unwrap(type(optimizer).step) is not inspect.unwrap(base.step)


def check_has_own_step(optimizer, where: str, expected: bool = True) -> None:
    """Raises a ValueError unless :func:`has_own_step` is as ``expected``."""
    check_is_optimizer(optimizer)
    if has_own_step(optimizer) is not expected:
        ways = ("is updated by an operation of the device", "has a step() that is captured")
        raise ValueError(f"[{where}] the optimizer of the wrapped model {ways[expected]}, "
                         f"{type(optimizer).__name__} {ways[not expected]}. Wrap the model again "
                         f"with trainingModel.")


def check_is_optimizer(optimizer) -> None:
    """Raises an Error for something else than an optimizer, or one that no program can train with.
    """
    if isinstance(optimizer, tuple(_WITHOUT)):
        spec_of(optimizer)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Error(f"[optimizer] expected an optimizer of poptorch.optim or torch.optim, got "
                    f"{_no_optimizer(optimizer)}.")


def spec_of(optimizer: torch.optim.Optimizer) -> OptimizerSpec:
    """The row of an optimizer.

    Raises:
        poptorch.Error: There is none; the message lists those that can be used.
    """
    for cls in type(optimizer).__mro__:
        if cls in ROWS:
            return ROWS[cls]
    if not isinstance(optimizer, torch.optim.Optimizer):
        check_is_optimizer(optimizer)
    why = next((words for cls, words in _WITHOUT.items() if isinstance(optimizer, cls)),
               "It has no step(). Write one, which is captured")
    raise Error(f"[optimizer] {type(optimizer).__name__} has no update on the device. {why}, or "
                f"choose one of {', '.join(spec.name for spec in ROWS.values())} (of "
                f"poptorch.optim or torch.optim).")


def _no_optimizer(value) -> str:
    """What a value is that is no optimizer, and what to do."""
    if isinstance(value, type) and issubclass(value, torch.optim.Optimizer):
        return f"the class {value.__name__}. Create one: {value.__name__}(model.parameters(), ...)"
    if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
        return f"the scheduler {type(value).__name__}. Pass the optimizer that it schedules"
    return f"{type(value).__name__}. Create one from the model's parameters()"
