"""The store tracks every storage of a wrapped module: who has its newest value.

Before a run a program gets what others wrote (:meth:`WeightStore.sync`), after it the store notes
what it wrote (:meth:`WeightStore.mark_written`). Before the host reads a tensor, it gets the newest
value (:meth:`WeightStore.pull_to_host`). ``docs/internals/weights.md`` has the rules.
"""

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable, Iterator

import torch

from poptorch._base.layout import overlap
from poptorch._base.logging import logger
from poptorch._base.torch_private.basic import plain_access
from poptorch._base.torch_private.modes_off import computes_values, plain_torch
from poptorch._base.types import write_back
from poptorch._weights.entry import CompiledProgram, Entry, Part, Record, mark_of
from poptorch._weights.ownership import Source
from poptorch.errors import Error


class WeightStore:
    """All storages that programs have copies of, or that are watched.

    Attributes:
        changes: grows with everything that may make a copy outdated.
        lock: held while copies move, never while compiling or waiting for it.
    """

    def __init__(self):
        self.changes = 0
        self.lock = threading.RLock()
        self._entries: dict[int, Entry] = {}
        self._records: dict[int, Record] = {}
        self._depth = 0
        # Programs without an executor, until their values are not needed.
        self._orphans: list[CompiledProgram] = []
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        # A thread that does not exist in the child process may hold the lock.
        self.lock, self._depth = threading.RLock(), 0

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self.lock, plain_torch():
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._orphans:
                    self._drop_orphans()

    # -- tensors -------------------------------------------------------------------------------

    def known(self, tensor: torch.Tensor) -> Record | None:
        record = self._records.get(id(tensor))
        return record if record is not None and record.tensor() is tensor else None

    def record(self, tensor: torch.Tensor) -> Record:
        """The record of a tensor: always the same one."""
        record = self.known(tensor)
        if record is None:
            key, records = id(tensor), self._records

            def forget(reference):
                found = records.get(key)
                if found is not None and found.tensor is reference:
                    del records[key]
                    found.entry.records.remove(found)

            entry = self._entry(tensor.untyped_storage())
            record = records[key] = Record(tensor, entry, forget)
        return record

    def _entry(self, storage: torch.UntypedStorage) -> Entry:
        found = self._entries.get(id(storage))
        if found is None or found.storage() is not storage:
            key, entries = id(storage), self._entries

            def forget(reference):
                entry = entries.get(key)
                if entry is not None and entry.storage is reference:
                    del entries[key]
                    self._drop_orphans()

            found = entries[key] = Entry(storage, forget)
        return found

    def handed_out(self, tensor: torch.Tensor) -> None:
        """Notes that the caller can now write to a tensor without a change of its version."""
        record = self.known(tensor)
        if record is not None and record.entry.ownership.copies:
            record.entry.is_handed_out = True
            self.changes += 1

    # -- what programs do ----------------------------------------------------------------------

    def join(self, program: CompiledProgram) -> None:
        """Registers a new program and gives it the newest values. Raises an Error if the program
        changes a tensor that overlaps a different tensor in memory."""
        with self._locked():
            self._look(program.entries())
            program.check_memory()
            program.finalizer = weakref.finalize(program.executor(), self._orphaned, program)
            program.finalizer.atexit = False
            self._sync(program)

    def sync(self, program: CompiledProgram) -> None:
        """Gives a program the values that others wrote since its last run."""
        with self._locked():
            self._look(program.entries())
            self._sync(program)

    def _sync(self, program: CompiledProgram) -> None:
        fetched = set()
        for entry in program.entries():
            if entry.ownership.source(program) is Source.NEWEST:
                self._pull_from(entry.ownership.newest)
                if entry.ownership.newest is None:
                    fetched.add(entry)
        for entry in program.entries():
            if not entry.ownership.is_current(program):
                self._take(program, entry, entry in fetched)
        program.checked_at = self.changes

    def _take(self, program: CompiledProgram, entry: Entry, is_fetched: bool) -> None:
        ownership = entry.ownership
        with plain_access():
            parts, storage = program.parts_in(entry), None
            if ownership.copies and not is_fetched:
                storage = entry.agreed()
                if all(program.is_host_equal(part, storage) for part in parts):
                    storage = None
                elif ownership.source(program) is Source.HOST and not entry.is_written_by_runs():
                    self._publish_entry(entry)  # written without notice
                    storage = None
                elif ownership.source(program) is Source.HOST:
                    ownership.host_written()
                    self._warn([part.record for part in parts])
            for part in parts:
                if storage is None:
                    program.upload(part)
                else:
                    program.write(part, storage)
        ownership.mark_current(program)
        self.changes += 1

    def mark_written(self, program: CompiledProgram, is_end: bool = False) -> list[str]:
        """Notes, at the start of a run and at its end, that it writes the tensors that the program
        updates. Returns the paths of those that others wrote during the run: what it wrote is lost.
        """
        with self._locked():
            replaced = []
            for entry in program.entries(updated_only=True):
                if is_end and not entry.ownership.is_current(program):
                    replaced += [part.path for part in program.parts_in(entry) if part.is_updated]
                elif not entry.ownership.is_alone_ahead(program):
                    entry.ownership.mark_written(program)
                    self.changes += 1
            if not replaced:
                program.checked_at = program.ran_at = self.changes
            return replaced

    def detach(self, program: CompiledProgram) -> None:
        """Removes a program. Values that only this program has go to the other programs."""
        with self._locked(), plain_access():
            if program.finalizer is not None:
                program.finalizer.detach()
            for entry in program.entries():
                heirs = entry.ownership.heirs(program) if program.is_of_this_process() else []
                storage = entry.agreed() if heirs else None
                for heir in heirs if storage is not None else ():
                    for part in heir.parts_in(entry):
                        heir.write(part, storage)
                    entry.ownership.mark_current(heir)
                entry.ownership.detach(program)
            program.parts = []
            self.changes += 1

    def _orphaned(self, program: CompiledProgram) -> None:
        self._orphans.append(program)
        self._drop_orphans()

    def _drop_orphans(self) -> None:
        """Drops programs without an executor that are not needed. May be called at any time, as
        Python frees objects at any time: while copies move, and where no values can be
        read, it leaves that for later."""
        if not self._orphans or not computes_values() or not self.lock.acquire(blocking=False):
            return
        try:
            if self._depth == 0:
                left = [program for program in self._orphans if not program.is_newest()]
                self._orphans = [one for one in self._orphans if one not in left]
                for program in left:
                    self.detach(program)
        finally:
            self.lock.release()

    # -- what the host does --------------------------------------------------------------------

    def publish(self, program: CompiledProgram, paths: Iterable[str] | None = None) -> None:
        """Gives a program the host's values, of all states or of those with ``paths``, which hold
        for all programs from now on.

        Where another program trained since the host last had the values, and the host was not
        written either, it gets what was trained.
        """
        with self._locked():
            self._look(program.entries(), warn=False)
            for entry in program.entries():
                ownership, parts = entry.ownership, program.parts_in(entry)
                if paths is not None and not any(part.path in paths for part in parts):
                    continue
                if ownership.newest not in (None, program) and not ownership.is_pending:
                    self._pull_from(ownership.newest)
                with plain_access():
                    kept = [] if paths is None else entry.fetch_beside(
                        {part.record for part in parts if part.path in paths})
                    for part in parts:
                        if part not in kept:
                            program.upload(part)
                ownership.published(program)
                self._noted(entry)

    def publish_to_all(self, tensors: Iterable[torch.Tensor]) -> None:
        """Gives every program that has copies of some tensors the host's values of them, or what
        was trained since, see :meth:`publish`."""
        with self._locked():
            tensors = list(tensors)
            # First where the tensors lay: in memory that they were given since, nothing is known.
            records = filter(None, map(self.known, tensors))
            self._look(list({record.entry: None for record in records}), warn=False)
            entries = self._entries_of(tensors)
            self._look(entries, warn=False)
            for entry in entries:
                ownership = entry.ownership
                if ownership.newest is not None and not ownership.is_pending:
                    self._pull_from(ownership.newest)
                self._publish_entry(entry)

    def _publish_entry(self, entry: Entry) -> None:
        """Gives all programs the host's value of a storage."""
        for number, program in enumerate(list(entry.ownership.copies)):
            with plain_access():
                for part in program.parts_in(entry):
                    program.upload(part)
            if number == 0:
                entry.ownership.published(program)
            entry.ownership.mark_current(program)
        self._noted(entry)

    def fetch(self, program: CompiledProgram) -> None:
        """Writes to the host what runs of a program changed, except what others wrote since."""
        with self._locked(), plain_access(), torch.no_grad():
            for entry in program.entries(updated_only=True):
                if not entry.ownership.is_current(program):
                    continue
                if entry.ownership.newest is program:
                    self._warn_of_loss(entry)
                for part in program.parts_in(entry):
                    if part.is_updated:
                        write_back(part.tensor().detach(), program.read(part))
                entry.ownership.fetched()
                self._noted(entry)

    def pull_to_host(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Copies the newest values of tensors to the host. Returns whether any was out of date."""
        with self._locked():
            return self._pull_entries(self._entries_of(tensors))

    def pull_record_to_host(self, record: Record) -> None:
        """Copies the newest value of one record's tensor to the host."""
        if record.entry.ownership.newest is not None:
            with self._locked():
                self._pull_entries([record.entry])

    def _pull_entries(self, entries: list[Entry]) -> bool:
        newest = dict.fromkeys(entry.ownership.newest for entry in entries)
        newest.pop(None, None)
        for program in newest:
            self._pull_from(program)
        return bool(newest)

    def _pull_from(self, program: CompiledProgram) -> None:
        """Copies a program's values to the host. Calls ``copyWeightsToHost`` of its executor, which
        users may replace, if the executor is still alive."""
        executor = program.executor()
        if executor is None:
            self.fetch(program)
        else:
            executor.copyWeightsToHost()

    def _entries_of(self, tensors: Iterable[torch.Tensor]) -> list[Entry]:
        """The known storages that tensors lie in, each once."""
        found = {}
        with plain_access():
            for tensor in tensors:
                entry = self._entries.get(id(tensor.untyped_storage()))
                if entry is not None:
                    found[entry] = None
        return list(found)

    def executors_of(self, tensors: Iterable[torch.Tensor]) -> list:
        with self._locked():
            found = dict.fromkeys(program.executor() for entry in self._entries_of(tensors)
                                  for program in entry.ownership.copies)
        return [executor for executor in found if executor is not None]

    def part_in_memory(self, program: CompiledProgram, tensor: torch.Tensor,
                       paths: frozenset[str] | None) -> Part | None:
        """The part of a program, among those with ``paths``, that is in a tensor's memory."""
        with plain_access():
            entry = self._entries.get(id(tensor.untyped_storage()))
            return None if entry is None else next(
                (part for part in program.parts_in(entry) if (paths is None or part.path in paths)
                 and overlap(part.tensor(), tensor)), None)

    # -- writes of the host --------------------------------------------------------------------

    def _noted(self, entry: Entry) -> None:
        """Notes what the host has now, which no program was left ignorant of."""
        entry.is_handed_out = False
        with plain_access():
            for record, tensor in entry.tensors():
                record.mark = mark_of(tensor)
        self.changes += 1

    def _look(self, entries: list[Entry], warn: bool = True) -> None:
        """Looks whether the host wrote to storages since they were last looked at."""
        written: list[Record] = []
        with plain_access():
            for entry in entries:
                for record, tensor in entry.tensors():
                    if tensor.untyped_storage() is not entry.storage():
                        self._move(record, tensor)
                        self._note_write(record, written)
                    elif mark_of(tensor) != record.mark:
                        record.mark = mark_of(tensor)
                        self._note_write(record, written)
                if entry.is_handed_out and entry.ownership.newest is None:
                    entry.is_handed_out = False
                    for record in () if entry.ownership.is_pending else entry.differing():
                        self._note_write(record, written)
        # What no run changes takes the host's value at once; else a program may be ahead of it.
        taken = {record.entry: record for record in written
                 if not record.entry.is_written_by_runs() and record.entry.ownership.is_pending}
        for entry, record in taken.items():
            self._publish_entry(entry)
            logger.info("[weights] %s was written on the host. No program changes it, so the next "
                        "call uses the new value.", record.path())
        if warn:
            self._warn([record for record in written if record.entry not in taken])

    def _note_write(self, record: Record, written: list[Record]) -> None:
        record.entry.ownership.host_written()
        self.changes += 1
        written.append(record)

    def _move(self, record: Record, tensor: torch.Tensor) -> None:
        """Follows a tensor that was given other memory (``weight.data = value``). Raises an Error
        if another tensor of a program lies there."""
        old, new = record.entry, self._entry(tensor.untyped_storage())
        old_copies = old.ownership.copies
        holders = {program: part for program in sorted(old_copies, key=old_copies.get)
                   for part in program.parts if part.record is record}
        for program in new.ownership.copies if holders else ():
            for part in program.parts_in(new):
                other = part.tensor()  # it may be gone, or have been given other memory, too
                if part.record is not record and other is not None \
                        and other.untyped_storage() is new.storage() and overlap(other, tensor):
                    own = next(iter(holders.values())).path
                    raise Error(f"[weights] {own} was given the memory of {part.path} after it was "
                                f"compiled. Give it memory of its own, {own}.data = "
                                f"value.clone(); or call destroy(), and the next call compiles "
                                f"the module as it is.")
        latest = next(reversed(holders.items()), None)
        for program, part in holders.items():
            if program is not latest[0] and not old.ownership.is_current(program):
                program.write_value(part, latest[0].read(latest[1]))
            new.ownership.copies.setdefault(program, new.ownership.version)
        if old.ownership.newest in holders and new.ownership.newest is None:
            new.ownership.newest = old.ownership.newest
        old.records.remove(record)
        record.enter(tensor, new)
        for program in holders:
            if not program.parts_in(old):
                old.ownership.detach(program)

    # -- reports -------------------------------------------------------------------------------

    def _warn(self, records: list[Record]) -> None:
        names = self._new_names(records)
        if names:
            logger.warning(
                "[weights] %s %s written on the host after a model with it was compiled: the "
                "device keeps using its own value, and training replaces what was "
                "written. Call copyWeightsToDevice() on an executor of the module to use what was "
                "written.", _listed(names),
                "were" if len(names) > 1 else "was")

    def _warn_of_loss(self, entry: Entry) -> None:
        if entry.ownership.is_pending:
            return  # it was reported, and a later run took its place
        names = self._new_names([record for record, tensor in entry.tensors()
                                 if mark_of(tensor) != record.mark])
        if names:
            logger.warning(
                "[weights] %s was written on the host by way of another tensor while the device "
                "had a newer value, which takes its place. Read the parameter or buffer itself "
                "before it is written.", _listed(names))

    def _new_names(self, records: list[Record]) -> list[str]:
        """The paths of tensors that were not reported before."""
        names = []
        for record in dict.fromkeys(records):
            path = record.path()
            if path is not None and not record.was_warned:
                record.was_warned = True
                names.append(path)
        return names


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


STORE = WeightStore()
