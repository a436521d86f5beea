"""The table that ``poptorch.devices`` returns."""

from typing import NamedTuple

from poptorch._base import table
from poptorch._device import ownership, systems
from poptorch._device.ownership import Holder

_TITLES = ["id", "IPUs", "version", "holder"]


class DeviceInfo(NamedTuple):
    """One device of the IPU system.

    Attributes:
        id: as ``Options.useIpuId`` takes it.
        ipus: how many IPUs it has.
        version: of the IPUs.
        holder: of its first IPU that is held; None if all are free.
    """

    id: int
    ipus: int
    version: int
    holder: Holder | None


class DeviceTable(list[DeviceInfo]):
    """A list of devices that prints as a table."""

    def __repr__(self) -> str:
        return table.text(_TITLES, self._lines(), left=("holder",)) if self else \
            f"no IPU system: set {systems.VARIABLE}"

    def _repr_html_(self) -> str:
        return table.html(_TITLES, self._lines())

    def _lines(self) -> list[list[str]]:
        return [[str(row.id), str(row.ipus), str(row.version), str(row.holder or "-")]
                for row in self]


def device_table() -> DeviceTable:
    """The devices of the system that the environment names."""
    system = systems.of_environment()
    if system is None:
        return DeviceTable()
    holders = ownership.holders(ownership.folder_of(system.name), range(system.ipus))
    return DeviceTable(
        DeviceInfo(device_id, len(ipus), system.version,
                   next((holders[ipu] for ipu in ipus if ipu in holders), None))
        for device_id, ipus in system.devices().items())
