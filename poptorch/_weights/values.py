"""The value of one state: from the host's memory to a device, and back."""

import torch

from poptorch._base.torch_private.basic import plain_access
from poptorch._base.types import host_tensor, torch_dtype
from poptorch._translate.replica_groups import WeightGroups


def upload(executable, path: str, tensor: torch.Tensor, groups: WeightGroups | None) -> None:
    """Gives a state of all replicas the present value of the host's tensor, or those of their
    groups.

    A large one that runs do not change has one copy in memory: the device reads the pages of the
    host's tensor, and a page that the host writes to is copied first
    (csrc/run/memory/shared_pages.h).
    """
    host = host_tensor(tensor, path)
    if groups is not None or not _share(executable, path, tensor, host):
        write(executable, path, host, groups)


def write(executable, path: str, host: torch.Tensor, groups: WeightGroups | None) -> None:
    """Gives a state of all replicas a value, or those of their groups. ``host`` is of the device's
    dtype, in memory without gaps."""
    if groups is None:
        executable.write_state(path, host.data_ptr(), host.nbytes)
        return
    groups.check(path, host.shape)
    for replica in range(groups.replicas):
        value = host[groups.entry_for(replica, len(host))]
        executable.write_state(path, value.data_ptr(), value.nbytes, replica)


def _share(executable, path: str, tensor: torch.Tensor, host: torch.Tensor) -> bool:
    is_converted = host.data_ptr() != tensor.data_ptr()
    if is_converted or tensor.is_pinned():  # pinned: other hardware reads these very pages
        return False
    storage = host.untyped_storage()._cdata
    return executable.share_state(path, host.data_ptr(), host.nbytes, storage)


def read(executable, state, groups: WeightGroups | None) -> torch.Tensor:
    """The value of a state, one of ``executable.states()``: that of replica 0, or those of its
    groups."""
    sizes = state.sizes if groups is None else (groups.entries, *state.sizes)
    host = torch.empty(sizes, dtype=torch_dtype(state.dtype))
    for replica, value in _by_writer(host, groups):
        executable.read_state(state.path, value.data_ptr(), value.nbytes, replica)
    return host


def _by_writer(host: torch.Tensor, groups: WeightGroups | None) -> list[tuple[int, torch.Tensor]]:
    if groups is None:
        return [(0, host)]
    return [(groups.writer(entry), value) for entry, value in enumerate(host)]


def spread(program) -> None:
    """Gives a weight whose value the host gets from each replica an entry for each."""
    with plain_access():
        for path, groups in program.weight_groups.items():
            target = program.states.get(path)
            if target is not None and len(target) != groups.entries:
                entries = [groups.of(replica) for replica in range(groups.entries)]
                target.data = target.data[entries]
