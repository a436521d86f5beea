"""The operations on functions of ``torch.ops.higher_order`` that are loops and branches;
``torch.cond`` and its like arrive as these, with flat lists of tensors."""

import functools
import inspect

import torch

from poptorch._base.pytree.structure import Structure
from poptorch._capture.loops import kinds as loop_kinds


def _arguments(names: str, args: tuple, kwargs: dict) -> list:
    """The arguments in the order of their names."""
    given = {**dict(zip(names.split(), args)), **kwargs}
    return [given.get(name, ()) for name in names.split()]


class _Results:
    """Takes what functions return apart into tensors; all of them must return the same
    structure."""

    def __init__(self, capture, name: str):
        self._capture, self._name, self._spec = capture, name, None

    def of(self, function, given: Structure | None = None):
        """``function``, as one that returns a list of tensors, and that takes the tensors of a
        ``given`` structure."""
        def called(*values):
            with self._capture.functions:
                arguments = values if given is None else given.unflatten(values)
                leaves, spec = Structure.of(function(*arguments))
            constants = [part.value for _, part in spec.leaves() if part is not None]
            if any(value is not None for value in constants):
                raise self._capture.recorder.error(
                    f"[{self._name}] {_name_of(function)} returns a value that is not a tensor. "
                    f"Return tensors, and containers of them.")
            self._spec = self._spec or spec
            own, others = self._spec.paths, spec.paths
            if len(own) == len(others) and own != others:
                raise self._capture.recorder.error(
                    f"[{self._name}] the branches return different structures, with tensors at "
                    f"{own} and at {others}. Return the same containers, with their keys in the "
                    f"same order.")
            return leaves

        return called

    def again(self, leaves: list):
        """The structure, around tensors."""
        return self._spec.unflatten(leaves)


def _name_of(function) -> str:
    if isinstance(function, functools.partial):  # of torch's, around the user's
        function = function.keywords.get("combine_fn", function.func)
    function = inspect.unwrap(function)
    return getattr(function, "__name__", type(function).__name__)


def _cond(capture, func, /, *args, **kwargs):
    condition, then, other, operands = _arguments("pred true_fn false_fn operands", args, kwargs)
    if not isinstance(condition, torch.Tensor):
        with capture.functions:
            return (then if condition else other)(*operands)
    results = _Results(capture, "cond")
    tensors, given = Structure.of(operands)
    branches = [(results.of(branch, given), tensors) for branch in (then, other)]
    return results.again(loop_kinds.cond(capture, "cond", condition, branches, as_torch=True))


def _while_loop(capture, func, /, *args, **kwargs):
    condition, body, carried, others = _arguments(
        "cond_fn body_fn carried_inputs additional_inputs", args, kwargs)
    tensors = [x if isinstance(x, torch.Tensor) else torch.tensor(x) for x in carried]
    results = _Results(capture, "while_loop")

    def holds(*values):
        with capture.functions:
            return condition(*values)

    return results.again(loop_kinds.while_loop(capture, "while_loop", holds, results.of(body),
                                               tensors, list(others)))


def _scan(capture, func, /, *args, **kwargs):
    function, init, rows, others = _arguments("combine_fn init xs additional_inputs", args, kwargs)
    results = _Results(capture, "scan")
    called = results.of(function)
    _check_rows(capture, "scan", rows)

    def checked(*values):
        found = called(*values, *others)
        loop_kinds.check_carried(capture, "scan", values[:len(init)], found[:len(init)])
        return found

    return results.again(loop_kinds.for_loop(
        capture, "scan", rows[0].shape[0], list(init), checked, rows, as_torch=True))


def _map(capture, func, /, *args, **kwargs):
    function, rows, others = _arguments("f xs pos_args", args, kwargs)
    results = _Results(capture, "map")
    called = results.of(function)
    _check_rows(capture, "map", rows)
    return results.again(loop_kinds.for_loop(
        capture, "map", rows[0].shape[0], [], lambda *values: called(*values, *others), rows,
        as_torch=True, stacks=True))


def _check_rows(capture, name: str, rows) -> None:
    lengths = {x.shape[0] if x.dim() else 0 for x in rows}
    if len(lengths) != 1 or lengths == {0}:
        raise capture.recorder.error(
            f"[{name}] the tensors xs have {sorted(lengths)} rows along their first dimension. "
            f"Pass tensors with the same number of rows, at least one.")


HIGHER_ORDER = {"cond": _cond, "while_loop": _while_loop, "scan": _scan, "map_impl": _map}
