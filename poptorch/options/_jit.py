"""Options about how a model is captured: one, which is out of use."""

from typing import Any, Self

from poptorch._base.checks import Bool
from poptorch.options._group import OptionGroup, Row


class _JitOptions(OptionGroup):
    """Options about capture: ``options.Jit``.

    Args:
        default_values: first values of options, by name.

    Example:
        >>> import poptorch
        >>> poptorch.Options().Jit.trace_model
        True
    """

    _PREFIX = "Jit."
    _ROWS = (
        Row("trace_model", True, "Capture by tracing.", Bool(), "traceModel",
            deprecated="there is one way of capturing a model"),
    )

    def __init__(self, **default_values: Any):
        super().__init__(**default_values)

    def traceModel(self, trace_model: bool) -> Self:
        """Without effect and deprecated: there is one way of capturing a model.

        Args:
            trace_model: kept for reading.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.
        """
        return self._set_deprecated("trace_model", trace_model)
