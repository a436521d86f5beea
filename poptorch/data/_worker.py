"""The process that loads data ahead: it fills a ring of slots in shared memory.

It and its parent talk over one socket. Frames to the parent are pickled tuples:

    ("item", epoch, slot, nbytes, layout, rest)   nbytes is None when the slot's memory is known;
                                                  else its file descriptor follows
    ("end", epoch)                                all items of the epoch have been sent
    ("error", epoch, exception)                   the epoch cannot go on

Frames from the parent are ``COMMAND``: which command, and a number. The end of the socket says
either side that the other is gone.
"""

import contextlib
import glob
import multiprocessing
import os
import pickle
import signal
import struct
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from poptorch._base.torch_private.basic import ExceptionWrapper
from poptorch.data._slots import Packed, Slot, pack, send_descriptor
from poptorch.data._sources import RandomState, Source

COMMAND = struct.Struct("!BQ")
#: Epochs up to this one are wanted; those before it may be given up.
WANT_EPOCH = 0
#: The parent has done with the item in this slot.
FREE = 1
#: The parent's program still uses the memory of this slot: take new memory for it.
RENEW = 2
#: No more is wanted. The end of the socket may not come: a later fork of the parent holds it too.
QUIT = 3

#: The user's code gets this long to come to an end once the parent needs no more.
GRACE_S = 2.0
_POLL_S = 2.0


@dataclass(frozen=True)
class Settings:
    """How to load; ``rest_s`` is the pause after finding no free slot."""

    slots: int
    rest_s: float
    load_indefinitely: bool
    early_preload: bool
    random_state: RandomState


class _Stopped(Exception):
    """The parent needs no more."""


class _Control:
    """What the parent has asked for; a thread listens to it."""

    def __init__(self, connection: Connection, slots: int):
        self._connection = connection
        self._changed = threading.Condition()
        self._is_stopping = threading.Event()
        self.free_slots = deque(range(slots))
        self.renewed: list[int] = []
        self.wanted = -1
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping.is_set() or is_true())
        self.check()

    def rest(self, seconds: float) -> None:
        self._is_stopping.wait(seconds)
        self.check()

    def check(self) -> None:
        if self._is_stopping.is_set():
            raise _Stopped

    def _listen(self) -> None:
        try:
            while self._has_parent():
                if self._connection.poll(_POLL_S):
                    command, number = COMMAND.unpack(self._connection.recv_bytes())
                    if command == QUIT:
                        break
                    self._obey(command, number)
        except (EOFError, OSError):
            pass
        self._is_stopping.set()
        with self._changed:
            self._changed.notify_all()
        # The data set's code may hang. The group holds this process and torch's workers.
        time.sleep(GRACE_S)
        os.killpg(0, signal.SIGKILL)

    def _has_parent(self) -> bool:
        # As with QUIT, the end of the socket may not come.
        parent = multiprocessing.parent_process()
        return parent is None or parent.is_alive()

    def _obey(self, command: int, number: int) -> None:
        with self._changed:
            if command == WANT_EPOCH:
                self.wanted = number
            else:
                if command == RENEW:
                    self.renewed.append(number)
                self.free_slots.append(number)
            self._changed.notify_all()


class _Worker:
    def __init__(self, connection: Connection, source: Source, settings: Settings):
        self._connection, self._source, self._settings = connection, source, settings
        self._control = _Control(connection, settings.slots)
        self._slots: list[Slot | None] = [None] * settings.slots
        self._has_sent = False
        self._children: list = []  # torch's workers

    def run(self) -> None:
        epoch, goes_on = 0, True
        while True:
            try:
                if not goes_on:
                    self._control.wait_until(lambda: self._control.wanted >= epoch)
                sent = self._load(epoch)
                # An epoch without items is not repeated for ever.
                goes_on = sent > 0 and self._settings.load_indefinitely
            except _Stopped:
                self._clean_up()
                return
            except Exception as error:
                self._report(epoch, error)
                goes_on = False
                self._source.forget_iterator()
                _clear_frames(error)
                self._clean_up()
            epoch += 1

    def _clean_up(self) -> None:
        remove_segments(child.pid for child in self._children if not child.is_alive())

    def _load(self, epoch: int) -> int:
        """Sends the items of an epoch, and returns how many; stops when it is given up."""
        sent = 0
        for item in self._items():
            packed = pack(item)
            del item
            slot = self._free_slot(epoch)
            if slot is None:
                return sent
            self._send_item(epoch, slot, packed)
            sent += 1
            if epoch == 0 and sent == 1 and not self._settings.early_preload:
                self._control.wait_until(lambda: self._control.wanted >= 0)
            if self._control.wanted > epoch:
                return sent
        self._send(("end", epoch))
        return sent

    def _items(self) -> Iterator:
        """The items of an epoch; an error that says nothing of the worker's death is replaced."""
        self._children = []
        is_first = True
        try:
            for item in self._source:
                if is_first:
                    self._children, is_first = multiprocessing.active_children(), False
                yield item
        except (ConnectionError, EOFError) as error:
            dead = _find_dead(self._children)
            if dead is None:
                raise
            raise RuntimeError(f"[DataLoader] worker process (pid {dead.pid}) "
                               f"{end_of(dead.exitcode)}.") from error

    def _free_slot(self, epoch: int) -> int | None:
        """Takes a slot, once there is one; None: the parent has given up the epoch."""
        control = self._control
        control.check()
        if not control.free_slots:
            control.rest(self._settings.rest_s)
        control.wait_until(lambda: control.free_slots or control.wanted > epoch)
        return None if control.wanted > epoch else control.free_slots.popleft()

    def _send_item(self, epoch: int, number: int, packed: Packed) -> None:
        slot = self._slots[number]
        if number in self._control.renewed:
            self._control.renewed.remove(number)
            slot = None
        fd = None
        if packed.nbytes > (slot.nbytes if slot else 0):
            slot, fd = Slot.make(packed.nbytes)
        self._slots[number] = slot
        if packed.nbytes:
            slot.fill(packed)
        nbytes = slot.nbytes if fd is not None else None
        try:
            with _undisturbed():
                self._send(("item", epoch, number, nbytes, packed.layout, packed.rest))
                if fd is not None:
                    send_descriptor(self._connection, fd)
        finally:
            if fd is not None:
                os.close(fd)
        self._has_sent = True

    def _send(self, message: tuple) -> None:
        try:
            self._connection.send_bytes(pickle.dumps(message))
        except (BrokenPipeError, ConnectionResetError):
            raise _Stopped from None

    def _report(self, epoch: int, error: Exception) -> None:
        if not self._has_sent:
            traceback.print_exception(error)
        where = f"in the data loading process (pid {os.getpid()})"
        wrapped = ExceptionWrapper(exc_info=(type(error), error, error.__traceback__), where=where)
        try:
            message = pickle.dumps(("error", epoch, wrapped))
            pickle.loads(message)
        except Exception:  # a class that cannot be sent, such as a local one
            wrapped.exc_type = RuntimeError
            message = pickle.dumps(("error", epoch, wrapped))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send_bytes(message)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Puts off what torch's handler does when a worker dies: it raises, wherever the program is."""
    came: list[tuple] = []
    handler = signal.signal(signal.SIGCHLD, lambda *signalled: came.append(signalled))
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler or signal.SIG_DFL)
    if came and callable(handler):
        handler(*came[0])


def end_of(exitcode: int | None) -> str:
    """How a process with this exit code ended, in words."""
    if exitcode is None:
        return "closed its connection"
    if exitcode < 0:
        return f"was killed by {signal.Signals(-exitcode).name}"
    return f"exited with code {exitcode}"


def _find_dead(children: list):
    """A child that has died; waits a little, as its sockets close before it is gone."""
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        for child in children:
            if not child.is_alive() and child.exitcode:
                return child
        time.sleep(0.01)
    return None


def remove_segments(pids: Iterable[int]) -> None:
    """Removes what processes that were killed have left of torch's shared memory.

    Torch gives each segment a name, with the process id in it, and removes the name at once; who
    is killed in between does not come to it.
    """
    for pid in pids:
        for path in glob.glob(f"/dev/shm/torch_{pid}_*"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _clear_frames(error: BaseException | None) -> None:
    """Lets go of what the traceback holds.

    Torch's iterator would else be in a reference cycle, and the garbage collector closes its
    queues before the iterator can end its workers, through them.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def main(connection: Connection, source, settings: Settings, start_method: str,
         parent_end=None) -> None:
    """Runs in the new process until the parent closes its end of the connection.

    ``source`` may be a function that gives it; ``start_method`` is that of torch's workers;
    ``parent_end`` is the parent's end of the connection, where this process has inherited it.
    """
    # A group of its own: the terminal's Ctrl-C goes to the program, which ends this process; and
    # torch's workers can be ended together with it.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if parent_end is not None:
        parent_end.close()
    # By default they are started as this process was: then each would import everything again.
    multiprocessing.set_start_method(start_method, force=True)
    # As in torch's workers. A forked process must not use the OpenMP threads of its parent.
    torch.set_num_threads(1)
    settings.random_state.restore()
    # The parent's loader has said so already.
    warnings.filterwarnings("ignore", message="This DataLoader will create .* worker processes")
    source = source if isinstance(source, Source) else source()
    try:
        _Worker(connection, source, settings).run()
    finally:
        # Torch's workers end in peace: a signal could make them leave shared memory behind.
        source.forget_iterator()
