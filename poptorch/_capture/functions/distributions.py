"""Checks that torch.distributions makes of values: the program makes them."""

import sys

import torch
from torch.distributions.constraints import Constraint

from poptorch._base.torch_private import basic, fake_tensors

_MODULES = "torch.distributions."
# The modules that also ask `if not valid.all():`, without torch._is_all_true.
_OWN_CHECKS = tuple(f"{_MODULES}{name}" for name in
                    ("constraints", "continuous_bernoulli", "geometric"))


def _is_all_true(capture, func, valid):
    caller = _caller()
    if not caller.f_globals.get("__name__", "").startswith(_MODULES):
        return NotImplemented
    while "self" not in caller.f_locals:  # in torch 2.15 a function without self is between
        caller = caller.f_back
    return capture.recorder.checks.require(func(valid), _words(caller.f_locals))


def _bool(capture, func, condition):
    caller = _caller()
    if caller.f_globals.get("__name__") not in _OWN_CHECKS:
        return NotImplemented
    return capture.recorder.checks.require(condition, _words(caller.f_locals))


def _caller():
    """The frame that calls the function of torch that is handled."""
    frame = sys._getframe(2)
    while frame.f_globals.get("__name__", "").startswith("poptorch."):
        frame = frame.f_back
    return frame


def _words(names: dict) -> str:
    """What is wrong where a check of these local variables fails."""
    checking = names["self"]
    if isinstance(checking, Constraint):
        return f"[distributions] {_invalid('a value', checking)}"
    if "support" in names:
        text = _invalid("the value", checking.support)
    else:
        name = names.get("param", "probs")
        text = _invalid(f"the parameter {name}", checking.arg_constraints[name])
    return f"[{type(checking).__name__}] {text}"


def _invalid(what: str, rule: Constraint) -> str:
    expected = repr(rule)
    if fake_tensors.is_named_in(expected):
        expected = type(rule).__name__.removeprefix("_")
    return (f"{what} has an element that is not valid: expected {expected}. Pass valid values, or "
            f"validate_args=False.")


HANDLERS = {basic.is_all_true: _is_all_true, torch.Tensor.__bool__: _bool}
