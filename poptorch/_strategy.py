"""What an execution strategy is."""

from poptorch.errors import Error


class _IExecutionStrategy:
    """Base class of the execution strategies: what ``setExecutionStrategy`` accepts.

    Strategies are compared by their attributes, so that equal options are equal.
    """

    def __eq__(self, other) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None

    def _plain(self):
        """The strategy as values that JSON knows; itself, where nothing is known of it."""
        return self

    def _partition(self, uses: tuple, starts_outside: bool):
        """Where a model's blocks run; see ``poptorch.strategies``."""
        raise Error(f"[{type(self).__name__}] this strategy does not say where blocks run. Use one "
                    f"of poptorch's: PipelinedExecution, ShardedExecution, SerialPhasedExecution, "
                    f"ParallelPhasedExecution.")
