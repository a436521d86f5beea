"""Options about the precision that a model computes in, and two that are out of use."""

from typing import Self

import torch

from poptorch._base.checks import Bool, Dtype, Member, Nothing
from poptorch.enums import HalfFloatCastingBehavior
from poptorch.options._group import OptionGroup
from poptorch.options._row import Row, option

_PYTORCH_RULES = "PyTorch's rules for mixed types hold; cast in the model where they do not suit"


class _PrecisionOptions(OptionGroup):
    """Options about precision: ``options.Precision``.

    Args:
        popart_options: the ``_Popart`` group that these options are added to; None: none.

    Example:
        >>> import poptorch
        >>> poptorch.Options().Precision.enableStochasticRounding(True)
        PrecisionOptions(stochastic_rounding=True)
    """

    _PREFIX = "Precision."

    def __init__(self, popart_options=None):
        super().__init__()
        if popart_options is not None:
            popart_options._add(self)

    @option("floating_point_exceptions", False, Bool(), backend="enableFloatingPointChecks",
            compiler="check_floats")
    def enableFloatingPointExceptions(self, enabled: bool) -> Self:
        """Raises an error when the device divides by zero, compares NaN, overflows and the like.

        Each operation of the program is checked, also in the backward pass and in the weight
        update, for: a subtraction of infinities; a division by zero or by infinity; a
        multiplication of zero and infinity; a real operation with a complex result, such as the
        square root of a negative number; a comparison (``==``, ``!=``, ``<``, ``<=``, ``>``,
        ``>=``) with NaN; and an overflow, an infinite result of finite operands. NaN and
        infinities that are there already, such as a mask of ``-inf``, may be computed with. A
        call then raises a :class:`poptorch.Error` with the operation, the condition, the first
        element, the step and the user's line; weights have what was written to them until then,
        and the model can be called again. Operations are not fused and nothing is computed in
        place, so a run takes longer and needs more memory.

        Args:
            enabled: True: raise. False: the default.
        """

    @option("record_non_finite", False, Bool(), compiler="record_floats")
    def recordNonFinite(self, enabled: bool) -> Self:
        """Records which value of a run is the first NaN or infinity, for ``executor.nan_report()``.

        Operations are checked as with :meth:`enableFloatingPointExceptions`, until the first such
        value of a run, which is not an error. Has no effect where that option is on.

        Args:
            enabled: True: record it. False: the default.
        """

    @option("stochastic_rounding", False, Bool(), backend="enableStochasticRounding",
            step="stochastic_rounding")
    def enableStochasticRounding(self, enabled: bool) -> Self:
        """Rounds to float16 and bfloat16 up or down at random, so that the mean is exact.

        All that the device computes in these types is rounded so: results of operations, gradients,
        weights and optimizer states. A number that the type has does not change; a number beyond
        the largest becomes the nearest, which may be infinity. The random bits depend on
        :meth:`Options.randomSeed` and ``rng_state``, and differ in each step and replica. Replicas
        round values that they share, such as updated weights, alike. Copies do not round, and the
        host rounds to the nearest when it converts.

        Args:
            enabled: True: at random. False, the default: to the nearest.
        """

    @option("partials_type", torch.float32, Dtype((torch.float32, torch.float16)),
            backend="partialsTypeMatMuls")
    def setPartialsType(self, dtype: torch.dtype) -> Self:
        """Sets the type of the partial sums of matrix products and convolutions of float16.

        With ``torch.float16`` a sum is cut into chunks of 16 products; the float32 sum of each is
        added to one that is rounded to float16 each time. So it is in the gradients, too. Products
        within attention and recurrent layers, and those of other types, are summed in float32.
        :meth:`MultiConv.partialsTypes` decides for single convolutions.

        Args:
            dtype: ``torch.float32``, the default, or ``torch.float16``.

        Example:
            >>> import poptorch, torch
            >>> poptorch.Options().Precision.setPartialsType(torch.half)
            PrecisionOptions(partials_type=torch.float16)
        """

    @option("half_float_casting", HalfFloatCastingBehavior.FloatDowncastToHalf,
            Member(HalfFloatCastingBehavior), deprecated=_PYTORCH_RULES)
    def halfFloatCasting(self, half_float_casting: HalfFloatCastingBehavior) -> Self: ...

    @option("running_statistics_always_float", True, Bool(),
            deprecated="statistics have the type of the buffer")
    def runningStatisticsAlwaysFloat(self, value: bool) -> Self: ...

    @option("autocast_enabled", True, Bool(), deprecated="use torch.autocast in the model")
    def autocastEnabled(self, autocast_enabled: bool) -> Self: ...

    _autocast_policy = Row("autocast_policy", None, Nothing(),
                           "What autocasting would cast; never set.")
