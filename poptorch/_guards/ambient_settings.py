"""The guard of settings around a call that ``forward`` depends on."""

from typing import NamedTuple

import torch

from poptorch import _C
from poptorch._guards.guard import Change, Kind


class AmbientSettings(NamedTuple):
    """Autocast for the CPU (None: it is off) and the default dtype in a thread."""

    autocast: torch.dtype | None
    default: torch.dtype
    watched = None
    kind = Kind.AROUND
    source = "the settings around the call"

    @classmethod
    def now(cls) -> "AmbientSettings":
        """What is set here."""
        return cls(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
                   torch.get_default_dtype())

    def change(self) -> Change | None:
        """That another autocast or default dtype is set here; None: the same are."""
        if _C.has_settings(self.autocast, self.default):
            return None
        now = AmbientSettings.now()
        parts = ("the default dtype", str(self.default), str(now.default))
        if now.autocast is not self.autocast:
            parts = ("autocast", str(self.autocast or "off"), str(now.autocast or "off"))
        return Change("{} changed from {} to {}".format(*parts), self.kind, self.source, parts)

    def accept(self) -> None:
        """Nothing: the settings are the same."""
