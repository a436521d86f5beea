"""The memory of a compiled program: given back when its executor lets go of the device."""

from collections.abc import Callable

import torch

from poptorch._runtime.compiled import CompiledModel


def release(compiled: CompiledModel) -> None:
    """Gives the memory of a program back.

    The module has the weights. What only the device has is kept: states of the optimizer, that
    of the random generator, and buffers that replicas have different values of.

    Args:
        compiled: the program, of which the host has the newest weights.
    """
    executable, grouped = compiled.executable, compiled.program.weight_groups
    executable.release({state.path for state in _on_host(compiled)
                        if state.path in grouped or executable.is_same_in_replicas(state.path)})


def restore(compiled: CompiledModel, join: Callable[[], None], leave: Callable[[], None]) -> None:
    """Takes memory again, with all states.

    Args:
        compiled: the program, which has no memory.
        join: gives it the weights of the module.
        leave: undoes that, as far as it was done.

    Raises:
        poptorch.Error: There is not enough memory, or the module's tensors are no longer those of
            the program. It has no memory then, as before.
    """
    executable = compiled.executable
    kept = {state: _values(executable, state) for state in _on_host(compiled)
            if executable.has_state(state.path)}
    executable.restore()
    try:
        join()
        for state, values in kept.items():
            # A value that was written to the module meanwhile is for all replicas.
            if torch.equal(_values(executable, state)[0], values[0]):
                _write(executable, state, values)
    except BaseException:
        leave()
        for state, values in kept.items():
            _write(executable, state, values)
        release(compiled)
        raise


def _on_host(compiled: CompiledModel) -> list:
    """The states that the module has a tensor of."""
    return [state for state in compiled.executable.states()
            if state.path in compiled.program.states]


def _values(executable, state) -> torch.Tensor:
    """The bytes of a state in each replica."""
    found = torch.empty((executable.replicas, state.bytes), dtype=torch.uint8)
    for replica, value in enumerate(found):
        executable.read_state(state.path, value.data_ptr(), value.nbytes, replica)
    return found


def _write(executable, state, values: torch.Tensor) -> None:
    for replica, value in enumerate(values):
        executable.write_state(state.path, value.data_ptr(), value.nbytes, replica)
