"""The virtual IPU system: how many IPUs the machine has, and which devices they form."""

import os
from typing import NamedTuple

from poptorch import _C
from poptorch._base.checks import near_names
from poptorch.errors import Error

VARIABLE = "POPTORCH_IPU_SYSTEM"


class System(NamedTuple):
    """IPUs of one version. Device ids: single IPUs first, then aligned pairs, fours, and so on.

    Attributes:
        name: as ``POPTORCH_IPU_SYSTEM`` and ``Options.system`` give it.
        ipus: how many there are, a power of two.
        version: of the IPUs.
        target: the kind of the IPUs, a row of ``csrc/device/targets.def``.
    """

    name: str
    ipus: int
    version: int
    target: str

    def sizes(self) -> list[int]:
        """The numbers of IPUs that a device can have, in increasing order."""
        return [1 << doublings for doublings in range(self.ipus.bit_length())]

    def groups(self, size: int) -> dict[int, range]:
        """The devices of ``size`` IPUs: by id the numbers of their IPUs."""
        return {device_id: range(index * size, (index + 1) * size)
                for index, device_id in enumerate(group_ids(self.ipus, size))}

    def devices(self) -> dict[int, range]:
        """All devices: by id the numbers of their IPUs."""
        return {device_id: ipus for size in self.sizes()
                for device_id, ipus in self.groups(size).items()}

    def device(self, device_id: int) -> range:
        """The numbers of the IPUs of a device; an Error if there is no such id."""
        devices = self.devices()
        if device_id not in devices:
            raise Error(f"[useIpuId] device {device_id} does not exist: the system {self.name} has "
                        f"the devices 0 to {max(devices)}. Use one of them; "
                        f"`python -m poptorch devices` lists them.")
        return devices[device_id]


def group_ids(ipus: int, size: int) -> range:
    """The ids of the groups of ``size`` IPUs in a system of ``ipus`` IPUs."""
    begin = 2 * ipus - 2 * ipus // size
    return range(begin, begin + ipus // size)


def of_environment() -> System | None:
    """The system that ``POPTORCH_IPU_SYSTEM`` names; None if it is not set, or empty."""
    name = os.environ.get(VARIABLE)
    return named(name) if name else None


def named(name: str) -> System:
    """The system of that name; a ValueError if there is none."""
    systems = {row[0]: row for row in _C.systems()}
    if name not in systems:
        raise ValueError(f"[{VARIABLE}] unknown IPU system {name!r}. Use one of "
                         f"{', '.join(systems)}.{near_names(name, systems)}")
    _, ipus, target, _ = systems[name]
    return System(name, ipus, target["version"], target["name"])
