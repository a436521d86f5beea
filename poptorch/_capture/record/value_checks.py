"""Operations that only check values, and so have no result that would keep them in a program."""

import operator

import torch

from poptorch._base.logging import logger
from poptorch.errors import place_text

aten = torch.ops.aten


class Checks:
    """Records, for a :class:`Recorder`, checks of values."""

    def __init__(self, recorder):
        self._recorder = recorder
        self.handlers = {
            aten._linalg_check_errors.default: self._matrix,
            aten._assert_async.default: self._assertion,
            aten._assert_async.msg: self._assertion,
        }

    def _matrix(self, func, args, kwargs):
        """Lets the operator that gave ``info`` (``linalg_inv_ex``, say) refuse a matrix itself."""
        maker = self._recorder.node_of(args[0])
        while maker.target is operator.getitem:
            maker = maker.args[0]
        schema = getattr(maker.target, "_schema", None)
        names = [argument.name for argument in schema.arguments] if schema else []
        if "check_errors" not in names:
            self._assertion(func, args, kwargs)
        elif names.index("check_errors") < len(maker.args):
            maker.update_arg(names.index("check_errors"), True)
        else:
            maker.update_kwarg("check_errors", True)

    def _assertion(self, func, args, kwargs):
        place = place_text(self._recorder.places.here(), self._recorder.module)
        logger.warning("[%s] the check is not part of the program, which has operations with "
                       "results only: nothing is raised where it fails. Return the condition, and "
                       "check it outside of forward.%s", func.overloadpacket.__name__,
                       f"\n  at {place}" if place else "")
