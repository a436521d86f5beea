"""The parent's side of a loading process: messages, slots, and the end of the process."""

import contextlib
import glob
import os
import pickle
import signal
import time
import weakref
from collections import deque
from multiprocessing import util

from poptorch.data import _worker
from poptorch.data._slots import Slot, receive_descriptor, unpack, views
from poptorch.errors import Error

_POLL_S = 1.0
#: How long a process may take to end by itself; a bit more than it gives to the user's code.
_END_S = _worker.GRACE_S + 0.5


def _send(connection, command: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.send_bytes(_worker.COMMAND.pack(command, number))


_links: "weakref.WeakSet[WorkerLink]" = weakref.WeakSet()


def _tell_all() -> None:
    """Before any is waited for: so they come to an end at the same time."""
    for link in _links:
        if link.is_open:
            link.send(_worker.QUIT, 0)


util.Finalize(None, _tell_all, exitpriority=20)


class WorkerLink:
    """A running loading process.

    An item's memory is given back when the item after the next is asked for: a loop still holds
    the last one while it fetches another. Memory that the program uses even then is never
    written to again; the process takes new memory in its stead.
    """

    def __init__(self, process, connection):
        self._process, self._connection = process, connection
        self._slots: dict[int, Slot] = {}
        self._delivered: deque[int] = deque()
        # Also runs when the program ends, before multiprocessing waits for its children.
        self.end = util.Finalize(self, _end, args=(process, connection), exitpriority=10)
        _links.add(self)

    @property
    def is_open(self) -> bool:
        """Whether :attr:`end` has not been called."""
        return self.end.still_active()

    def receive(self) -> tuple:
        """Waits for the next message, as ``_worker`` describes it."""
        try:
            while not self._connection.poll(_POLL_S):
                if not self._process.is_alive() and not self._connection.poll(0):
                    raise EOFError
        except (EOFError, OSError):
            raise self._death() from None
        try:
            message = pickle.loads(self._connection.recv_bytes())
            if message[0] == "item" and message[3] is not None:
                self._take_memory(message[2], message[3])
            return message
        except (EOFError, OSError):
            raise self._death() from None
        except BaseException:  # Ctrl-C within a message: the rest would make no sense
            self.end()
            raise

    def item_of(self, message: tuple):
        """The item of a message, over shared memory."""
        _, _, number, _, layout, rest = message
        item = unpack(rest, views(self._slots.get(number), layout))
        self._delivered.append(number)
        return item

    def free_delivered(self, keep: int) -> None:
        """Gives back the slots of all items that were delivered but the last ``keep``."""
        while len(self._delivered) > keep:
            self.free(self._delivered.popleft())

    def free(self, number: int) -> None:
        """Gives a slot back."""
        is_in_use = number in self._slots and self._slots[number].is_in_use()
        if is_in_use:
            del self._slots[number]
        self.send(_worker.RENEW if is_in_use else _worker.FREE, number)

    def send(self, command: int, number: int) -> None:
        """Sends a command; one to a dead process is lost, as the next :meth:`receive` reports."""
        _send(self._connection, command, number)

    def _take_memory(self, number: int, nbytes: int) -> None:
        fd = receive_descriptor(self._connection)
        try:
            self._slots[number] = Slot(fd, nbytes)
        finally:
            os.close(fd)

    def _death(self) -> Error:
        pid = self._process.pid
        self._process.join(_POLL_S)
        how = _worker.end_of(self._process.exitcode)
        self.end()
        return Error(f"[AsynchronousDataAccessor] the data loading process (pid {pid}) {how} "
                     f"before it had sent the next item. If you did not end it, check its "
                     f"output, and whether the system ran out of memory.")


def _end(process, connection) -> None:
    """Ends a process and its own children, at the latest after a few seconds."""
    _send(connection, _worker.QUIT, 0)
    connection.close()
    process.join(_END_S)
    remaining = _members_of_group(process.pid)
    if remaining:  # its workers may outlive it
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.is_alive():
        process.kill()  # it may not have made its group yet
    process.join(_END_S)
    deadline = time.monotonic() + _END_S
    while _members_of_group(process.pid) and time.monotonic() < deadline:
        time.sleep(0.001)
    _worker.remove_segments([process.pid, *remaining])


def _members_of_group(group: int) -> list[int]:
    """Processes of a group that are alive: those that were not waited for are not."""
    members = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path) as file:
            number, _, rest = file.read().partition(" (")
            state, _, found = rest.rpartition(") ")[2].split()[:3]
            if int(found) == group and state not in "ZX":
                members.append(int(number))
    return members

