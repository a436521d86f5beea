"""Torch on real tensors, whatever modes and transformations of it the caller has active.

Weights are copied to the host during an operation of the user's, which may be traced
(``torch.jit.trace``, ``make_fx``), transformed (``torch.func``), counted, or on another default
device. What copies them must neither be recorded nor be changed by that.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from poptorch.errors import Error

_dispatch_modes = torch._C._len_torch_dispatch_stack
_has_function_modes = torch._C._is_torch_function_mode_enabled
_tracing = torch._C._get_tracing_state
_transformation = torch._C._functorch.peek_interpreter_stack
# Modes that compute something else than values.
_RECORDERS = {torch._C._TorchDispatchModeKey.FAKE: "a FakeTensorMode",
              torch._C._TorchDispatchModeKey.PROXY: "make_fx",
              torch._C._TorchDispatchModeKey.FUNCTIONAL: "functionalization"}


def is_plain() -> bool:
    """Whether no mode and no transformation is active in this thread."""
    return not (_dispatch_modes() or _has_function_modes()) and _tracing() is None \
        and _transformation() is None


def computes_values() -> bool:
    """Whether real tensors can be read and written here, for what the garbage collector runs: that
    may be within an operation on fake tensors, which have no values."""
    return is_plain() and not torch._C._meta_in_tls_dispatch_include()


@contextlib.contextmanager
def plain_torch() -> Iterator[None]:
    """Operations in here do what they do where no mode and no transformation is active."""
    with torch._C.DisableTorchFunction():
        if is_plain():
            yield
            return
        with _untraced(), temporarily_clear_interpreter_stack(), _disable_current_modes():
            yield


@contextlib.contextmanager
def _untraced() -> Iterator[None]:
    state = _tracing()
    if state is None:  # torch refuses to set it within an operation, even to the same value
        yield
        return
    torch._C._set_tracing_state(None)
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)


def is_plain_for(where: str) -> bool:
    """Whether no mode and no transformation is active in this thread.

    One that records operations instead of computing values is an Error: it would take the results
    of a program, which it does not see, for constants.
    """
    if is_plain():
        return True
    active = "torch.jit.trace" if _tracing() is not None else \
        "a transformation of torch.func" if _transformation() is not None else \
        next((name for key, name in _RECORDERS.items()
              if torch._C._get_dispatch_mode(key) is not None), None)
    if active is not None:
        raise Error(f"[{where}] a compiled model computes values, but within {active} there are "
                    f"none: it would be left out of what is recorded. Call it outside, or use "
                    f"the plain module.")
    return False
