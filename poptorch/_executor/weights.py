"""One module's weights, on the host and on the devices of its executors.

The rule: whoever is about to read a copy asks for it to be brought up to date first. The host's
copy is stale while some executor has run updates since it was last read back (``writer``); a
device's copy is stale when the host's has been renewed since it was uploaded (``version``).
"""

import weakref

import torch

from poptorch._translate.types import host_tensor, torch_dtype


class ModuleWeights:
    """Shared by all executors of one module.

    Attributes:
        version: grows each time the host copy is renewed from a device.
    """

    _of_module: "weakref.WeakKeyDictionary" = weakref.WeakKeyDictionary()

    def __init__(self):
        self.version = 0
        self._writer = None

    @classmethod
    def of(cls, module: torch.nn.Module) -> "ModuleWeights":
        """The object for ``module``: always the same one."""
        found = cls._of_module.get(module)
        if found is None:
            found = cls._of_module[module] = cls()
        return found

    @property
    def writer(self):
        """The executor whose device copy is newer than the host's, or None."""
        return self._writer() if self._writer is not None else None

    def written_by(self, executor) -> None:
        """Notes that ``executor`` has run updates."""
        self._writer = weakref.ref(executor)

    def renewed(self) -> None:
        """Notes that the host copy now is the newest."""
        self._writer = None
        self.version += 1

    def bring_to_host(self) -> bool:
        """Reads the weights back if some device has newer ones; returns whether it had to."""
        writer = self.writer
        if writer is None:
            return False
        writer.copyWeightsToHost()
        return True


def upload(executable, program) -> None:
    """Writes every parameter and buffer that the program kept to all replicas."""
    known = {state.path for state in executable.states()}
    for path, tensor in program.states.items():
        if path not in known:
            continue
        host = host_tensor(tensor, path)
        executable.write_state(path, host.data_ptr(), host.nbytes)


def download(executable, program) -> None:
    """Reads the states that runs change back into the module's tensors (of replica 0)."""
    states = {state.path: state for state in executable.states()}
    with torch.no_grad():
        for path in program.updated:
            if path not in program.states:
                continue
            state, target = states[path], program.states[path]
            host = torch.empty(state.sizes, dtype=torch_dtype(state.dtype))
            executable.read_state(path, host.data_ptr(), host.nbytes)
            target.detach().copy_(host)


def write_rng(executable, seed: list[int], replica: int) -> None:
    """Starts the random state of one replica: seed words, replica number, counter 0."""
    if any(state.path == "rng" for state in executable.states()):
        words = torch.tensor([*seed, replica, 0], dtype=torch.int32)
        executable.write_state("rng", words.data_ptr(), words.nbytes, replica)
