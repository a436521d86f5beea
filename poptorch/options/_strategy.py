"""The check of the option that holds an execution strategy."""

from poptorch._annotations.strategy_rows import _IExecutionStrategy, from_plain
from poptorch._base.checks import Check


class IsStrategy(Check):
    """An execution strategy."""

    text = "an execution strategy such as poptorch.PipelinedExecution()"

    def __call__(self, value, option: str) -> _IExecutionStrategy:
        if not isinstance(value, _IExecutionStrategy):
            raise self.wrong_type(value, option)
        return value

    def load(self, value) -> _IExecutionStrategy:
        """The strategy again."""
        return value if isinstance(value, _IExecutionStrategy) else from_plain(value)
