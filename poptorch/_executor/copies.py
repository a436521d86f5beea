"""Executors that are copied or pickled."""

from poptorch._weights import grouping


def wrapped_again(cls: type, arguments: dict, groupings: dict, modes: dict[str, bool]):
    """A copy of an executor: wrapped in the same way, not yet compiled.

    Args:
        cls: of the executor.
        arguments: of its constructor.
        groupings: what ``replicaGrouping`` declared.
        modes: which layers are in training mode, by path.
    """
    executor = cls(**arguments)
    executor._modes.take(modes)
    grouping.declare(executor, groupings)
    return executor
