"""The state of an executor's optimizer: on the device, and on the host while it is not there.

Both directions are lazy. What is loaded waits for the next run; what a run changed is read when
somebody asks, once.
"""

import torch

from poptorch._executor import weights
from poptorch._logging import logger
from poptorch._translate.types import check_dense, host_tensor, torch_dtype
from poptorch.errors import Error


class OptimizerState:
    """What ``Optimizer.state_dict()`` of the executor's optimizer reads, and what loading writes.

    Attributes:
        is_exported: some optimizer of ``poptorch.optim`` shows this state.
    """

    def __init__(self):
        self.is_exported = False
        self._executable = self._program = None
        self._can_run = False
        # Of the last program that could run: names of settings.
        self._layout = None
        # As last read, by name; None when a run may have changed it.
        self._values: dict[str, torch.Tensor] | None = None
        self._has_changed = False
        # What waits for the next run, and the settings that came with it.
        self._loaded: dict[str, torch.Tensor] | None = None
        self._loaded_settings: dict[str, torch.Tensor] | None = None

    def bind(self, optimizer, program, executable, can_run: bool) -> None:
        """Takes note of what was compiled and writes the state that torch's optimizer has.

        Args:
            optimizer: the user's.
            program: what translate made.
            executable: the compiled program.
            can_run: whether the program is to run here.
        """
        self._executable, self._program, self._can_run = executable, program, can_run
        self._values, self._has_changed = None, False
        self._layout = program.optimizer if can_run else None
        written = self._write(from_torch(optimizer, program.optimizer))
        for state in executable.states():
            if state.role == "optimizer" and state.path not in written:
                executable.clear_state(state.path)

    def load(self, values: dict[str, torch.Tensor] | None, settings, optimizer) -> None:
        """Keeps values for the next run.

        Args:
            values: by name; None: those that torch's optimizer has now.
            settings: the settings that were saved with them.
            optimizer: the user's.
        """
        if values is not None:
            self._loaded = {**(self._loaded or {}), **values}
        elif self._executable is not None:
            self._loaded = from_torch(optimizer, self._program.optimizer) or None
        else:
            self._loaded = None
        self._loaded_settings = settings

    def take(self, other: "OptimizerState") -> None:
        """Takes over what waits in another one for a run that will not come."""
        if other._executable is None and other._loaded is not None:
            self._loaded = {**(self._loaded or {}), **other._loaded}
            self._loaded_settings = other._loaded_settings
            self._layout = self._layout or other._layout

    @property
    def has_loaded(self) -> bool:
        """Whether values wait for the next run."""
        return self._loaded is not None

    def values(self) -> dict[str, torch.Tensor] | None:
        """The state by name, as it is or will be when the next run begins.

        None: there is none. A device that is not to run has none either.
        """
        if self._values is None and self._can_run:
            self._values = self._read()
        if self._values is None and self._loaded is None:
            return None
        return {**(self._values or {}), **(self._loaded or {})}

    def settings(self, groups: list[dict]) -> dict[str, torch.Tensor] | None:
        """The numbers that updates of these parameter groups use; None where there is no state."""
        if self._layout is None:
            return self._loaded_settings
        return {name: torch.tensor(value, dtype=torch.float32)
                for name, value in self._layout.settings(groups).items()}

    def before_run(self) -> None:
        """Gives the device what was loaded; what was read is outdated from here on."""
        self.write_loaded()
        self.changed()

    def changed(self) -> None:
        """Takes note that the device may have another state than the one last read."""
        self._values, self._has_changed = None, True

    def write_loaded(self) -> None:
        """Gives the device what was loaded.

        Raises:
            poptorch.Error: A value is not of the shape of the device's.
        """
        if self._loaded is not None and self._executable is not None:
            self._check(self._loaded)
            self._write(self._loaded)
            self._loaded = None
            self.changed()

    def release(self) -> None:
        """Reads what the device has, for the next program, and lets go of it."""
        if self.is_exported and self._has_changed and self._can_run:
            self._loaded = self.values()
        self._executable = self._program = self._values = None
        self._can_run = self._has_changed = False

    def _entries(self):
        """``(entry, device state, groups of the weight)`` of each state."""
        states = {state.path: state for state in self._executable.states()}
        for entry in self._program.optimizer.entries():
            groups = self._program.weight_groups.get(entry.parameter)
            if entry.path in states:
                yield entry, states[entry.path], None if entry.key == "step" else groups

    def _read(self) -> dict[str, torch.Tensor]:
        return {entry.name: weights.read(self._executable, state, groups)
                for entry, state, groups in self._entries()}

    def _check(self, values: dict[str, torch.Tensor]) -> None:
        unknown, steps = dict.fromkeys(values), {}
        for entry, state, groups in self._entries():
            if entry.name not in values:
                continue
            value = values[entry.name]
            del unknown[entry.name]
            sizes = tuple(state.sizes) if groups is None else (groups.count, *state.sizes)
            if groups is not None and value.shape[1:] == sizes[1:]:
                groups.check(entry.name, value.shape)
            elif value.shape != sizes:
                raise Error(f"[load_state_dict] {entry.name} has the shape {tuple(value.shape)}, "
                            f"the model needs {sizes}. Load the state of an optimizer of the same "
                            f"model.")
            if entry.key == "step":
                other, step = steps.setdefault(entry.path, (entry.name, value.item()))
                if step != value.item():
                    raise Error(f"[load_state_dict] {other} is {step:g} and {entry.name} is "
                                f"{value.item():g}, but both are in one parameter group, whose "
                                f"updates are counted together. Make them equal.")
        if unknown:
            logger.warning("The model's optimizer has no state of the name %s: ignored.",
                           " or ".join(unknown))

    def _write(self, values: dict[str, torch.Tensor]) -> set[str]:
        """Writes values to the device; returns the paths of the states."""
        written = set()
        for entry, state, groups in self._entries():
            if entry.name in values:
                host = _of_type(values[entry.name], torch_dtype(state.dtype), entry.name)
                weights.write(self._executable, state.path, host, groups)
                written.add(state.path)
        return written


def from_torch(optimizer, layout) -> dict[str, torch.Tensor]:
    """The state that torch's optimizer has on the host, by the names that the device's has."""
    found, counted = {}, set()
    for entry in layout.entries():
        state = optimizer.state.get(entry.tensor, {})
        value = state.get(entry.key)
        if entry.key == "step":
            if value is None and state.get("momentum_buffer") is not None:
                value = 1  # torch's SGD does not count; the device asks only for the first step
            if entry.path in counted:
                continue  # the device counts for the whole group
        if value is not None:
            counted.add(entry.path)
            found[entry.name] = torch.as_tensor(value)
    return found


def _of_type(tensor: torch.Tensor, dtype: torch.dtype, name: str) -> torch.Tensor:
    if tensor.dtype is not dtype:
        return host_tensor(tensor, name).to(dtype)
    check_dense(tensor, name)
    return tensor.detach().contiguous()
