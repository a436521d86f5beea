"""A living storage, the tensors that lie in it and the programs that have copies of them."""

import itertools
import os
import weakref

import torch

from poptorch._base.layout import overlap
from poptorch._base.types import host_tensor, write_back
from poptorch._weights import values
from poptorch._weights.ownership import Ownership
from poptorch.errors import Error


class Record:
    """A parameter or buffer: where it lies, and what counted its writes when it was last looked at.
    The tensor is not kept alive.

    Attributes:
        watchers: the modules wrapped for training that watch it.
        was_warned: a write of the host to it was reported.
        grouping: what ``replicaGrouping`` declared for it, see grouping.py.
    """

    __slots__ = ("entry", "grouping", "mark", "tensor", "was_warned", "watchers")

    def __init__(self, tensor: torch.Tensor, entry: "Entry", forget):
        self.tensor = weakref.ref(tensor, forget)
        self.watchers: weakref.WeakSet = weakref.WeakSet()
        self.was_warned = False
        self.grouping = None
        self.enter(tensor, entry)

    def enter(self, tensor: torch.Tensor, entry: "Entry") -> None:
        """The tensor lies in that storage (from now on)."""
        self.entry = entry
        self.mark = mark_of(tensor)
        entry.records.append(self)

    def path(self) -> str | None:
        """How some program names the tensor; None: no program has it."""
        return next((part.path for program in self.entry.ownership.copies
                     for part in program.parts if part.record is self), None)


def mark_of(tensor: torch.Tensor) -> tuple:
    """What is another after a write of the host: how often a tensor was written in place (those of
    inference mode do not count), and where in its storage it lies."""
    version = 0 if tensor.is_inference() else tensor._version
    return version, tensor.storage_offset(), tensor.stride()


class Entry:
    """What is known of one storage, which is not kept alive. ``is_handed_out``: there is a way to
    write to it that no version counts."""

    def __init__(self, storage: torch.UntypedStorage, forget=None):
        self.storage = weakref.ref(storage, forget)
        self.ownership = Ownership()
        self.records: list[Record] = []
        self.is_handed_out = False

    def tensors(self) -> list[tuple[Record, torch.Tensor]]:
        """The living tensors in the storage."""
        found = [(record, record.tensor()) for record in self.records]
        return [(record, tensor) for record, tensor in found if tensor is not None]

    def is_written_by_runs(self) -> bool:
        """Whether runs of a program that has a copy change the value."""
        return any(part.is_updated for program in self.ownership.copies
                   for part in program.parts_in(self))

    def differing(self) -> list[Record]:
        """The tensors whose value on the host differs from the agreed one."""
        storage = self.agreed()
        return list(dict.fromkeys(
            part.record for program in self.ownership.copies for part in program.parts_in(self)
            if not program.is_host_equal(part, storage)))

    def fetch_beside(self, records: set[Record]) -> list["Part"]:
        """Writes the newest program's values of the tensors in the storage to the host, if there
        is one, but not those of ``records``; returns the parts that were written."""
        newest = self.ownership.newest
        parts = [part for part in (newest.parts_in(self) if newest is not None else ())
                 if part.is_updated and part.record not in records]
        with torch.no_grad():
            for part in parts:
                write_back(part.tensor().detach(), newest.read(part))
        return parts

    def agreed(self) -> torch.UntypedStorage | None:
        """The bytes of the agreed value, put together from the programs' copies; bytes that no
        program has are the host's. None: the storage is gone."""
        storage = self.storage()
        if storage is None:
            return None
        storage, copies = storage.clone(), self.ownership.copies
        programs = sorted(copies, key=copies.get)
        if len(self.records) == 1:  # as nearly always: each has all of it
            programs = programs[-1:]
        with torch.no_grad():
            for program in programs:
                for part in program.parts_in(self):
                    write_back(placed(part.tensor(), storage), program.read(part))
        return storage


def placed(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """What ``tensor`` would be in another storage."""
    return torch.empty(0, dtype=tensor.dtype).set_(
        storage, tensor.storage_offset(), tensor.size(), tensor.stride())


class Part:
    """A state of a program, and the tensor that it is a copy of. ``tensor()`` is None when it is
    gone."""

    def __init__(self, path: str, record: Record, is_updated: bool):
        self.path, self.record, self.is_updated = path, record, is_updated
        self.tensor = record.tensor


class CompiledProgram:
    """A compiled program as the store keeps it: its copies, not the user's tensors.

    Attributes:
        executor: its ``copyWeightsToHost`` is called when the host needs the values; held weakly.
        parts: its states that are copies of tensors, in the order of their paths.
        finalizer: what happens when the executor is forgotten.
        checked_at: the store's number of changes when all its copies were found to be current.
        ran_at: the same, when its runs were last noted.
        changed_states, changed_arguments: what ``forward`` changes, by path and by number: the
            program has a copy of it.
    """

    def __init__(self, executable, program, executor):
        self.executable = executable
        self.executor = weakref.ref(executor)
        self._groups = dict(program.weight_groups)
        self._states = {state.path: state for state in executable.states()}
        self.parts: list[Part] = []
        self.checked_at = self.ran_at = -1
        self.finalizer: weakref.finalize | None = None
        self._process = os.getpid()
        trained = {path for group in (program.optimizer.groups if program.optimizer else ())
                   for path, _ in group.params}
        self.changed_states = frozenset((program.updated - trained) | program.changed.keys())
        self.changed_arguments = frozenset(output.leaf for _, output in program.outputs
                                           if output is not None and output.kind == "input_update")

    def is_of_this_process(self) -> bool:
        return self._process == os.getpid()

    def is_newest(self) -> bool:
        """Whether a living storage waits for a value that the program wrote."""
        return any(entry.ownership.newest is self and entry.storage() is not None
                   for entry in self.entries())

    def add_part(self, path: str, record: Record, is_updated: bool) -> None:
        """Notes that a state is a copy of a tensor; nothing is done if it was optimized away."""
        if path in self._states:
            self.parts.append(Part(path, record, is_updated))

    def entries(self, updated_only: bool = False) -> list[Entry]:
        """The storages that its tensors lie in, each once."""
        return list(dict.fromkeys(part.record.entry for part in self.parts
                                  if part.is_updated or not updated_only))

    def parts_in(self, entry: Entry) -> list[Part]:
        """Those whose tensor is in one storage."""
        return [part for part in self.parts
                if part.record.entry is entry and part.tensor() is not None]

    def read(self, part: Part) -> torch.Tensor:
        return values.read(self.executable, self._states[part.path], self._groups.get(part.path))

    def upload(self, part: Part) -> None:
        values.upload(self.executable, part.path, part.tensor(), self._groups.get(part.path))

    def write(self, part: Part, storage: torch.UntypedStorage) -> None:
        """Gives the device the value that the tensor would have in another storage."""
        self.write_value(part, placed(part.tensor(), storage))

    def write_value(self, part: Part, value: torch.Tensor) -> None:
        host = host_tensor(value, part.path)
        values.write(self.executable, part.path, host, self._groups.get(part.path))

    def is_host_equal(self, part: Part, storage: torch.UntypedStorage) -> bool:
        """Whether the host's value is, to the device, that in another storage."""
        tensor = part.tensor()
        return torch.equal(host_tensor(tensor, part.path),
                           host_tensor(placed(tensor, storage), part.path))

    def check_memory(self) -> None:
        """Raises an Error if a state that runs change shares memory with another state: the
        program has a copy of each."""
        for entry in self.entries(updated_only=True):
            for one, other in itertools.combinations(self.parts_in(entry), 2):
                if (one.is_updated or other.is_updated) and overlap(one.tensor(), other.tensor()):
                    changed = one if one.is_updated else other
                    raise Error(f"[weights] {one.path} and {other.path} lie in the same memory, "
                                f"and a run changes {changed.path}; the device has a copy of each. "
                                f"Make them one tensor of the module (self.b = self.a), or give "
                                f"one a clone().")
