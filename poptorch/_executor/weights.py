"""One module's weights, on the host and on the devices of its executors.

The rule: whoever is about to read a copy asks for it to be brought up to date first. The host's
copy is stale while some executor has run updates since it was last read back (``writer``); a
device's copy is stale when the host's has been renewed since it was uploaded (``version``).
"""

import weakref
from functools import partial

import torch

from poptorch._executor.transparent import plain_access
from poptorch._translate.replica_groups import WeightGroups
from poptorch._translate.types import host_tensor, torch_dtype, write_back


class ModuleWeights:
    """Shared by all executors of one module.

    Attributes:
        version: grows each time the host copy is renewed from a device.
        groupings: parameters of which groups of replicas have values of their own, see
            grouping.py, by identity.
    """

    _of_module: "weakref.WeakKeyDictionary" = weakref.WeakKeyDictionary()

    def __init__(self):
        self.version = 0
        self.groupings: dict = {}
        self._writer = None
        # Reads the newer weights; for when their executor is no longer there.
        self._download = None

    @classmethod
    def of(cls, module: torch.nn.Module) -> "ModuleWeights":
        """The object for ``module``: always the same one."""
        found = cls._of_module.get(module)
        if found is None:
            found = cls._of_module[module] = cls()
        return found

    def is_newer_on(self, executor) -> bool:
        """Whether the device copy of ``executor`` is newer than the host's."""
        return self._writer is not None and self._writer() is executor

    def is_newer_elsewhere(self, executor) -> bool:
        """Whether the device copy of another executor is newer than the host's."""
        return self._writer is not None and self._writer() is not executor

    def written_by(self, executor, executable, program) -> None:
        """Notes that ``executor`` has run updates with a program."""
        if not self.is_newer_on(executor):
            self._writer = weakref.ref(executor)
            self._download = partial(download, executable, program)

    def renewed(self) -> None:
        """Notes that the host copy now is the newest."""
        self._writer = self._download = None
        self.version += 1

    def bring_to_host(self) -> bool:
        """Reads the weights back if some device has newer ones; returns whether it had to."""
        if self._writer is None:
            return False
        writer, download_now = self._writer(), self._download
        if writer is not None:
            writer.copyWeightsToHost()
        else:
            self.renewed()
            download_now()
        return True


def upload(executable, program, only: list[str] | None = None) -> None:
    """Gives all replicas the present values of parameters and buffers that the program kept.

    The host's values are taken as they are, also where a device has newer ones. A large one that
    runs do not change has one copy in memory: the device reads the pages of the host's tensor, and
    a page that the host writes to is copied first (csrc/run/shared_pages.h).

    Args:
        executable: the compiled program.
        program: what translate made.
        only: the paths to write; None: all.
    """
    known = {state.path for state in executable.states()}
    with plain_access():
        for path, tensor in program.states.items():
            if path not in known or (only is not None and path not in only):
                continue
            host = host_tensor(tensor, path)
            groups = program.weight_groups.get(path)
            if groups is not None or not _share(executable, path, tensor, host):
                write(executable, path, host, groups)


def write(executable, path: str, host: torch.Tensor, groups: WeightGroups | None) -> None:
    """Gives a state of all replicas a value, or those of their groups.

    Args:
        executable: the compiled program.
        path: of the state.
        host: of the device's dtype, in memory without gaps.
        groups: of a weight, or of the state of its optimizer; None: without groups.
    """
    if groups is None:
        executable.write_state(path, host.data_ptr(), host.nbytes)
        return
    groups.check(path, host.shape)
    for replica in range(groups.replicas):
        value = host[groups.entry_for(replica, len(host))]
        executable.write_state(path, value.data_ptr(), value.nbytes, replica)


def spread(program) -> None:
    """Gives each weight of which the host gets the value of each replica an entry for each."""
    with plain_access():
        for path, groups in program.weight_groups.items():
            target = program.states.get(path)
            if target is not None and len(target) != groups.entries:
                entries = [groups.of(replica) for replica in range(groups.entries)]
                target.data = target.data[entries]


def _share(executable, path: str, tensor: torch.Tensor, host: torch.Tensor) -> bool:
    is_converted = host.data_ptr() != tensor.data_ptr()
    if is_converted or tensor.is_pinned():  # pinned: other hardware reads these very pages
        return False
    storage = host.untyped_storage()._cdata
    return executable.share_state(path, host.data_ptr(), host.nbytes, storage)


def download(executable, program) -> None:
    """Reads the states that runs change back into the module's tensors: of replica 0, or of those
    that a grouped weight has."""
    states = {state.path: state for state in executable.states()}
    with torch.no_grad():
        for path in program.updated:
            if path not in program.states:
                continue
            host = read(executable, states[path], program.weight_groups.get(path))
            write_back(program.states[path].detach(), host)


def read(executable, state, groups: WeightGroups | None) -> torch.Tensor:
    """The value of a state: that of replica 0, or those of its groups.

    Args:
        executable: the compiled program.
        state: one of its ``states()``.
        groups: as for :func:`write`.
    """
    sizes = state.sizes if groups is None else (groups.entries, *state.sizes)
    host = torch.empty(sizes, dtype=torch_dtype(state.dtype))
    for replica, value in _by_writer(host, groups):
        executable.read_state(state.path, value.data_ptr(), value.nbytes, replica)
    return host


def _by_writer(host: torch.Tensor, groups: WeightGroups | None) -> list[tuple[int, torch.Tensor]]:
    if groups is None:
        return [(0, host)]
    return [(groups.writer(entry), value) for entry, value in enumerate(host)]
