"""Shows and records the steps of a compilation."""

import sys
import threading
import time
import warnings

from tqdm import tqdm

from poptorch import profiling
from poptorch._base import interrupts
from poptorch.options import Options

with warnings.catch_warnings():
    # Of tqdm, where the class is an experiment, or a notebook lacks what it needs for a bar.
    warnings.simplefilter("ignore")
    from tqdm.autonotebook import tqdm as tqdm_of_notebook

# The steps before the first run, as the progress bar counts them.
STEPS = ("capture", "translate", "rewrite", "place", "lower", "schedule", "plan", "assemble")


class _Bar(tqdm_of_notebook):
    """A bar that leaves the process as it is. The lock that tqdm makes for all its bars would fix
    how multiprocessing starts processes, and a thread would watch for slow ones."""

    monitor_interval = 0
    _own_lock = threading.RLock()

    @classmethod
    def get_lock(cls):
        # Once the program has bars of its own: theirs, as all bars are in one list.
        cls._lock = vars(tqdm).get("_lock") or cls._own_lock
        return cls._lock


def _is_shown(options: Options) -> bool:
    """Whether the bar is drawn: by default only where it can be redrawn in its place."""
    name = "show_compilation_progress_bar"
    if not getattr(options, name) or name in options._chosen:
        return getattr(options, name)
    return tqdm_of_notebook is not tqdm or (sys.stderr is not None and sys.stderr.isatty())


class StepProgress:
    """A progress bar, if it is shown, and a span that is recorded, moved by each step."""

    def __init__(self, options: Options):
        self._name = name = options.model_name
        self._bar = _Bar(total=len(STEPS), desc=f"compile {name}", unit="step", leave=False,
                         disable=not _is_shown(options))
        self._step = ""
        self._begin_ns = 0

    def __call__(self, step: str) -> None:
        """Notes that a step begins, and so that the one before it is done."""
        self._end_step()
        interrupts.check()
        self._step, self._begin_ns = step, time.monotonic_ns()
        self._bar.set_postfix_str(step, refresh=False)
        self._bar.update(STEPS.index(step) - self._bar.n)

    def __enter__(self) -> "StepProgress":
        return self

    def __exit__(self, kind, *_) -> None:
        self._end_step()
        if kind is None:
            self._bar.update(len(STEPS) - self._bar.n)
        self._bar.close()

    def _end_step(self) -> None:
        if self._step:
            profiling.add_span(self._step, f"compile {self._name}", self._begin_ns,
                               time.monotonic_ns())
            self._step = ""
