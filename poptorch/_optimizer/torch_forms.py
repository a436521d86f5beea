"""Formulas of torch's own optimizers: their functional forms, run on one parameter.

torch's functions take hyper-parameters as Python numbers. Here they are tensors without
dimensions, as their values come with each call: while such a function runs, what it does with a
number is done with such a tensor.
"""

import contextlib
import threading

import torch
from torch.overrides import TorchFunctionMode

from poptorch._optimizer.formulas import decayed, mixed


def torch_form(function, order: tuple[str, ...], **settings):
    """The formula of a functional form, such as ``torch.optim.adagrad.adagrad``.

    Args:
        function: takes lists: of parameters, of gradients, of each state, of updates so far.
        order: of the states, by torch's keys.
        settings: further arguments, and names of flags that it takes: ``name="name"``.
    """
    fixed = {name: value for name, value in settings.items() if not isinstance(value, str)}
    given = {name: value for name, value in settings.items() if isinstance(value, str)}

    def formula(x) -> dict[str, torch.Tensor]:
        states = {key: getattr(x, key) for key in order}
        with _compiling(), _TensorsAsNumbers():
            function([x.param], [x.grad], *([state] for state in states.values()), [x.step - 1],
                     foreach=False, maximize=False,
                     **{name: getattr(x, key) for name, key in given.items()}, **fixed)
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
