"""Options about the precision that a model computes in, and two that are out of use."""

from typing import Self

import torch

from poptorch._base.checks import Bool, Dtype, Member, Nothing
from poptorch.enums import HalfFloatCastingBehavior
from poptorch.options._group import OptionGroup, Row

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
    _ROWS = (
        Row("floating_point_exceptions", False, "Stop at divisions by zero, NaN and the like.",
            Bool(), "enableFloatingPointExceptions", backend="enableFloatingPointChecks"),
        Row("record_non_finite", False, "Note which value first is NaN or infinite.", Bool(),
            "recordNonFinite"),
        Row("stochastic_rounding", False, "Round to half up or down at random.", Bool(),
            "enableStochasticRounding", backend="enableStochasticRounding"),
        Row("partials_type", torch.float32, "Type of partial sums in products.",
            Dtype((torch.float32, torch.float16)), "setPartialsType",
            backend="partialsTypeMatMuls"),
        Row("half_float_casting", HalfFloatCastingBehavior.FloatDowncastToHalf,
            "Type of operations on half and float.", Member(HalfFloatCastingBehavior),
            "halfFloatCasting", deprecated=_PYTORCH_RULES),
        Row("running_statistics_always_float", True, "Type of running statistics.", Bool(),
            "runningStatisticsAlwaysFloat", deprecated="statistics have the type of the buffer"),
        Row("autocast_enabled", True, "Cast operands automatically.", Bool(), "autocastEnabled",
            deprecated="use torch.autocast in the model"),
        Row("autocast_policy", None, "What autocasting would cast; never set.",
            Nothing()),
    )

    def __init__(self, popart_options=None):
        super().__init__()
        if popart_options is not None:
            popart_options._add(self)

    def enableFloatingPointExceptions(self, enabled: bool) -> Self:
        """Raises an error when the device divides by zero, compares NaN, overflows and the like.

        Each operation of the program is looked at, those of the backward pass and of the weight
        update included, for: a subtraction of infinities; a division by zero or by infinity; a
        multiplication of zero and infinity; a real operation with a complex result, such as the
        square root of a negative number; a comparison (``==``, ``!=``, ``<``, ``<=``, ``>``,
        ``>=``) with NaN; and an overflow, an infinite result of finite operands. NaN and
        infinities that are there already, such as a mask of ``-inf``, may be computed with. A
        call then raises a :class:`poptorch.Error` with the operation, the condition, the first
        element, the step and the user's line; weights have what was written to them until then,
        and the model can be called again. Operations are not joined and nothing is computed in
        place, so that a run takes longer and more memory.

        Args:
            enabled: True: raise. False: the default.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Precision.enableFloatingPointExceptions(True)
            PrecisionOptions(floating_point_exceptions=True)
        """
        return self._set("floating_point_exceptions", enabled)

    def recordNonFinite(self, enabled: bool) -> Self:
        """Lets each run note which value first is NaN or infinite, for ``executor.nan_report()``.

        Operations are looked at as with :meth:`enableFloatingPointExceptions`, until the first
        such value of a run, which is no error. Without effect where that option is on.

        Args:
            enabled: True: note it. False: the default.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Precision.recordNonFinite(True)
            PrecisionOptions(record_non_finite=True)
        """
        return self._set("record_non_finite", enabled)

    def enableStochasticRounding(self, enabled: bool) -> Self:
        """Rounds to float16 and bfloat16 up or down at random, so that the mean is exact.

        All that the device computes in these types is rounded so: results of operations, gradients,
        weights and optimizer states. A number that the type has stays as it is; one beyond the
        largest becomes the nearest, which may be infinity. The random bits follow from
        :meth:`Options.randomSeed` and ``rng_state``, and are others in each step and replica; but
        replicas round alike what they have in common, such as updated weights. Copies round
        nothing, and what the host converts is rounded to the nearest.

        Args:
            enabled: True: at random. False, the default: to the nearest.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Precision.enableStochasticRounding(True)
            PrecisionOptions(stochastic_rounding=True)
        """
        return self._set("stochastic_rounding", enabled)

    def setPartialsType(self, dtype: torch.dtype) -> Self:
        """Sets the type of the partial sums of matrix products and convolutions of float16.

        With ``torch.float16`` a sum is cut into chunks of 16 products; the float32 sum of each is
        added to one that is rounded to float16 each time. So it is in the gradients, too. Products
        within attention and recurrent layers, and those of other types, are summed in float32.
        :meth:`MultiConv.partialsTypes` decides for single convolutions.

        Args:
            dtype: ``torch.float32``, the default, or ``torch.float16``.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a dtype.
            ValueError: Another dtype.

        Example:
            >>> import poptorch, torch
            >>> poptorch.Options().Precision.setPartialsType(torch.half)
            PrecisionOptions(partials_type=torch.float16)
        """
        return self._set("partials_type", dtype)

    def halfFloatCasting(
            self, half_float_casting: HalfFloatCastingBehavior) -> Self:
        """Without effect and deprecated: PyTorch's rules for mixed types hold.

        Args:
            half_float_casting: kept for reading.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a HalfFloatCastingBehavior.
        """
        return self._set_deprecated("half_float_casting", half_float_casting)

    def runningStatisticsAlwaysFloat(self, value: bool) -> Self:
        """Without effect and deprecated: running statistics have the type of their buffer.

        Args:
            value: kept for reading.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.
        """
        return self._set_deprecated("running_statistics_always_float", value)

    def autocastEnabled(self, autocast_enabled: bool) -> Self:
        """Without effect and deprecated: use ``torch.autocast`` inside of the model.

        Args:
            autocast_enabled: kept for reading.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.
        """
        return self._set_deprecated("autocast_enabled", autocast_enabled)
