"""Which device a program is compiled for and runs on."""

import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator

from poptorch._base.logging import logger
from poptorch._device import environment
from poptorch.enums import ConnectionType
from poptorch.errors import Error
from poptorch.options import Options

# The most IPUs that one process may have.
MOST_IPUS = 64

_POLL_S = 0.01

_said: set[str] = set()

# Who holds the devices that were asked for by their number; one that is gone holds nothing.
_holders: "dict[int, weakref.ref[Device]]" = {}
_lock = threading.Lock()


class Busy(Error):
    """Another executor holds the device."""


class Device:
    """The device of one executor. There is one kind so far, the IPU Model.

    There are as many devices as executors use. One that is chosen by its number (``useIpuId``) is
    the same for all of the process, and one executor holds it at a time.
    """

    def __init__(self, options: Options):
        self._options = options
        self.is_held = False
        self._refusal = _refusal(options)
        environment.check()
        if options.offline_ipu_version is not None and _model_is_wanted(options):
            raise Error("[useOfflineIpuTarget] an offline target cannot be used together with the "
                        "IPU Model, which useIpuModel(True) or one of the environment variables "
                        f"{' and '.join(environment.MODELS)} selects. Use only one of the two.")

    def when_free(self, take: Callable):
        """What ``take`` returns, which takes the device and may raise Busy.

        If ``POPTORCH_WAIT_FOR_IPU`` says so, it is called again when no other executor holds the
        device. No lock may be held: whoever holds the device needs them to let go of it.
        """
        has_said = False
        while True:
            try:
                return take()
            except Busy as busy:
                if not environment.switch(environment.WAIT):
                    raise
                if not has_said:
                    logger.info("Waiting: %s", busy)
                    has_said = True
                while self._holder() is not None:
                    time.sleep(_POLL_S)

    @contextlib.contextmanager
    def compiling(self, is_kept: bool = False) -> Iterator[None]:
        """Takes the device for a compilation, if the options say that it is taken from the start.

        Releases it when the compilation fails, unless ``is_kept``.
        """
        if self._options.connection_type is ConnectionType.Always:
            self.take()
        try:
            yield
        except BaseException:
            if not is_kept:
                self.release()
            raise

    def release(self) -> None:
        """Gives the device back."""
        self.is_held = False
        with _lock:
            reference = _holders.get(self._options.ipu_id)
            if reference is not None and reference() is self:
                del _holders[self._options.ipu_id]

    @property
    def can_run(self) -> bool:
        """Whether the options let the program run here."""
        return not self._refusal

    def check_can_run(self) -> None:
        """Raises an AssertionError if the model was compiled for later, or for elsewhere."""
        if self._refusal:
            raise AssertionError(self._refusal)

    def take(self) -> None:
        """Takes the device, or raises Busy. Nothing if it is held or the program is not to run."""
        if self.is_held or self._refusal:
            return
        self._claim()
        self.is_held = True
        if self._options.use_ipu_model is False:
            _once(logger.warning, "useIpuModel(False) requires an IPU system, but none is "
                                  "present: running on the IPU Model.")
        elif not _model_is_wanted(self._options):
            _once(logger.info, "No IPU system is present: running on the IPU Model.")
        logger.debug("Took the IPU Model as device.")

    def check_ipus(self, ipus: int) -> None:
        """Raises an Error if the number of the device is not that of one with so many IPUs.

        In a system of n IPUs, n a power of two, the numbers from 0 to n - 1 are single IPUs, the
        next n / 2 are pairs, then come n / 4 groups of 4, and so on.
        """
        ipu_id, size = self._options.ipu_id, 1 << (ipus - 1).bit_length()
        if ipu_id is None:
            return
        systems = [_group_numbers(size << doublings, size) for doublings in range(64)]
        if not any(ipu_id in numbers for numbers in systems):
            example, numbers = max(16, size), _group_numbers(max(16, size), size)
            raise Error(f"[useIpuId] device {ipu_id} does not have the {ipus} IPUs that "
                        f"{self._options.model_name} needs. Leave useIpuId out, or use the number "
                        f"of a device with {size} IPUs: in a system of {example} IPUs, "
                        f"{numbers.start} to {numbers.stop - 1}.")

    def _claim(self) -> None:
        ipu_id = self._options.ipu_id
        if ipu_id is None:
            return
        if self._holder() is not None:
            gc.collect()  # it may be unreachable already
        with _lock:
            holder = self._holder()
            if holder is None:
                _holders[ipu_id] = weakref.ref(self)
                return
        raise Busy(f"[useIpuId] device {ipu_id} is held by the executor of "
                   f"{holder._options.model_name}; that of {self._options.model_name} needs it "
                   f"too. Call detachFromDevice() or destroy() on the former first, choose "
                   f"another device, or set POPTORCH_WAIT_FOR_IPU=1 to wait for it.")

    def _holder(self) -> "Device | None":
        """The other holder of the device, None if there is none."""
        reference = _holders.get(self._options.ipu_id)
        holder = None if reference is None else reference()
        return None if holder is self else holder


def _group_numbers(system: int, size: int) -> range:
    """The numbers of the groups of ``size`` IPUs in a system of ``system`` IPUs."""
    begin = 2 * system - 2 * system // size
    return range(begin, begin + system // size)


def _begin_anew() -> None:
    """In a process that was forked: executors of the other one run there."""
    global _lock
    _lock = threading.Lock()
    _holders.clear()


os.register_at_fork(after_in_child=_begin_anew)


def _refusal(options: Options) -> str:
    """Why a program may not run; empty if it may."""
    if options.offline_ipu_version is not None:
        option, arguments = "useOfflineIpuTarget", ""
    elif options.connection_type is ConnectionType.Never:
        option, arguments = "connectionType", "ConnectionType.Never"
    else:
        return ""
    return (f"[{option}] Trying to run a model on an offline device: options.{option}({arguments}) "
            f"was called. Compile and save it here, and run it under other options.")


def _model_is_wanted(options: Options) -> bool:
    """Whether options or environment choose the IPU Model: the first one that says anything."""
    if options.use_ipu_model is not None:
        return options.use_ipu_model
    said = (environment.switch(variable) for variable in environment.MODELS)
    return next((is_on for is_on in said if is_on is not None), False)


def _once(log, message: str) -> None:
    if message not in _said:
        _said.add(message)
        log(message)
