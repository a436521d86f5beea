"""Checks of values, which have no result that would keep them in a program."""

import operator

import torch
from torch import fx

from poptorch._base.logging import logger
from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph.constant_values import known_value
from poptorch._capture.library.value_checks import checked
from poptorch.errors import place_text

aten = torch.ops.aten


class Checks:
    """Records, for a :class:`Recorder`, checks of values. The program makes them with its results:
    :meth:`tie` lets one of these depend on them."""

    def __init__(self, recorder):
        self._recorder = recorder
        # Condition, words where it is false, and the user's place.
        self._wanted: list[tuple[torch.Tensor, str, tuple | None]] = []
        self.handlers = {
            aten._linalg_check_errors.default: self._matrix,
            aten._assert_async.default: self._assertion,
            aten._assert_async.msg: self._assertion,
        }

    def require(self, condition: torch.Tensor, words: str) -> bool:
        """Lets the program raise ``words`` where a bool of one element is false. Returns False if
        it is known to be false."""
        recorder = self._recorder
        if recorder.in_backward:  # a checkpoint computes it again
            return True
        if private.is_transformed() or recorder.is_in_region():
            place = place_text(recorder.places.here(), recorder.module)
            logger.warning("%s This is not checked in the body of a loop or a branch, and in "
                           "functions that torch.func transforms.%s", words,
                           f"\n  at {place}" if place else "")
            return True
        value = known_value(recorder, condition)
        if value is None:
            self._wanted.append((condition, words, recorder.places.here()))
        return value is None or bool(value)

    def tie(self, results: list[torch.Tensor]) -> dict[int, fx.Node]:
        """Records what was required, at the end of ``forward``: the number of a result, and the
        node that has its value and makes the checks."""
        made = [i for i, x in enumerate(results) if fake_tensors.is_fake(x)]
        if not self._wanted or not made:
            return {}
        number = min(made, key=lambda i: results[i].numel())
        node = self._recorder.node_of(results[number])
        value = results[number].detach()
        for condition, words, place in self._wanted:
            value = checked(value, condition, words)
            added = self._recorder.node_of(value)
            added.meta = {**added.meta, "annotations": node.meta["annotations"],
                          "place": place, "module": node.meta["module"]}
        return {number: added}

    def _matrix(self, func, args, kwargs):
        """Lets the operator that gave ``info`` (``linalg_inv_ex``, say) refuse a matrix itself."""
        maker = self._recorder.node_of(args[0])
        while maker.target is operator.getitem:
            maker = maker.args[0]
        schema = getattr(maker.target, "_schema", None)
        names = [argument.name for argument in schema.arguments] if schema else []
        if "check_errors" not in names:
            with self._recorder:
                is_right = (args[0] == 0).all()
            self._assertion(func, (is_right, "[linalg] an operation did not succeed."), {})
        elif names.index("check_errors") < len(maker.args):
            maker.update_arg(names.index("check_errors"), True)
        else:
            maker.update_kwarg("check_errors", True)

    def _assertion(self, func, args, kwargs):
        condition, *words = args
        with self._recorder:
            condition = condition.ne(0)
        words = words[0] if words else "[_assert_async] an asserted value is false."
        if not self.require(condition, words):
            raise self._recorder.error(words)
