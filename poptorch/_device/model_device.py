"""The IPU Model as the device of an executor: no IPU system is chosen."""

import gc
import os
import threading
import weakref

from poptorch._base.logging import logger
from poptorch._device import environment
from poptorch._device.busy import Busy
from poptorch._device.systems import group_ids
from poptorch.errors import Error
from poptorch.options import Options

_said: set[str] = set()

# Who holds the devices that were asked for by their number; one that is gone holds nothing.
_holders: "dict[int, weakref.ref[ModelDevice]]" = {}
_lock = threading.Lock()


class ModelDevice:
    """There are as many devices as executors use.

    One that is chosen by its number (``useIpuId``) is the same for all of the process, and one
    executor holds it at a time.
    """

    def __init__(self, options: Options):
        self._options = options
        self.is_held = False

    def take(self, ipus: int | None) -> None:
        """Takes the device, or raises Busy. Nothing if it is held. ``ipus`` does not matter."""
        if self.is_held:
            return
        self._claim()
        self.is_held = True
        if self._options.use_ipu_model is False:
            _once(logger.warning, "useIpuModel(False) requires an IPU system, but none is "
                                  "present: running on the IPU Model. Choose a system with "
                                  "POPTORCH_IPU_SYSTEM.")
        elif not environment.is_model_wanted(self._options):
            _once(logger.info, "No IPU system is present: running on the IPU Model.")
        logger.debug("Took the IPU Model as device.")

    def release(self) -> None:
        """Gives the device back."""
        self.is_held = False
        with _lock:
            reference = _holders.get(self._options.ipu_id)
            if reference is not None and reference() is self:
                del _holders[self._options.ipu_id]

    def check_ipus(self, ipus: int) -> None:
        """Raises an Error if the number of the device is not that of one with so many IPUs."""
        ipu_id, size = self._options.ipu_id, environment.rounded_up(ipus)
        if ipu_id is None:
            return
        systems = [group_ids(size << doublings, size) for doublings in range(64)]
        if not any(ipu_id in numbers for numbers in systems):
            example, numbers = max(16, size), group_ids(max(16, size), size)
            raise Error(f"[useIpuId] device {ipu_id} does not have the {ipus} IPUs that "
                        f"{self._options.model_name} needs. Leave useIpuId out, or use the number "
                        f"of a device with {size} IPUs: in a system of {example} IPUs, "
                        f"{numbers.start} to {numbers.stop - 1}.")

    def check_version(self, version: int | None) -> None:
        """Any version runs on the IPU Model."""

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
        raise Busy(f"[useIpuId] device {ipu_id} is held by another executor "
                   f"({holder._options.model_name}), and {self._options.model_name} needs it too. "
                   f"Call detachFromDevice() or destroy() on the other executor first, choose "
                   f"another device, or set POPTORCH_WAIT_FOR_IPU=1 to wait for it.",
                   lambda: self._holder() is None)

    def _holder(self) -> "ModelDevice | None":
        """The other holder of the device, None if there is none."""
        reference = _holders.get(self._options.ipu_id)
        holder = None if reference is None else reference()
        return None if holder is self else holder


def _begin_anew() -> None:
    """In a process that was forked: executors of the other one run there."""
    global _lock
    _lock = threading.Lock()
    _holders.clear()


os.register_at_fork(after_in_child=_begin_anew)


def _once(log, message: str) -> None:
    if message not in _said:
        _said.add(message)
        log(message)
