"""Random programs of views and changes in place, parts of which run in regions: beside eager's."""

import contextlib
import random

import pytest

from poptorch._base import capture_context
from poptorch._capture.graph.regions import region_of
from tests.capture.graph import test_view_programs as plain
from tests.capture.graph.view_programs import Program, draw

PROGRAMS = 150
REFUSED = ("Return copies from the region|takes another one too that lies in the same memory|"
           "on the other side of its border|several elements of which are one|"
           "a gradient flows through")


class InRegions(Program):
    """A program of which steps are put into regions, and these into others."""

    def __init__(self, program, rng):
        self.__dict__.update(vars(program))
        # Before each step: how many regions end, how many begin.
        self._borders, depth = [], 0
        for _ in program.steps:
            ends = rng.randint(0, depth) if rng.random() < 0.4 else 0
            begins = rng.choice((0, 0, 0, 1, 1, 2)) if depth - ends < 3 else 0
            depth += begins - ends
            self._borders.append((ends, begins))

    def __call__(self, *inputs, log=None):
        steps, borders, entered = iter(self.steps), iter(self._borders), []

        def crossing():
            for name, function, operands in steps:
                ends, begins = next(borders)
                for _ in range(ends):
                    entered.pop().__exit__(None, None, None)
                for _ in range(begins):
                    entered.append(_region())
                    entered[-1].__enter__()
                yield name, function, operands

        whole = Program(inputs)
        whole.steps, whole.results = crossing(), self.results
        try:
            return whole(*inputs, log=log)
        finally:
            while entered:
                entered.pop().__exit__(None, None, None)

    def __str__(self):
        return f"{super().__str__()}\nends and beginnings of regions: {self._borders}"


def _region():
    now = capture_context.current()
    return contextlib.nullcontext() if now is None else now.recorder.region("part")


def _drawn(seed, **settings):
    rng = random.Random(str(seed))
    return InRegions(draw(rng, 12, **settings), rng)


def _has_regions(captured) -> bool:
    return any(region_of(node) for node in captured.graph.nodes)


@pytest.mark.sampled
@pytest.mark.parametrize("picks", (False, True))
def test_results_and_inputs(seed, picks):
    found = []

    def check(program, name):
        found.append(_has_regions(plain.check(program, name, False)))

    for i in range(PROGRAMS):
        plain.unless_refused(check, _drawn((seed, i), picks=picks), (seed, i), refused=REFUSED)
    assert sum(found) > PROGRAMS // 8


@pytest.mark.sampled
@pytest.mark.parametrize("picks", (False, True))
def test_gradients(seed, picks):
    found = [plain.unless_refused(plain.check_gradients,
                                  _drawn((seed, i), grad=True, picks=picks), (seed, i),
                                  refused=REFUSED)
             for i in range(PROGRAMS)]
    assert sum(found) > PROGRAMS // 10
