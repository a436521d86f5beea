"""Offsets and depths of tasks, by the schedules' formulas."""

import random
import re

import pytest

from poptorch import _C
from poptorch.errors import Error
from tests.tasks.pipelines import SCHEDULES, Pipeline, drawn

SIZES = [(2, 3), (3, 5), (4, 8), (7, 13), (2, 1), (5, 2)]  # stages, micro-batches


def scheduled(pipeline):
    module = _C.parse(pipeline.text())
    _C.schedule_tasks(module)
    return module.text()


def attribute(text, line, name):
    """An attribute of the op of a line that has ``line`` in it."""
    found = next(one for one in text.splitlines() if line in one)
    return int(re.search(rf"\b{name}=(\d+)", found)[1])


def offset(text, task):
    return attribute(text, f"body=@{task},", "offset")


def depth(text, value):
    return attribute(text, f"%{value} =", "depth")


FORWARD = {"grouped": lambda s, p, m: s, "interleaved": lambda s, p, m: s,
           "sequential": lambda s, p, m: 0, "fill_drain": lambda s, p, m: s}
BACKWARD = {"grouped": lambda s, p, m: 2 * (p - 1) - s, "interleaved": lambda s, p, m: p - 1,
            "sequential": lambda s, p, m: 0, "fill_drain": lambda s, p, m: m + 2 * (p - 1) - s}
STASH = {"grouped": lambda s, p, m: 2 * (p - 1 - s) + 1, "interleaved": lambda s, p, m: p - s,
         "sequential": lambda s, p, m: 1, "fill_drain": lambda s, p, m: m}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("stages", "count"), SIZES)
def test_offsets_and_depths_are_those_of_the_table(schedule, stages, count):
    pipeline = Pipeline(stages, count, schedule)
    text = scheduled(pipeline)
    for task in pipeline.tasks:
        table = BACKWARD if task.part == "backward" else FORWARD
        assert offset(text, task.name) == table[schedule](task.stage, stages, count)
        if task.part == "backward":
            stash = f"a{task.stage}.stash{task.stage}"
            wanted = STASH[schedule](task.stage, stages, count)
            assert depth(text, stash) == min(wanted, count)
    copies = re.findall(r"ipu_copy %.*depth=(\d+)", text)
    assert set(copies) == {"1"} and len(copies) == 2 * (stages - 1)


def test_a_round_of_one_micro_batch_is_the_table_of_the_pages():
    text = scheduled(Pipeline(4, 8, "interleaved"))
    assert [offset(text, f"micro.s{s}") for s in range(4)] == [0, 1, 2, 3]
    assert [offset(text, f"micro.s{s}.back") for s in range(3)] == [3, 3, 3]
    assert [depth(text, f"a{s}.stash{s}") for s in range(3)] == [4, 3, 2]


def test_what_skips_stages_has_room_in_each_of_them():
    pipeline = Pipeline(4, 8, "grouped", skips=[(0, 3)], inputs_kept=[1], off_chip=[2])
    text = scheduled(pipeline)
    # A copy to each stage on the way; what stage 1 reads and keeps leaves the copy in its turn.
    copies = ["skip0to3.ipu_copy1", "skip0to3.ipu_copy1.ipu_copy2",
              "skip0to3.ipu_copy1.ipu_copy2.ipu_copy3"]
    assert [depth(text, name) for name in copies] == [1, 1, 1]
    assert depth(text, "x0.ipu_copy1") == 1
    assert depth(text, "x0.ipu_copy1.stash1") == depth(text, "a1.stash1") == 5
    assert depth(text, "a2.remote_store2.stash2") == 3
    assert depth(text, "a2.remote_store2") == 1
    assert "remote_load %a2.remote_store2.stash2 {bytes=32, ipu=2, stage=2}" in text


def test_an_ipu_with_several_stages_runs_them_one_after_the_other():
    pipeline = Pipeline(4, 8, "grouped", ipus=[0, 1, 0, 1])
    text = scheduled(pipeline)
    # Stage 1 gives its result while IPU 0 is still at stage 0, before stage 2 takes the one before.
    assert depth(text, "x1.ipu_copy2") == depth(text, "x2.ipu_copy3") == 2
    assert depth(text, "x0.ipu_copy1") == 1
    _C.check_tasks(_C.parse(text))


def test_inference_has_forward_tasks_and_its_device_iterations():
    text = scheduled(Pipeline(3, 5, "grouped", training=False))
    assert [offset(text, f"micro.s{s}") for s in range(3)] == [0, 1, 2]
    assert text.count("task ") == 3 and "stash" not in text


def test_stages_that_are_not_numbered_from_0_are_counted():
    text = Pipeline(3, 5, "interleaved").text()
    for stage in (2, 1):  # 0, 2, 4
        text = text.replace(f"stage={stage}}}", f"stage={2 * stage}}}")
    module = _C.parse(text)
    _C.schedule_tasks(module)
    assert [offset(module.text(), f"micro.s{s}") for s in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_without_a_pipeline_tasks_run_in_turn(schedule):
    """The loop is over steps."""
    text = Pipeline(3, 5, schedule).text().replace(f', pipeline="{schedule}"', "")
    module = _C.parse(text)
    _C.schedule_tasks(module)
    _C.check_tasks(module)
    assert set(re.findall(r"offset=(\d+)", module.text())) <= {"0", "1", "2", "3", "4", "5"}
    assert {offset(module.text(), f"micro.s{s}") for s in range(3)} == {0}


def test_a_program_without_tasks_stays_as_it_is():
    text = "graph main {\n  %x = stream_in {stream=\"x\"} : f32[4]\n  output\n}\n"
    module = _C.parse(text)
    _C.schedule_tasks(module)
    _C.check_tasks(module)
    assert module.text() == text


def test_an_unknown_schedule_is_named():
    words = (r'\[schedule\] there is no pipeline schedule "zero_bubble". The schedules are: '
             "grouped, interleaved, sequential, fill_drain")
    with pytest.raises(Error, match=words):
        scheduled(Pipeline(2, 3, "zero_bubble"))


def memory(text):
    """Bytes of all that is held between tasks."""
    return sum(32 * int(found) for found in re.findall(r"depth=(\d+)", text))


@pytest.mark.parametrize("number", range(20))
def test_memory_is_ordered(seed, number):
    """Interleaved never needs more than grouped, sequential never more than interleaved."""
    pipeline = drawn(random.Random(f"{seed} {number}"))
    sizes = {}
    for schedule in ("grouped", "interleaved", "sequential"):
        one = Pipeline(pipeline.stages, pipeline.count, schedule, pipeline.training,
                       skips=pipeline.skips, inputs_kept=pipeline.inputs_kept)
        sizes[schedule] = memory(scheduled(one))
    assert sizes["sequential"] <= sizes["interleaved"] <= sizes["grouped"]
