"""A device of the virtual IPU system, which executors and processes take turns with."""

import gc
import weakref
from collections.abc import Iterable

from poptorch._base.logging import logger
from poptorch._device import environment, ownership
from poptorch._device.busy import Busy
from poptorch._device.systems import System
from poptorch.errors import Error
from poptorch.options import Options


class SystemDevice:
    """The IPUs that an executor holds: those of ``useIpuId``, or of the first device that is free.

    They are free again when the executor releases them or is gone, and when the process ends.
    """

    def __init__(self, options: Options, system: System):
        self._options = options
        self._system = system
        self._own = None if options.ipu_id is None else system.device(options.ipu_id)
        self._claim: ownership.Claim | None = None
        self._finalizer: weakref.finalize | None = None
        self.is_held = False

    def take(self, ipus: int | None) -> None:
        """Takes a device with so many IPUs, or raises Busy. Nothing if such a one is held.

        None: their number is not known yet, so that only the device of ``useIpuId`` is taken.
        """
        size = len(self._own or ()) if ipus is None else environment.rounded_up(ipus)
        claim, options = self._claim, self._options
        if size == 0 or (claim is not None and len(claim.ipus) == size):
            return
        groups = [self._own] if self._own else list(self._system.groups(size).values())
        folder = ownership.folder_of(self._system.name)
        taken = ownership.take(folder, groups, options.model_name, claim)
        if taken is None:
            gc.collect()  # the holder may be unreachable already
        while taken is None and \
                (taken := ownership.take(folder, groups, options.model_name, claim)) is None:
            holders = ownership.holders(folder, _united(groups))
            if all(any(ipu in holders for ipu in group) for group in groups):
                raise Busy(self._busy_text(size, holders),
                           lambda: ownership.is_free(folder, groups, claim))
        if self._finalizer is not None:
            self._finalizer.detach()  # ownership.take() has released the claim
        self._claim, self._finalizer = taken, weakref.finalize(self, taken.release)
        self.is_held = True
        logger.debug("Took %s of the system %s.", _ipus_text(taken.ipus), self._system.name)

    def release(self) -> None:
        """Gives the IPUs back."""
        self.is_held = False
        self._claim = None
        if self._finalizer is not None:
            self._finalizer()

    def check_ipus(self, ipus: int) -> None:
        """Raises an Error unless the system, and the device of ``useIpuId``, have so many IPUs."""
        size, name, system = environment.rounded_up(ipus), self._options.model_name, self._system
        if size > system.ipus:
            raise Error(f"[system] Too many IPUs requested ({size}). Maximum of the system "
                        f"{system.name} is {system.ipus}. Use fewer replicas or fewer IPUs for "
                        f"{name}, or choose a larger system with POPTORCH_IPU_SYSTEM.")
        if self._own and len(self._own) != size:
            numbers = list(system.groups(size))
            raise Error(f"[useIpuId] device {self._options.ipu_id} of the system {system.name} has "
                        f"{len(self._own)} IPUs, and {name} needs {size}. Leave useIpuId out, or "
                        f"use a device with {size} IPUs: {_range_text(numbers)}.")

    def check_version(self, version: int | None) -> None:
        """Raises an Error if a program was compiled for IPUs of another version."""
        if version not in (None, self._system.version):
            raise Error(f"[load] the program was compiled for IPUs of version {version} "
                        f"(useOfflineIpuTarget), and those of the system {self._system.name} have "
                        f"version {self._system.version}. Compile the model again with "
                        f"useOfflineIpuTarget({self._system.version}), or choose another system.")

    def _busy_text(self, size: int, holders: dict[int, ownership.Holder]) -> str:
        ipu_id, name, system = self._options.ipu_id, self._options.model_name, self._system.name
        where, what = ("[useIpuId]", f"device {ipu_id}") if self._own else \
            ("[device]", f"each device with {size} IPU{'s' * (size > 1)}")
        by_holder: dict[ownership.Holder, list[int]] = {}
        for ipu, holder in holders.items():
            by_holder.setdefault(holder, []).append(ipu)
        held = "".join(f"\n  {_ipus_text(ipus)}: {holder}" for holder, ipus in by_holder.items())
        return (f"{where} {what} of the system {system}, which {name} needs, is held. Call "
                f"detachFromDevice() or destroy() on an executor that holds it, end its process, "
                f"or set POPTORCH_WAIT_FOR_IPU=1 to wait. Holders:{held}")


def _united(groups: list[range]) -> range:
    return range(groups[0].start, groups[-1].stop)


def _ipus_text(ipus: Iterable[int]) -> str:
    numbers = list(ipus)
    return f"IPU{'s' * (len(numbers) > 1)} {_range_text(numbers)}"


def _range_text(numbers: list[int]) -> str:
    """``0-3, 6``: increasing numbers, with a dash between the ends of a run of them."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
