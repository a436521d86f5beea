"""Meetings of IPUs, and transfers that overlap with computation: times by hand, and what holds for
random programs and costs."""

import json
import random
from collections import defaultdict
from xml.etree import ElementTree

import pytest

from poptorch._reports.schedule import Schedule
from poptorch._reports.simulation import Simulation, StageCosts
from poptorch._reports.timeline import Timeline
from poptorch.errors import Error
from tests.tasks.pipelines import SCHEDULES, Pipeline, drawn
from tests.tasks.test_schedule import scheduled

LOOP, STEP = "accumulation_loop", "device_iteration_loop"


class Costs(StageCosts):
    """The same for each task and transfer of a kind, or drawn for each."""

    units = "cycles"

    def __init__(self, task=0.0, host=0.0, edge=0.0, sync=0.0, draw=None):
        self._prices = {"task": task, "host": host, "edge": edge}
        self._sync, self._draw = sync, draw
        self._drawn = {}

    def _price(self, kind, name):
        if self._draw is None:
            return self._prices[kind]
        if (kind, name) not in self._drawn:
            self._drawn[kind, name] = float(self._draw.choice([0, 1, 2, 3, 5, 9]))
        return self._drawn[kind, name]

    def task(self, task):
        return self._price("task", task.name)

    def host_in(self, task):
        return self._price("host", f"{task.name} in")

    def host_out(self, task):
        return self._price("host", f"{task.name} out")

    def edge(self, edge):
        return self._price("edge", (edge.source, edge.target, edge.memory))

    def sync(self):
        return self._sync


def text_of(pipeline, sync="full", overlap=None, loads=False, stores=False, iterations=1):
    """The text of the pipeline with settings that options write."""
    text = scheduled(pipeline)
    if overlap is not None:
        text = text.replace("{stream=", f'{{buffers=2, overlap="{overlap}", stream=')
    for op, uses in (("remote_load", loads), ("remote_store", stores)):
        if uses:
            lines = text.split("\n")
            text = "\n".join(line.replace("}", ', tiles="io"}') if f"= {op} " in line else line
                             for line in lines)
    around = f'  strategy {{kind="pipelined", sync="{sync}"}}\n'
    if iterations == 1:
        return text.replace("graph main {\n", f"graph main {{\n{around}")
    return text.replace("graph main {\n", f"graph main {{\n{around}  loop {{body=@iteration, "
                        f"count={iterations}}}\n  output\n}}\n\ngraph iteration {{\n")


def one_task(count, overlap=None, iterations=1):
    """The schedule of one task that reads 64 bytes and sends 64."""
    head = "graph main {\n  loop {body=@iteration, count=%d}\n  output\n}\n\n" % iterations
    stream = f'overlap="{overlap}", ' if overlap else ""
    return Schedule(head + f"""graph iteration {{
  loop {{body=@micro, count={count}}}
  output
}}

graph micro {{
  %x = stream_in {{ipu=0, {stream}part="forward", stage=0, stream="x"}} : f32[16]
  %y = relu %x {{ipu=0, part="forward", stage=0}} : f32[16]
  stream_out %y {{ipu=0, {stream}part="forward", stage=0, stream="y"}}
  output
}}
""")


def rows(line, *kinds):
    return [(row.kind, row.micro_batch, row.begin, row.end, row.track) for row in line.rows
            if row.kind in kinds]


# -- overlap with the host -----------------------------------------------------------------------


def test_without_overlap_transfers_take_turns_with_computation():
    line = Timeline(one_task(3), Costs(task=4.0, host=1.0))
    assert line.span == 3 * (1 + 4 + 1) and line.idle_share() == 0.0
    assert {row.track for row in line.rows} == {"compute"}


def test_the_next_micro_batch_is_loaded_while_one_is_computed():
    line = Timeline(one_task(3, LOOP), Costs(task=4.0, host=1.0))
    assert [row[1:4] for row in rows(line, "compute")] == [(0, 1, 5), (1, 5, 9), (2, 9, 13)]
    assert rows(line, "host") == [
        ("host", 0, 0, 1, "io"), ("host", 1, 1, 2, "io"), ("host", 0, 5, 6, "io"),
        ("host", 2, 6, 7, "io"), ("host", 1, 9, 10, "io"), ("host", 2, 13, 14, "io")]
    assert line.span == 14  # the first load and the last result do not overlap
    assert line.idle_share() == pytest.approx(2 / 14)


def test_slow_transfers_are_waited_for():
    """There is one buffer: a load begins when the task has taken the one before."""
    line = Timeline(one_task(3, LOOP), Costs(task=1.0, host=4.0))
    loads = [row for row in rows(line, "host") if row[1] == 1]
    assert loads[0][2] == 4  # when micro-batch 0 begins to compute
    assert line.span == 6 * 4  # all of them, one after the other


def test_a_step_loads_for_the_next_one():
    """Over device iterations the first input is there, and the last result is sent in the next
    step."""
    line = Timeline(one_task(3, STEP, iterations=2), Costs(task=4.0, host=1.0))
    assert rows(line, "compute")[0][2:4] == (0, 4) and line.span == 12
    assert [row[1:4] for row in rows(line, "host")] == [
        (2, 0, 1), (1, 1, 2), (0, 4, 5), (2, 5, 6), (1, 8, 9), (0, 9, 10)]
    assert line.idle_share() == 0.0


def test_one_device_iteration_has_no_next_step():
    alone, loop = (Timeline(one_task(3, mode), Costs(task=4.0, host=1.0)) for mode in (STEP, LOOP))
    assert alone.rows == loop.rows


def test_modes_that_do_not_exist():
    with pytest.raises(Error, match=r'\[place\] there is no overlap "x". It is one of accumulat'):
        one_task(3, "x")


# -- streaming memory ----------------------------------------------------------------------------


def stashed(**settings):
    """Two stages, the first of which keeps its stash in streaming memory."""
    return Schedule(text_of(Pipeline(2, 4, "grouped", off_chip=[0]), **settings))


@pytest.mark.parametrize("settings", [{"loads": True}, {"stores": True},
                                      {"loads": True, "stores": True}])
def test_io_tiles_hide_transfers_to_streaming_memory(settings):
    costs = Costs(task=4.0, edge=2.0)
    slow, fast = Timeline(stashed(), costs), Timeline(stashed(**settings), costs)
    assert fast.span < slow.span
    tracks = {row.track for row in fast.rows if row.kind == "exchange"}
    assert tracks == {"compute", "io"}  # copies between IPUs stay
    for name, place in (("loads", "micro.s0.back"), ("stores", "micro.s0")):
        moved = [row for row in fast.rows if row.track == "io" and row.task == place]
        assert len(moved) == (4 if settings.get(name) else 0)
        assert all(row.end - row.begin == 1 for row in moved)  # half of the way there and back


def test_weights_are_read_ahead():
    class Reading(Costs):
        def read_ahead(self, task):
            return 3.0

    text = """graph main {
  loop {body=@iteration, count=4}
  output
}

graph iteration {
  %w = state {ipu=0, off_chip=true, part="forward", path="w", role="parameter", stage=0} : f32[16]
  %v = remote_load %w {bytes=64, ipu=0, part="forward", stage=0, tiles="io"} : f32[16]
  %y = relu %v {ipu=0, part="forward", stage=0} : f32[16]
  stream_out %y {ipu=0, part="forward", stage=0, stream="y"}
  output
}
"""
    line = Timeline(Schedule(text), Reading(task=4.0))
    assert rows(line, "exchange")[:2] == [("exchange", 0, 0, 3, "io"), ("exchange", 1, 3, 6, "io")]
    assert line.span == 3 + 4 * 4
    without = Schedule(text.replace(', tiles="io"', ""))
    assert without.transfers == [row for row in Schedule(text).transfers if row.memory == "host"]


# -- meetings ------------------------------------------------------------------------------------


def test_all_ipus_meet_before_an_exchange_with_the_host():
    pipeline = Pipeline(2, 3, "grouped", training=False)
    line = Timeline(Schedule(text_of(pipeline)), Costs(task=4.0, host=1.0, sync=0.5))
    met = [(row.ipu, row.begin) for row in line.rows if row.kind == "sync"]
    assert len(met) == 2 * 4  # each IPU in each of four rounds
    assert [begin for ipu, begin in met if ipu == 0] == [begin for ipu, begin in met if ipu == 1]
    free = Timeline(Schedule(text_of(pipeline, "single_pipeline")),
                    Costs(task=4.0, host=1.0, sync=0.5))
    assert line.span > free.span
    assert not any(row.kind == "sync" for row in free.rows)


def test_one_ipu_meets_nobody():
    assert Timeline(one_task(3), Costs(task=4.0, sync=1.0)).span == 12


def test_a_sync_pattern_that_does_not_exist():
    with pytest.raises(Error, match=r'\[place\] there is no sync pattern "x". It is one of full, '):
        Schedule(text_of(Pipeline(2, 3, "grouped"), "x"))


# -- what holds for all --------------------------------------------------------------------------


def drawn_settings(rng):
    return {"sync": rng.choice(["full", "single_pipeline", "replica_and_ladder"]),
            "overlap": rng.choice([None, LOOP, STEP]), "loads": rng.random() < 0.5,
            "stores": rng.random() < 0.5, "iterations": rng.choice([1, 2])}


@pytest.mark.parametrize("number", range(40))
def test_tracks_do_not_overlap_and_everything_moves(seed, number):
    rng = random.Random(f"{seed} {number}")
    pipeline, settings = drawn(rng), drawn_settings(rng)
    schedule = Schedule(text_of(pipeline, **settings))
    costs = Costs(sync=rng.choice([0.0, 1.0]), draw=rng)
    line = Timeline(schedule, costs)
    tracks = defaultdict(list)
    for row in line.rows:
        tracks[row.ipu, row.track].append(row)
    for (_, track), mine in tracks.items():
        assert all(one.end <= then.begin for one, then in zip(mine, mine[1:]))
        assert track == "io" or mine[0].begin == 0 and mine[-1].end == line.span
        assert mine[-1].end <= line.span
    for task in schedule.tasks:
        mine = [row for row in line.rows if row.task == task.name]
        assert [row.micro_batch for row in mine if row.kind == "compute"] == list(
            range(pipeline.count))
        host = sum(row.end - row.begin for row in mine if row.kind == "host")
        wanted = (costs.host_in(task) if task.bytes_in else 0) + (
            costs.host_out(task) if task.bytes_out else 0)
        assert host == pytest.approx(pipeline.count * wanted)
    stored = [edge for edge in schedule.edges if edge.memory == "streaming"]
    for edge in stored:
        assert edge.loads_by_io_tiles == settings["loads"]
        assert edge.stores_by_io_tiles == settings["stores"]


@pytest.mark.parametrize("number", range(60))
def test_overlap_never_makes_a_step_longer(seed, number):
    """Where there are no meetings: the order of work in a run without them decides where an IPU
    takes part."""
    rng = random.Random(f"{seed} overlap {number}")
    pipeline, settings = drawn(rng), drawn_settings(rng)
    costs = Costs(draw=rng)
    slow = {"sync": "full", "iterations": settings["iterations"]}
    fast = settings | {"sync": "full"}
    spans = [Simulation(Schedule(text_of(pipeline, **each)), costs).span for each in (slow, fast)]
    assert spans[1] <= spans[0] + 1e-9, (pipeline, settings)


@pytest.mark.parametrize("number", range(40))
def test_meetings_never_make_a_step_shorter(seed, number):
    rng = random.Random(f"{seed} meetings {number}")
    pipeline, settings = drawn(rng), drawn_settings(rng)
    costs = Costs(sync=rng.choice([0.25, 2.0]), draw=rng)
    spans = [Simulation(Schedule(text_of(pipeline, **settings | {"sync": sync})), costs).span
             for sync in ("full", "single_pipeline", "replica_and_ladder")]
    assert spans[1] == spans[2] <= spans[0]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_meetings_of_equal_stages_only_cost_their_time(schedule):
    """Equal stages are in step without them."""
    pipeline = Pipeline(4, 8, schedule)
    free = Simulation(Schedule(text_of(pipeline, "single_pipeline")), Costs(task=4.0)).span
    met = Simulation(Schedule(text_of(pipeline)), Costs(task=4.0, sync=1e-3)).span
    assert free < met < free * 1.01 + 8


def test_meetings_of_unequal_stages_wait_for_the_slowest_of_each_round():
    class Stages(Costs):
        def task(self, task):
            return [1.0, 9.0, 8.0, 9.0][task.stage] * (3 if task.part == "backward" else 1)

    pipeline = Pipeline(4, 40, "grouped")
    span = Simulation(Schedule(text_of(pipeline)), Stages(sync=1e-3)).span
    rounds = 40 + 2 * 3
    assert span < rounds * (9 + 27) + 1


# -- files ---------------------------------------------------------------------------------------


def test_io_tiles_have_a_track_and_a_lane(tmp_path):
    line = Timeline(one_task(3, LOOP), Costs(task=4.0, host=1.0), replicas=2)
    line.to_perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events
             if event["name"] == "thread_name"}
    assert names == {(replica, tid): name for replica in (0, 1)
                     for tid, name in ((0, "IPU 0"), (1, "IO tiles of IPU 0"))}
    slices = [(event["ts"], event["dur"]) for event in events
              if event["ph"] == "X" and (event["pid"], event["tid"]) == (0, 1)]
    assert slices == [(begin, end - begin) for _, _, begin, end, _ in rows(line, "host")[:6]]
    root = ElementTree.fromstring(line._repr_html_())
    texts = [node.text for node in root.findall("{http://www.w3.org/2000/svg}text")]
    assert texts[:2] == ["IPU 0", "IO tiles"]
    heights = {float(box.attrib["height"]) for box in
               root.findall("{http://www.w3.org/2000/svg}rect")}
    assert heights == {20.0, 8.0}
    line.plot(tmp_path / "line.svg")
    assert "IO tiles" in (tmp_path / "line.svg").read_text()
