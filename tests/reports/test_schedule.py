"""The object that shows a schedule: rows of tasks and edges, and the drawing."""

import random

import pytest

from poptorch._reports.schedule import Edge, Schedule
from tests.tasks.pipelines import SCHEDULES, Pipeline, drawn
from tests.tasks.test_schedule import scheduled


def of(pipeline):
    return Schedule(scheduled(pipeline))


def test_rows():
    schedule = of(Pipeline(3, 5, "interleaved", skips=[(0, 2)], off_chip=[1]))
    assert schedule.name == "interleaved" and schedule.micro_batches == 5
    rows = [(task.name, task.ipu, task.stage, task.part, task.offset) for task in schedule.tasks]
    assert rows == [
        ("micro.s0", 0, 0, "forward", 0), ("micro.s1", 1, 1, "forward", 1),
        ("micro.s2", 2, 2, "both", 2), ("micro.s1.back", 1, 1, "backward", 2),
        ("micro.s0.back", 0, 0, "backward", 2)]
    assert set(schedule.edges) == {
        Edge("micro.s0", "micro.s1", 64, 1, "chip"), Edge("micro.s1", "micro.s2", 64, 1, "chip"),
        Edge("micro.s2", "micro.s1.back", 32, 1, "chip"),
        Edge("micro.s1.back", "micro.s0.back", 32, 1, "chip"),
        Edge("micro.s0", "micro.s0.back", 32, 3, "chip"),
        Edge("micro.s1", "micro.s1.back", 32, 2, "streaming")}
    assert [schedule.stash_bytes(stage) for stage in range(3)] == [96, 0, 0]


def test_bytes_out_are_bytes_in(seed):
    """The edges of a task have the bytes of the ops around it."""
    pipeline = drawn(random.Random(seed))
    text, schedule = scheduled(pipeline), of(pipeline)
    held = [line for line in text.splitlines() if "ipu_copy %" in line or "stash %" in line]
    assert sum(edge.bytes for edge in schedule.edges) == 32 * len(held)
    names = {task.name for task in schedule.tasks}
    assert all({edge.source, edge.target} <= names for edge in schedule.edges)


DRAWINGS = {
    "grouped": """
grouped, 8 micro-batches
IPU 0  F0 F1 F2 F3   F4   F5   F6B0 F7B1 B2   B3   B4   B5 B6 B7
IPU 1  .  F0 F1 F2   F3   F4B0 F5B1 F6B2 F7B3 B4   B5   B6 B7 .
IPU 2  .  .  F0 F1   F2B0 F3B1 F4B2 F5B3 F6B4 F7B5 B6   B7 .  .
IPU 3  .  .  .  F0B0 F1B1 F2B2 F3B3 F4B4 F5B5 F6B6 F7B7 .  .  .""",
    "interleaved": """
interleaved, 8 micro-batches
IPU 0  F0 F1 F2 F3B0 F4B1 F5B2 F6B3 F7B4 B5   B6   B7
IPU 1  .  F0 F1 F2B0 F3B1 F4B2 F5B3 F6B4 F7B5 B6   B7
IPU 2  .  .  F0 F1B0 F2B1 F3B2 F4B3 F5B4 F6B5 F7B6 B7
IPU 3  .  .  .  F0B0 F1B1 F2B2 F3B3 F4B4 F5B5 F6B6 F7B7""",
    "sequential": """
sequential, 8 micro-batches
IPU 0  F0 .  .  .    .  .  B0 F1 .  .  .    .  .  B1 F2 .  .  .    .  .  B2 ...
IPU 1  .  F0 .  .    .  B0 .  .  F1 .  .    .  B1 .  .  F2 .  .    .  B2 .  ...
IPU 2  .  .  F0 .    B0 .  .  .  .  F1 .    B1 .  .  .  .  F2 .    B2 .  .  ...
IPU 3  .  .  .  F0B0 .  .  .  .  .  .  F1B1 .  .  .  .  .  .  F2B2 .  .  .  ...""",
    "fill_drain": """
fill_drain, 8 micro-batches
IPU 0  F0 F1 F2 F3 F4 F5 F6 F7 .  .  .  .  .  .  B0 B1 B2 B3 B4 B5 B6 B7
IPU 1  .  F0 F1 F2 F3 F4 F5 F6 F7 .  .  .  .  B0 B1 B2 B3 B4 B5 B6 B7 .
IPU 2  .  .  F0 F1 F2 F3 F4 F5 F6 F7 .  .  B0 B1 B2 B3 B4 B5 B6 B7 .  .
IPU 3  .  .  .  F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7 .  .  ."""}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_drawings(schedule):
    drawing = of(Pipeline(4, 8, schedule))
    assert repr(drawing) == DRAWINGS[schedule].strip()
    assert drawing._repr_html_() == f"<pre>{repr(drawing)}</pre>"


def test_drawings_are_80_columns_wide(seed):
    rng = random.Random(seed)
    for _ in range(20):
        stages = rng.randint(2, 12)
        drawing = repr(of(Pipeline(stages, rng.randint(1, 2000), rng.choice(SCHEDULES))))
        assert max(map(len, drawing.splitlines())) <= 80
        assert len(drawing.splitlines()) == stages + 1
