"""One way to run a workload: which backend, in which number format, with how many threads."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Setting:
    """What the process of a backend gets.

    ``threads`` 0 means as many as PyTorch takes. ``off`` are names of optimizations of poptorch
    that are turned off, separated by commas. ``learns`` sets a learning rate that matters and
    no dropout, so that loss curves can be compared. ``nudge`` moves the weights by a rounding, each
    number in other directions; 0 leaves them.
    """

    workload: str
    mode: str
    backend: str
    dtype: str = "f32"
    threads: int = 0
    off: str = ""
    learns: bool = False
    nudge: int = 0

    def label(self):
        """For people."""
        parts = [self.workload, self.mode, self.backend]
        parts += [self.dtype] if self.dtype != "f32" else []
        parts += [f"{self.threads} threads"] if self.threads else []
        parts += [f"without {self.off}"] if self.off else []
        parts += [f"nudge {self.nudge}"] if self.nudge else []
        return " ".join(parts)

    def text(self):
        """For the command line of the worker."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text):
        """The inverse of ``text``."""
        return Setting(**json.loads(text))
