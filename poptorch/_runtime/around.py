"""Settings of the process around a call that are compiled in, as ``forward`` depends on them."""

from typing import NamedTuple

import torch

from poptorch import _C
from poptorch.errors import Error


class Around(NamedTuple):
    """What is set around a call.

    Attributes:
        autocast: in which type torch.autocast lets the CPU compute; None: it is off.
        default: the type of the tensors that are made without one.
    """

    autocast: torch.dtype | None
    default: torch.dtype

    @classmethod
    def now(cls) -> "Around":
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
        now = Around.now()
        if now.autocast is not self.autocast:
            what, inside = _within(self), "use torch.autocast inside of forward"
            given = _within(now)
        else:
            what, inside = _with(self), "name the dtype of each tensor that forward makes"
            given = _with(now)
        raise Error(f"[call] the model was compiled {what} and is called {given}. Call it as it "
                    f"was compiled, or {inside}; or call destroy(), and the next call compiles "
                    f"anew.")


def _within(around: Around) -> str:
    return "without autocast" if around.autocast is None \
        else f"within an autocast to {around.autocast}"


def _with(around: Around) -> str:
    return f"with the default dtype {around.default}"
