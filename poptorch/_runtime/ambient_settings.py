"""Settings of the process that ``forward`` depends on: they are compiled in."""

from typing import NamedTuple

import torch

from poptorch import _C
from poptorch.errors import Error


class AmbientSettings(NamedTuple):
    """Autocast and the default dtype in a thread.

    Attributes:
        autocast: in which type torch.autocast lets the CPU compute; None: it is off.
        default: the type of the tensors that are made without one.
    """

    autocast: torch.dtype | None
    default: torch.dtype

    @classmethod
    def now(cls) -> "AmbientSettings":
        """What is set here."""
        return cls(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
                   torch.get_default_dtype())

    def check(self) -> None:
        """Checks that the same is set here.

        Raises:
            poptorch.Error: It is not.
        """
        if _C.has_settings(self.autocast, self.default):
            return
        now = AmbientSettings.now()
        if now.autocast is not self.autocast:
            what, inside = _within(self), "use torch.autocast inside of forward"
            given = _within(now)
        else:
            what, inside = _with(self), "name the dtype of each tensor that forward makes"
            given = _with(now)
        raise Error(f"[call] the model was compiled {what} and is called {given}. Call it as it "
                    f"was compiled, or {inside}; or call destroy(), and the next call compiles "
                    f"anew.")


def _within(settings: AmbientSettings) -> str:
    return "without autocast" if settings.autocast is None \
        else f"within an autocast to {settings.autocast}"


def _with(settings: AmbientSettings) -> str:
    return f"with the default dtype {settings.default}"
