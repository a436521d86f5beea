"""Loops and branches that run on the device."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from poptorch._base import capture_context
from poptorch.errors import Error, also


def for_loop(count: int, body: Callable[..., Any],
             inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Runs a function ``count`` times on the device; each round gets what the one before returned.

    ``body`` is called once, while the model is compiled, and becomes a graph of the program: a loop
    of 1,000 rounds compiles as fast as one of 2. It may use parameters and other tensors from
    outside of it, other modules, and loops and branches in turn. In training the gradient is a loop
    on the device, too: of what the rounds began with, it keeps what it reads, ``count`` times, and
    computes the rest of each round again.

    Outside of poptorch it is a loop of Python.

    Args:
        count: how often, at least 0.
        body: takes as many tensors as ``inputs`` has and returns as many, of the same types and
            sizes: a list or a tuple of tensors, or a single one.
        inputs: the tensors of the first round. They are passed by value: what ``body`` does to its
            arguments in place is not seen by the caller.

    Returns:
        What the last round returned; ``inputs`` where ``count`` is 0. These are contiguous copies:
        none shares memory with another or with a tensor from outside.

    Raises:
        ValueError: ``inputs`` is not a list of tensors. The error is also a
            :class:`poptorch.Error`.
        poptorch.Error: ``count`` is not a number of iterations; the tensors that ``body`` returns
            differ in shape or dtype from its inputs; or ``body`` changes an outside tensor in
            place.

    Example:
        >>> import poptorch, torch
        >>> poptorch.for_loop(3, lambda x: x * 2, [torch.ones(2)])
        [tensor([8., 8.])]
    """
    where = "for_loop"
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise _error(where, f"count must be an int of at least 0, got {count!r}. It is compiled "
                            f"in. If a tensor decides, use torch._higher_order_ops.while_loop.")
    _check_list(where, inputs)
    _check_called(where, "body", body)

    def checked(*values: torch.Tensor) -> list[torch.Tensor]:
        found = _listed(where, "body", body, *values)
        if _kinds(found) != _kinds(values):
            raise _error(where, f"body takes [{_words(values)}] and returns [{_words(found)}]. "
                                f"Return a tensor of the same type and sizes for each input.")
        return found

    capture = capture_context.current()
    if capture is not None and count > 0 and inputs:
        from poptorch._capture.loops import kinds as loop_kinds  # heavy parts of torch

        return loop_kinds.for_loop(capture, where, count, list(inputs), checked)
    values = _by_value(inputs)
    for _ in range(count):
        values = _by_value(checked(*values))
    return values


def cond(condition: torch.Tensor, then_body: Callable[..., Any],
         then_inputs: list[torch.Tensor], else_body: Callable[..., Any],
         else_inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Runs one of two functions on the device, as a tensor decides when the program runs.

    Both functions are called once, while the model is compiled, and become graphs of the program.
    Each call runs one of them. They may use parameters and other tensors from outside. In training
    the gradient flows through the branch that ran. Outside of poptorch the
    function is just called.

    Args:
        condition: a bool tensor of one element.
        then_body: runs where it is true; takes ``then_inputs`` and returns a list or a tuple of
            tensors, or a single one.
        then_inputs: its arguments, passed by value.
        else_body: runs where it is false; returns tensors of the same types and sizes as
            ``then_body``.
        else_inputs: its arguments, passed by value.

    Returns:
        What the function returned that ran. These are contiguous copies: none shares memory with
        another or with a tensor from outside.

    Raises:
        ValueError: inputs are no list, or have something else than tensors in it. It is a
            :class:`poptorch.Error`, too.
        poptorch.Error: ``condition`` is no bool of one element; the functions return different
            tensors, or change one from outside in place.

    Example:
        >>> import poptorch, torch
        >>> x = torch.tensor([1.0, 2.0])
        >>> poptorch.cond(x.sum() > 2, torch.sin, [x], torch.neg, [x])
        [tensor([0.8415, 0.9093])]
    """
    where = "cond"
    if not isinstance(condition, torch.Tensor) or condition.dtype is not torch.bool \
            or condition.numel() != 1:
        what = _words([condition]) if isinstance(condition, torch.Tensor) else repr(condition)
        raise _error(where, f"condition is {what}, a bool tensor of one element is needed. Compare "
                            f"tensors, or reduce with all() or any().")
    branches = []
    for name, body, inputs in (("then_body", then_body, then_inputs),
                               ("else_body", else_body, else_inputs)):
        _check_list(where, inputs)
        _check_called(where, name, body)
        branches.append((partial(_listed, where, name, body), list(inputs)))
    capture = capture_context.current()
    if capture is not None:
        from poptorch._capture.loops import kinds as loop_kinds  # heavy parts of torch

        return loop_kinds.cond(capture, where, condition, branches)
    body, inputs = branches[0] if condition else branches[1]
    return _by_value(body(*_by_value(inputs)))


def _listed(where: str, name: str, body: Callable, *values) -> list[torch.Tensor]:
    """What a function returns, as a list."""
    found = body(*values)
    found = [found] if isinstance(found, torch.Tensor) else found
    if not isinstance(found, (list, tuple)) or not all(
            isinstance(x, torch.Tensor) for x in found):
        raise _error(where, f"{name} returns {type(found).__name__} {found!r}. Return a tensor, or "
                            f"a list or a tuple of tensors.")
    return list(found)


def _by_value(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [x.clone(memory_format=torch.contiguous_format) for x in inputs]


def _check_list(where: str, inputs) -> None:
    if not isinstance(inputs, (list, tuple)):
        kind = "Tensor" if isinstance(inputs, torch.Tensor) else type(inputs).__name__
        raise also(ValueError, f"[{where}] Object is not list: {kind}. Pass a list of tensors.")
    for index, item in enumerate(inputs):
        if not isinstance(item, torch.Tensor):
            raise also(ValueError, f"[{where}] Object contained in list at index {index} is not "
                                   f"torch.tensor: {type(item).__name__}. Pass a list of tensors; "
                                   f"torch.tensor() makes one of a number.")


def _check_called(where: str, name: str, body) -> None:
    if not callable(body):
        raise _error(where, f"{name} is {body!r}. Pass a function.")


def _kinds(values: Sequence[torch.Tensor]) -> list:
    return [(x.dtype, x.shape) for x in values]


def _words(values: Sequence[torch.Tensor]) -> str:
    return ", ".join(f"{x.dtype}{list(x.shape)}" for x in values)


def _error(where: str, message: str) -> Error:
    return capture_context.error(f"[{where}] {message}")
