"""Weight updates as formulas: functions on tensors, for the device and for ``step()`` on the CPU.

A formula takes one object that has everything by its name:

    param, grad       the parameter and its gradient; negated already where the group maximizes
    step              number of the update, from 1
    dtype             in which the parameter is kept
    lr, beta1, ...    the hyper-parameters of the row, by their names there
    centered, ...     the flags of the row
    exp_avg, ...      the states of the row, by torch's keys; None for those that there are not

and returns the new values by name: ``param``, and the states that there are. Tensors with
dimensions are float32 whatever they are kept in (float64 of a float64 parameter), and are rounded
once where they are kept. Hyper-parameters, ``step`` and states that never have dimensions are
float64 tensors without dimensions; they take part in operations as Python numbers would. Nothing
may depend on their values but by tensor operations, so ``torch.where`` and not ``if``.

For optimizers of PyTorch that have a functional form, :func:`torch_form` makes the formula.
"""

import contextlib
import inspect
import math
import threading
from collections.abc import Callable

import torch
from torch.overrides import TorchFunctionMode

from poptorch._optimizer.settings import groups_of
from poptorch._optimizer.spec import COUNT, OptimizerSpec, number_type


def adam(x) -> dict[str, torch.Tensor]:
    """torch.optim.Adam and AdamW, for the CPU: with ``bias_correction`` or without."""
    grad, param = x.grad, x.param
    if x.decoupled_weight_decay:
        param = param * (1 - x.lr * x.weight_decay)
    else:
        grad = decayed(grad, x.weight_decay, param)
    new = {"exp_avg": mixed(x.exp_avg, grad, 1 - x.beta1),
           "exp_avg_sq": x.beta2 * x.exp_avg_sq + (1 - x.beta2) * (grad * grad)}
    rate, second = x.lr, new["exp_avg_sq"]
    if x.amsgrad:
        second = new["max_exp_avg_sq"] = torch.maximum(x.max_exp_avg_sq, second)
    if x.bias_correction:
        rate, second = rate / (1 - x.beta1 ** x.step), second / (1 - x.beta2 ** x.step)
    return {"param": param - rate * (new["exp_avg"] / (second.sqrt() + x.eps)), **new}


def rmsprop(x) -> dict[str, torch.Tensor]:
    """torch.optim.RMSprop; with ``use_tf_variant`` as TensorFlow has it: epsilon within the root,
    and the momentum buffer holds steps, the learning rate of each in it."""
    grad = decayed(x.grad, x.weight_decay, x.param)
    new = {"square_avg": x.alpha * x.square_avg + (1 - x.alpha) * (grad * grad)}
    mean_square = new["square_avg"]
    if x.centered:
        new["grad_avg"] = mixed(x.grad_avg, grad, 1 - x.alpha)
        mean_square = mean_square - new["grad_avg"] * new["grad_avg"]
    if x.use_tf_variant:
        change = x.lr * grad / (mean_square + x.eps).sqrt()
    else:
        change = grad / (mean_square.sqrt() + x.eps)
    if x.momentum_buffer is not None:
        change = new["momentum_buffer"] = x.momentum * x.momentum_buffer + change
    return {"param": x.param - (change if x.use_tf_variant else x.lr * change), **new}


def lamb(x) -> dict[str, torch.Tensor]:
    """LAMB of arXiv 1904.00962: Adam's step, with weight decay, of the length
    ``lr * min(norm of the parameter, max_weight_norm)``."""
    new = {"exp_avg": x.beta1 * x.exp_avg + (1 - x.beta1) * x.grad,
           "exp_avg_sq": x.beta2 * x.exp_avg_sq + (1 - x.beta2) * (x.grad * x.grad)}
    first, second = new["exp_avg"], new["exp_avg_sq"]
    if x.bias_correction:
        first = first / (1 - x.beta1 ** x.step)
        second = second / (1 - x.beta2 ** x.step)
    update = decayed(first / (second.sqrt() + x.eps), x.weight_decay, x.param)
    weight_norm = torch.minimum(_norm(x.param).double(), x.max_weight_norm)
    update_norm = _norm(update).double()
    is_zero = (weight_norm == 0) | (update_norm == 0)
    ratio = torch.where(is_zero, 1.0, weight_norm / update_norm)
    return {"param": x.param - x.lr * ratio * update, **new}


def asgd(x) -> dict[str, torch.Tensor]:
    """torch.optim.ASGD. As long as ``mu`` is 1 the average is the parameter itself, whatever it was
    before."""
    grad = decayed(x.grad, x.weight_decay, x.param)
    param = x.param * (1 - x.lambd * x.eta) - x.eta * grad
    return {"param": param,
            "ax": torch.where(x.mu == 1, param, x.ax + (param - x.ax) * x.mu),
            "eta": x.lr / (1 + x.lambd * x.lr * x.step) ** x.alpha,
            "mu": 1 / torch.maximum(x.step - x.t0, torch.ones_like(x.step))}


def adafactor(x) -> dict[str, torch.Tensor]:
    """torch.optim.Adafactor. ``eps1`` is not a number where it is the parameter's own epsilon."""
    eps1 = torch.where(x.eps1.isnan(), torch.finfo(x.dtype).eps, x.eps1)
    new_part = x.step ** x.beta2_decay
    rate = torch.minimum(x.lr, x.step ** -0.5)
    alpha = torch.maximum(x.eps2, _mean_root(x.param)) * rate
    param = x.param * (1 - x.lr * x.weight_decay)
    square = x.grad * x.grad
    if x.variance is None:
        new = {"row_var": mixed(x.row_var, square.mean(-1, keepdim=True), new_part),
               "col_var": mixed(x.col_var, square.mean(-2, keepdim=True), new_part)}
        mean = new["row_var"].mean(-2, keepdim=True)
        variance = new["row_var"] * new["col_var"] / torch.maximum(mean, eps1)
    else:
        variance = mixed(x.variance, square, new_part)
        new = {"variance": variance}
    update = x.grad * torch.maximum(variance, eps1 * eps1).rsqrt()
    shrink = torch.maximum(_mean_root(update) / x.d, torch.ones_like(x.d))
    return {"param": param - alpha / shrink * update, **new}


def muon(x) -> dict[str, torch.Tensor]:
    """torch.optim.Muon: a step along the momentum after its rows are made orthogonal."""
    rows, columns = x.param.shape
    buffer = mixed(x.momentum_buffer, x.grad, 1 - x.momentum)
    update = mixed(x.grad, buffer, x.momentum) if x.nesterov else buffer
    update = _orthogonal(update, x.ns_coefficients, x.ns_steps, x.eps).to(x.param.dtype)
    ratios = {"match_rms_adamw": 0.2 * math.sqrt(max(rows, columns))}
    ratio = ratios.get(x.adjust_lr_fn, math.sqrt(max(1.0, rows / columns)))
    return {"param": x.param * (1 - x.lr * x.weight_decay) - x.lr * ratio * update,
            "momentum_buffer": buffer}


def _orthogonal(x: torch.Tensor, coefficients, steps: int, eps: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz iterations in bfloat16, as in torch. A tall matrix is transposed: its products
    with itself are then smaller."""
    a, b, c = coefficients
    is_tall = x.shape[0] > x.shape[1]
    out = (x.T if is_tall else x).bfloat16()
    out = out / torch.maximum(out.norm(), eps.bfloat16())
    for _ in range(steps):
        square = out @ out.T
        factor = torch.addmm(square, square, square, beta=b, alpha=c)
        out = torch.addmm(out, factor, out, beta=a)
    return out.T if is_tall else out


def factors(sizes: list[int], dim: int) -> list[int] | None:
    """Sizes of Adafactor's mean squares along a dimension, of a parameter with two at least."""
    if len(sizes) < 2:
        return None
    return [1 if place == len(sizes) + dim else size for place, size in enumerate(sizes)]


def decayed(grad: torch.Tensor, decay: torch.Tensor, param: torch.Tensor) -> torch.Tensor:
    """A gradient with weight decay. Without, it is the gradient itself: 0 times an infinite
    parameter would be NaN."""
    return torch.where(decay == 0, grad, grad + decay * param)


def _norm(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum().sqrt()


def _mean_root(x: torch.Tensor) -> torch.Tensor:
    return (x * x).mean().sqrt().double()


def mixed(old: torch.Tensor, new: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """``torch.lerp``: from the nearer end, so that a part of 1 gives ``new``, however large the
    old one is."""
    is_near = part < 0.5
    return torch.where(is_near, old, new) + (new - old) * torch.where(is_near, part, part - 1)


# -- step() on the CPU ----------------------------------------------------------------------------


@torch.no_grad()
def host_step(optimizer: torch.optim.Optimizer, spec: OptimizerSpec, closure: Callable | None):
    """``step()`` on the CPU: updates every parameter that has a gradient by the formula of
    ``spec``. Returns what the closure returned; a RuntimeError for a sparse gradient."""
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
    fixed = spec.compiled_values(group) | {"dtype": parameter.dtype}
    new = spec.evaluate(fixed, {**numbers, "step": kept[COUNT].double(),
                                **{name: value.to(wide) for name, value in own.items()}})
    for name, value in new.items():
        own[name].copy_(value)


# -- PyTorch's functional forms, run on one parameter ----------------------------------------------
#
# They take hyper-parameters as Python numbers. Here these are tensors without dimensions, as their
# values come with each call. While such a function runs, a mode lets tensors stand for numbers.


def torch_form(function, *order: str, **fixed):
    """The formula of a functional form, such as ``torch.optim.adagrad.adagrad``, which takes lists:
    of parameters, of gradients, of each state in ``order``, of updates so far. Its parameters that
    are called as a hyper-parameter or flag of the row are given that."""
    names = inspect.signature(function).parameters.keys()

    def formula(x) -> dict[str, torch.Tensor]:
        states = {key: getattr(x, key) for key in order}
        given = {name: value for name, value in vars(x).items() if name in names}
        with _compiling(), _TensorsAsNumbers():
            function([x.param], [x.grad], *([state] for state in states.values()), [x.step - 1],
                     **{**given, **fixed, "foreach": False, "maximize": False})
        return {"param": x.param, **states}

    return formula


@contextlib.contextmanager
def _compiling():
    """On this thread torch's functions take the path of torch.compile, which does not ask for the
    value of a tensor and lets ``capturable`` be on the CPU."""
    asked, here = torch.compiler.is_compiling, threading.get_ident()
    torch.compiler.is_compiling = lambda: threading.get_ident() == here or asked()
    try:
        yield
    finally:
        torch.compiler.is_compiling = asked


class _TensorsAsNumbers(TorchFunctionMode):
    """Lets 64-bit tensors without dimensions stand where a number is needed.

    `if weight_decay != 0: grad = grad.add(param, alpha=weight_decay)` becomes a choice between both
    gradients by the number's value: without weight decay infinite parameters give no NaN.
    """

    def __init__(self):
        super().__init__()
        self._compared: list[torch.Tensor] = []  # numbers for which the branch of != 0 is taken

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        instead = _INSTEAD.get(getattr(func, "__name__", ""))
        if instead is not None:
            if instead is _differs:
                self._compared.append(args[0])
            elif any(kwargs.get("alpha") is number for number in self._compared):
                kwargs = {**kwargs, "unless_zero": True}
            result = instead(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return func(*args, **kwargs)


def _is_number(value) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0 and value.dtype is torch.float64


def _differs(value, other):
    return True if _is_number(value) and type(other) in (int, float) else NotImplemented


def _add(x, other, *, alpha=1, unless_zero=False):
    if not _is_number(alpha):
        return NotImplemented
    return decayed(x, alpha, other) if unless_zero else x + other * alpha


def _addcmul(x, a, b, *, value=1):
    return x + a * b * value if _is_number(value) else NotImplemented


def _addcdiv(x, a, b, *, value=1):
    return x + a / b * value if _is_number(value) else NotImplemented


def _lerp(x, end, weight):
    return mixed(x, end, weight) if _is_number(weight) else NotImplemented


def _in_place(function):
    def changed(x, *args, **kwargs):
        found = function(x, *args, **kwargs)
        return found if found is NotImplemented else x.copy_(found)
    return changed


def _multiplied(x, other):
    # What torch changes in place is a state, which is float32 unless float64 is the default type.
    if not (_is_number(x) and _is_number(other)):
        return NotImplemented
    if torch.get_default_dtype() is torch.float64:
        return x.copy_(x * other)
    return x.copy_(x.float() * other.float())


_INSTEAD = {"ne": _differs, "mul_": _multiplied}
for _name, _function in (("add", _add), ("addcmul", _addcmul), ("addcdiv", _addcdiv),
                         ("lerp", _lerp)):
    _INSTEAD |= {_name: _function, f"{_name}_": _in_place(_function)}
