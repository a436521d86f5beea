"""What an execution strategy is, and which there are."""

from poptorch.errors import Error

# The strategies by their names in programs and files, in the order of their definition.
KINDS: dict[str, type["_IExecutionStrategy"]] = {}


class _IExecutionStrategy:
    """Base class of the execution strategies: what ``setExecutionStrategy`` accepts.

    Strategies are compared by their attributes, so that equal options are equal. A subclass with a
    ``_kind`` is entered in ``KINDS``.
    """

    _kind = ""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "_kind" in vars(cls):
            KINDS[cls._kind] = cls

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None

    def _plain(self):
        """The strategy as values that JSON supports; itself, if it is a class of others."""
        return self

    def _partition(self, uses: tuple, starts_outside: bool):
        """Where a model's blocks run; see ``poptorch.strategies``."""
        names = ", ".join(kind.__name__ for kind in KINDS.values())
        raise Error(f"[{type(self).__name__}] this strategy does not say where blocks run. Use one "
                    f"of poptorch's: {names}.")

    def _least_steps(self, stages: int, training: bool) -> int:
        """The micro-batches, or device iterations for inference, that so many stages need at
        least."""
        return 1


def from_plain(values: dict) -> _IExecutionStrategy:
    """The strategy that ``Options.toDict`` gave as a dict; a TypeError or ValueError where it is
    none."""
    try:
        return KINDS[values["kind"]]._from_plain(values)
    except KeyError as missing:
        raise ValueError(f"no execution strategy: {missing}") from None
