"""Shows and records the steps of a compilation."""

import time

from tqdm import tqdm

from poptorch import profiling

# The steps before the first run, as the progress bar counts them.
STEPS = ("capture", "translate", "rewrite", "place", "schedule", "plan", "assemble")


class StepProgress:
    """A progress bar that is moved, and a span that is recorded, by each step.

    Args:
        name: of the model.
        is_shown: whether there is a bar.
    """

    def __init__(self, name: str, is_shown: bool):
        self._name = name
        self._bar = tqdm(total=len(STEPS), desc=f"compile {name}", unit="step", leave=False,
                         disable=not is_shown)
        self._step = ""
        self._begin_ns = 0

    def __call__(self, step: str) -> None:
        """Notes that a step begins, and so that the one before it is done."""
        self._end_step()
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
