"""Transfers to the host and between IPUs take the time that costs give them."""

import random

import pytest

from poptorch._reports.schedule import Edge, Schedule, Task
from poptorch._reports.simulation import Simulation, StageCosts
from poptorch._reports.timeline import Timeline
from tests.tasks.pipelines import Pipeline, drawn
from tests.tasks.test_schedule import scheduled


class ByteCosts(StageCosts):
    """FLOPs, and for each byte of a transfer the given times."""

    def __init__(self, host: float = 0.0, edge: float = 0.0):
        self._host, self._edge = host, edge

    def task(self, task: Task) -> float:
        return task.flops

    def host_in(self, task: Task) -> float:
        return self._host * task.bytes_in

    def host_out(self, task: Task) -> float:
        return self._host * task.bytes_out

    def edge(self, edge: Edge) -> float:
        return self._edge * edge.bytes


def busy(simulation, kind):
    return sum(span.end - span.begin for span in simulation.spans if span.kind == kind)


@pytest.mark.parametrize("seed", range(10))
def test_transfers_take_the_time_that_costs_give_them(seed):
    schedule = Schedule(scheduled(drawn(random.Random(seed))))
    simulation = Simulation(schedule, ByteCosts(host=2.0, edge=3.0))
    count = schedule.micro_batches
    nbytes = sum(task.bytes_in + task.bytes_out for task in schedule.tasks)
    assert busy(simulation, "host") == 2.0 * count * nbytes
    moved = sum((edge.bytes + edge.stored_bytes) / 2 if edge.memory == "streaming" else edge.bytes
                for edge in schedule.edges)
    assert busy(simulation, "exchange") == 3.0 * count * moved
    free = Simulation(schedule, ByteCosts())
    assert busy(free, "host") == busy(free, "exchange") == 0
    assert simulation.span >= free.span


def test_a_priced_input_delays_the_compute_of_its_task():
    schedule = Schedule(scheduled(Pipeline(2, 1, "interleaved", training=False)))
    first = schedule.tasks[0]
    simulation = Simulation(schedule, ByteCosts(host=1.0))
    begins = [span.begin for span in simulation.spans
              if (span.task, span.kind) == (first.name, "compute")]
    assert first.bytes_in > 0 and begins == [first.bytes_in]


@pytest.mark.parametrize("seed", range(20))
def test_a_simulation_keeps_the_spans_of_some_micro_batches(seed):
    schedule = Schedule(scheduled(drawn(random.Random(seed))))
    costs, count = ByteCosts(host=2.0, edge=3.0), schedule.micro_batches
    whole = Simulation(schedule, costs)
    for kept in ((), {0}, {0, count - 1}):
        some = Simulation(schedule, costs, kept=kept)
        assert (some.span, some.busy) == (whole.span, whole.busy)
        assert [span for span in some.spans if span.micro_batch is not None] == [
            span for span in whole.spans if span.micro_batch in kept]
    for ipu in whole.ipus:
        spans = [span for span in whole.spans if (span.ipu, span.track) == (ipu, "compute")]
        assert whole.busy[ipu] == sum(span.end - span.begin for span in spans)


def test_few_rows_are_those_of_the_first_and_last_micro_batches():
    schedule = Schedule(scheduled(Pipeline(2, 8, "interleaved")))
    line = Timeline(schedule, ByteCosts(host=1.0, edge=1.0))
    rows, left_out = line._few_rows(1)
    assert left_out == [1, 6]
    assert {row.micro_batch for row in rows} == {0, 7}
    assert [row for row in rows if row.micro_batch is not None] == [
        row for row in line.rows if row.micro_batch in (0, 7)]
    assert line._few_rows(10_000) == (line.rows, [])
