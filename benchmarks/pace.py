"""Shares the time of a part among its cases, and shows what is being measured."""

import math
import time


class Pace:
    """When a case has to end, and a line that says what runs.

    Time that a case leaves goes to those after it, and what it takes too much is taken from them.

    Args:
        seconds: of all cases together; a case that has begun takes its first samples in any case.
        bar: a ``tqdm`` bar that counts cases; None shows nothing.
    """

    def __init__(self, seconds=math.inf, bar=None):
        self.bar = bar
        self.end = time.monotonic() + seconds
        self.until = self.end  # of the present case

    def each(self, cases, weigh=lambda case: 1.0):
        """The cases one by one; each may last as long as its weight allows.

        Args:
            cases: pairs of (workload, mode), or whatever ``weigh`` takes and prints.
            weigh: how much of the time a case should have.
        """
        cases = list(cases)
        weights = [weigh(case) for case in cases]
        if self.bar is not None:
            self.bar.reset(total=len(cases))
        for index, case in enumerate(cases):
            now = time.monotonic()
            left_s = max(0.0, self.end - now)
            self.until = now + left_s * weights[index] / sum(weights[index:])
            yield case
            if self.bar is not None:
                self.bar.update()

    def left_s(self):
        """What is left of the present case."""
        return max(0.0, self.until - time.monotonic())

    def tell(self, text):
        """Shows what is being measured."""
        if self.bar is not None:
            self.bar.set_postfix_str(text)
