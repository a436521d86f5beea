"""Options about how a model is captured: one, which is out of use."""

from typing import Self

from poptorch._base.checks import Bool
from poptorch.options._group import OptionGroup
from poptorch.options._row import option


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

    @option("trace_model", True, Bool(), deprecated="there is one way of capturing a model")
    def traceModel(self, trace_model: bool) -> Self: ...
