"""Data sets, loaders and checks that the tests of this folder share."""

import contextlib
import os
import signal
import time

import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset, get_worker_info

import poptorch

ASYNC = poptorch.DataLoaderMode.Async
REBATCHED = poptorch.DataLoaderMode.AsyncRebatched
FORK = {"sharing_strategy": poptorch.SharingStrategy.Fork}
#: Upper limit for what must end within five seconds, on a machine that does much else besides.
SOON_S = 12.0


def options(d=1, r=1, g=1):
    """Options with device iterations, replicas and accumulation."""
    opts = poptorch.Options().deviceIterations(d).replicationFactor(r)
    opts.Training.gradientAccumulation(g)
    return opts


def numbers(count=20):
    """The numbers below ``count``."""
    return TensorDataset(torch.arange(count))


class Stream(IterableDataset):
    """The numbers below ``count``; each worker has a contiguous share."""

    def __init__(self, count, has_length=True):
        self.count, self.has_length = count, has_length

    def __len__(self):
        if not self.has_length:
            raise TypeError("object of type 'Stream' has no len()")
        return self.count

    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return iter(torch.arange(self.count))
        share = -(-self.count // info.num_workers)
        first = info.id * share
        return iter(torch.arange(first, max(first, min(self.count, first + share))))


class Faulty(Dataset):
    """Ten numbers; ``fail()`` is called for the number ``at``."""

    def __init__(self, at, fail):
        self.at, self.fail = at, fail

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index == self.at:
            self.fail()
        return torch.tensor(index)


def break_down():
    """An error of the user's."""
    raise LookupError("Broken dataset")


def die():
    """What the system does to a process when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    """A read that never returns."""
    time.sleep(3600)


@contextlib.contextmanager
def loading(loader):
    """The loader or accessor; ends its process afterwards."""
    try:
        yield loader
    finally:
        loader.terminate()


def values(loader):
    """All numbers of an epoch, in order: each item is a tensor or a list of one tensor."""
    items = (item[0] if isinstance(item, list | tuple) else item for item in loader)
    return [x for item in items for x in item.reshape(-1).tolist()]


def segments():
    """What lies in /dev/shm."""
    return set(os.listdir("/dev/shm"))


def processes_of(session=None, group=None):
    """Ids of the processes of a session or of a process group that are alive."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            state, _, its_group, its_session = file.read().rpartition(")")[2].split()[:4]
            if state != "Z" and (int(its_session) == session or int(its_group) == group):
                found.append(int(pid))
    return found


def wait_until(is_true, limit_s=SOON_S):
    """Whether a condition comes true within a time."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if is_true():
            return True
        time.sleep(0.01)
    return bool(is_true())
