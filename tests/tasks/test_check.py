"""The check of schedules refuses offsets and depths that do not make a pipeline.

What it must refuse is decided here by two other programs: queues with the numbers of micro-batches
in them, and a sort of all that must come before something else.
"""

import random
import re
from collections import defaultdict, deque

import pytest

from poptorch import _C
from tests.tasks.pipelines import SCHEDULES, Pipeline, drawn
from tests.tasks.test_schedule import depth, offset, scheduled


def refuse(text, words):
    with pytest.raises(RuntimeError, match=words):
        _C.check_tasks(_C.parse(text))


def changed(text, line, name, value):
    """The text with an attribute of the op in whose line ``line`` stands."""
    old = next(one for one in text.splitlines() if line in one)
    return text.replace(old, re.sub(rf"\b{name}=\d+", f"{name}={value}", old))


@pytest.fixture(scope="module")
def text():
    return scheduled(Pipeline(4, 8, "grouped"))


def test_a_right_schedule_passes(text):
    _C.check_tasks(_C.parse(text))


@pytest.mark.parametrize(("line", "name", "value", "words"), [
    ("body=@micro.s1,", "offset", 2,
     r"in round 1 2 micro-batches are between task micro.s0 and task micro.s1, which have room "
     r"for 1"),
    ("body=@micro.s1,", "offset", 0, "in round 1 2 micro-batches are between task micro.s1 and"),
    ("body=@micro.s2.back,", "offset", 2,
     "in round 2 task micro.s2.back reads what task micro.s3 has not made"),
    ("%a0.stash0 =", "depth", 6,
     "7 micro-batches are between task micro.s0 and task micro.s0.back, which have room for 6"),
    ("%a0.stash0 =", "depth", 0, r"a0.stash0.* has depth 0; it holds at least one micro-batch"),
    ("%a0.stash0 =", "bytes", 16, r"a0.stash0.* has bytes=16, its type has 32"),
    ("body=@micro.s1,", "offset", 99, "task micro.s1 has offset 99, which is not one of 0 to 22"),
])
def test_a_wrong_number_is_refused(text, line, name, value, words):
    refuse(changed(text, line, name, value), words)


def test_tasks_that_wait_for_each_other_are_refused():
    """Each round has room, but a worker that is ahead of the other one stops for ever."""
    pipeline = Pipeline(3, 4, "interleaved", ipus=[0, 1, 0])
    text = scheduled(pipeline)
    _C.check_tasks(_C.parse(text))
    wrong = changed(text, "%x1.ipu_copy2 =", "depth", 1)
    assert not is_right(pipeline, wrong)
    refuse(wrong, "waits for ever|have room for")


def test_the_number_of_micro_batches_costs_little():
    """2 million tasks."""
    text = scheduled(Pipeline(8, 125_000, "interleaved"))
    _C.check_tasks(_C.parse(text))


# -- mutants -----------------------------------------------------------------------------------


class Facts:
    """Offsets and rooms of a text, by the names that the pipeline has."""

    def __init__(self, pipeline, text):
        self.tasks, self.count = pipeline.tasks, pipeline.count
        self.offsets = {task.name: offset(text, task.name) for task in pipeline.tasks}
        rooms = defaultdict(list)
        for source, target, holders in pipeline.paths:
            depths = [depth(text, name) for name in holders]
            rooms[source, target].append(0 if 0 in depths else sum(depths))
        self.rooms = {pair: min(found) for pair, found in rooms.items()}


def rounds_are_right(facts):
    """Queues with the micro-batches that are between tasks, round by round."""
    queues = {pair: deque() for pair in facts.rooms}
    for number in range(max(facts.offsets.values()) + facts.count):
        now = {task.name: number - facts.offsets[task.name] for task in facts.tasks
               if 0 <= number - facts.offsets[task.name] < facts.count}
        halves = [[task for task in facts.tasks if task.name in now
                   and (task.part == "backward") == is_late] for is_late in (False, True)]
        begun = []
        for is_late, half in enumerate(halves):
            ends = list(begun)
            while half or ends:
                ipus, taken = {task.ipu for task in ends}, []
                for task in half:
                    ready = all(queue and queue[0] == now[task.name]
                                for (_, target), queue in queues.items() if target == task.name)
                    if ready and task.ipu not in ipus:
                        taken.append(task)
                    ipus.add(task.ipu)
                for task in taken:
                    half.remove(task)
                    for (_, target), queue in queues.items():
                        if target == task.name:
                            queue.popleft()
                    (begun if task.part == "both" and not is_late else ends).append(task)
                if not taken and not ends:
                    return False
                for task in ends:
                    for (source, target), queue in queues.items():
                        if source == task.name:
                            queue.append(now[source])
                            if len(queue) > facts.rooms[source, target]:
                                return False
                ends = []
    return True


def has_no_circle(facts):
    """Whether all beginnings and ends of tasks can be put in an order."""
    after = defaultdict(list)

    def add(first, then):
        after[first].append(then)

    numbers = range(facts.count)
    by_ipu = defaultdict(list)
    for task in facts.tasks:
        by_ipu[task.ipu] += ((k + facts.offsets[task.name], facts.tasks.index(task), task.name, k)
                             for k in numbers)
    for turns in by_ipu.values():
        turns.sort()
        for (*_, name, k), (*_, then, next_k) in zip(turns, turns[1:]):
            add(("end", name, k), ("begin", then, next_k))
    for task in facts.tasks:
        for k in numbers:
            add(("begin", task.name, k), ("end", task.name, k))
    for (source, target), room in facts.rooms.items():
        for k in numbers:
            add(("end", source, k), ("begin", target, k))
            if k + room < facts.count:
                add(("begin", target, k), ("end", source, k + room))
    missing = defaultdict(int)
    for then in after.values():
        for event in then:
            missing[event] += 1
    ready = [event for event in after if not missing[event]]
    done = 0
    while ready:
        event = ready.pop()
        done += 1
        for then in after[event]:
            missing[then] -= 1
            if not missing[then]:
                ready.append(then)
    return done == 2 * facts.count * len(facts.tasks)


def is_right(pipeline, text):
    facts = Facts(pipeline, text)
    most = facts.count + 2 * len(facts.tasks)
    return (0 not in facts.rooms.values() and max(facts.offsets.values()) <= most
            and rounds_are_right(facts) and has_no_circle(facts))


def mutant(text, rng):
    """The text with one or two other offsets or depths."""
    for _ in range(rng.choice([1, 1, 1, 2])):
        places = [found for name in ("offset", "depth")
                  for found in re.finditer(rf"\b{name}=(\d+)", text)]
        place = rng.choice(places)
        value = max(0, int(place[1]) + rng.choice([-3, -2, -1, -1, -1, 1, 1, 2, 3]))
        text = text[:place.start(1)] + str(value) + text[place.end(1):]
    return text


def refused(text):
    try:
        _C.check_tasks(_C.parse(text))
    except RuntimeError:
        return True
    return False


def test_right_schedules_pass(seed):
    rng = random.Random(seed)
    for _ in range(100):
        pipeline = drawn(rng)
        text = scheduled(pipeline)
        assert is_right(pipeline, text), text
        assert not refused(text), text


def test_mutants_that_are_wrong_are_refused(seed):
    """At least 500 of them, and none that is right."""
    rng = random.Random(seed)
    wrong = 0
    while wrong < 500:
        pipeline = drawn(rng, most_stages=5)
        text = scheduled(pipeline)
        for _ in range(10):
            changed_text = mutant(text, rng)
            is_wrong = not is_right(pipeline, changed_text)
            assert refused(changed_text) == is_wrong, changed_text
            wrong += is_wrong


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_room_is_too_much(schedule):
    """One micro-batch less in any place is too little."""
    # Where a stash holds all micro-batches, the copy before it has room for one of them.
    kept = [] if schedule == "fill_drain" else [1, 3]
    pipeline = Pipeline(5, 9, schedule, skips=[(0, 2), (1, 4)], inputs_kept=kept, off_chip=[2])
    text = scheduled(pipeline)
    for source, target, holders in pipeline.paths:
        for name in holders:
            now = depth(text, name)
            refuse(changed(text, f"%{name} =", "depth", now - 1), "have room for|has depth 0")
