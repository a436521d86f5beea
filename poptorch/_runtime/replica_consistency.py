"""Replicas that share a value have the same one, also after a run that ended in its midst."""

import contextlib

import torch

from poptorch._base import interrupts
from poptorch._weights import values
from poptorch.errors import Error


def shared_states(executable, program) -> list[tuple]:
    """The states that replicas share, each with its groups; None: all replicas share it.

    Each replica has its own copy of a buffer that runs change, and of a weight whose value the host
    gets from each replica.
    """
    if executable.replicas == 1:
        return []
    layout, groups = program.optimizer, program.weight_groups
    paths = {path: groups.get(path) for path, tensor in program.states.items()
             if path in program.updated and isinstance(tensor, torch.nn.Parameter)}
    for entry in layout.entries() if layout is not None else ():
        paths[entry.path] = None if layout.has_no_dims(entry.key) else groups.get(entry.parameter)
    return [(state, paths[state.path]) for state in executable.states() if state.path in paths
            and not (paths[state.path] and paths[state.path].reads_all)]


def restore(executable, shared: list[tuple]) -> None:
    """Gives replicas what the first of those that share a value has, which is what the host gets.

    One after the other runs, and a run may have ended before the others changed it.
    """
    # In a forked process, and within another run of the program, nothing has run.
    with interrupts.deferred(), contextlib.suppress(Error):
        for state, groups in shared:
            if not executable.is_same_in_replicas(state.path):
                found = values.read(executable, state, groups)
                values.write(executable, state.path, found, groups)
