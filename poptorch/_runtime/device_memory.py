"""The memory of a compiled program: released and restored, and carried over to another program."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from poptorch._runtime.compiled import CompiledModel


def release(compiled: CompiledModel) -> None:
    """Releases the memory of a program whose newest weights are on the host.

    States that only the device has are kept: those of the optimizer and of the random generator,
    and buffers that differ between replicas.
    """
    own = {state.path for state in _own_of_replicas(compiled)}
    compiled.executable.release({state.path for state in _on_host(compiled)} - own)


def restore(compiled: CompiledModel, join: Callable[[], None], leave: Callable[[], None]) -> None:
    """Takes memory for a program again, and writes all its states.

    ``join`` gives it the weights of the module, ``leave`` undoes that. If anything is raised, the
    program has no memory, as before.
    """
    executable = compiled.executable
    kept = {state: read_replicas(executable, state) for state in _on_host(compiled)
            if executable.has_state(state.path)}
    executable.restore()
    try:
        join()
        for state, values in kept.items():
            write_if_first(executable, state, values)
    except BaseException:
        leave()
        for state, values in kept.items():
            write_replicas(executable, state, values)
        release(compiled)
        raise


@dataclass(frozen=True)
class CarriedOver:
    """What only the device has of a program: the random state, and buffers of each replica."""

    random: list[int]
    replicas: dict[str, torch.Tensor]

    @classmethod
    def of(cls, compiled: CompiledModel) -> "CarriedOver":
        """Reads it from a program. The host, or the other program, has the newest weights."""
        return cls(compiled.random.read(),
                   {state.path: read_replicas(compiled.executable, state)
                    for state in _own_of_replicas(compiled)})

    def give(self, compiled: CompiledModel) -> None:
        """Writes it to the other program, which has the newest weights."""
        compiled.random.write(self.random)
        for state in _on_host(compiled):
            values = self.replicas.get(state.path)
            if values is not None and values.shape[1] == state.bytes:
                write_if_first(compiled.executable, state, values)


def _own_of_replicas(compiled: CompiledModel) -> list:
    """The states of tensors of the module that differ between replicas."""
    executable = compiled.executable
    return [state for state in _on_host(compiled) if executable.has_state(state.path)
            and state.path not in compiled.program.weight_groups
            and not executable.is_same_in_replicas(state.path)]


def _on_host(compiled: CompiledModel) -> list:
    """The states of tensors of the module."""
    return [state for state in compiled.executable.states()
            if state.path in compiled.program.states]


def read_replicas(executable, state) -> torch.Tensor:
    """The bytes of a state in each replica."""
    found = torch.empty((executable.replicas, state.bytes), dtype=torch.uint8)
    for replica, value in enumerate(found):
        executable.read_state(state.path, value.data_ptr(), value.nbytes, replica)
    return found


def write_if_first(executable, state, values: torch.Tensor) -> None:
    """Writes the values of the replicas, unless the host has written to the module since."""
    if torch.equal(read_replicas(executable, state)[0], values[0]):
        write_replicas(executable, state, values)


def write_replicas(executable, state, values: torch.Tensor) -> None:
    """Writes what :func:`read_replicas` read from a state of the same name."""
    for replica, value in enumerate(values):
        executable.write_state(state.path, value.data_ptr(), value.nbytes, replica)
