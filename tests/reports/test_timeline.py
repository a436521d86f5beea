"""Timelines of schedules: times by hand, what holds for all of them, and files."""

import json
import random
import sys
from collections import defaultdict
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from poptorch import _C, testing
from poptorch._base import switches
from poptorch._reports.device.costs import DeviceCosts
from poptorch._reports.schedule import Schedule
from poptorch._reports.simulation import StageCosts
from poptorch._reports.timeline import Timeline
from poptorch.errors import Error
from tests.tasks.pipelines import SCHEDULES, Pipeline, drawn
from tests.tasks.test_schedule import scheduled

SIZES = [(2, 3), (3, 5), (4, 8), (5, 9), (8, 32), (3, 1), (4, 2)]  # stages, micro-batches


def timeline(pipeline, costs=None, replicas=1):
    """With a cost for each stage; without costs, 1 for each."""
    costs = costs or dict.fromkeys(range(pipeline.stages), 1.0)
    with testing.stage_costs(costs):
        stages = switches.current_stage_costs()
        return Timeline(Schedule(scheduled(pipeline)), StageCosts(stages), replicas)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_idle_share_of_equal_stages(schedule, p, m):
    wanted = (p - 1) / p if schedule == "sequential" else (p - 1) / (m + p - 1)
    training = timeline(Pipeline(p, m, schedule))
    assert training.idle_share() == wanted
    assert training.span == (2 * m * p if schedule == "sequential" else 2 * (m + p - 1))
    inference = timeline(Pipeline(p, m, schedule, training=False))
    assert inference.idle_share() == wanted
    for ipu in range(p):
        assert training.idle_share(ipu) == wanted


def test_times_by_hand():
    """Two stages, the second one slower: F0 of stage 1 ends at 1 + 6."""
    line = timeline(Pipeline(2, 2, "interleaved"), {0: 1.0, 1: 3.0})
    rows = [(row.ipu, row.kind, row.task, row.micro_batch, row.begin, row.end)
            for row in line.rows if row.kind in ("compute", "idle")]
    assert rows == [
        (0, "compute", "micro.s0", 0, 0, 1), (0, "compute", "micro.s0", 1, 1, 2),
        (0, "idle", None, None, 2, 7), (0, "compute", "micro.s0.back", 0, 7, 8),
        (0, "idle", None, None, 8, 13), (0, "compute", "micro.s0.back", 1, 13, 14),
        (1, "idle", None, None, 0, 1), (1, "compute", "micro.s1", 0, 1, 7),
        (1, "compute", "micro.s1", 1, 7, 13), (1, "idle", None, None, 13, 14)]
    assert line.span == 14 and line.units == "relative"
    assert line.idle_share(0) == pytest.approx(10 / 14) and line.idle_share(1) == 2 / 14


def uneven(seed, number):
    """A pipeline and costs for its stages, drawn."""
    rng = random.Random(f"{seed} {number}")
    pipeline = drawn(rng)
    return pipeline, {stage: rng.choice([1.0, 2.0, 3.0, 7.0]) for stage in range(pipeline.stages)}


@pytest.mark.parametrize("number", range(30))
def test_what_holds_for_all_timelines(seed, number):
    pipeline, costs = uneven(seed, number)
    schedule = Schedule(scheduled(pipeline))
    line = timeline(pipeline, costs)
    rows = line.rows
    # Each task runs m times, in order.
    for task in schedule.tasks:
        mine = [row for row in rows if row.task == task.name and row.kind == "compute"]
        assert [row.micro_batch for row in mine] == list(range(pipeline.count))
        assert all(row.end - row.begin == costs[task.stage] * (1 + (task.part == "both"))
                   for row in mine)
    # The rows of an IPU follow each other and fill the span.
    for ipu in line.ipus:
        mine = [row for row in rows if row.ipu == ipu]
        assert mine[0].begin == 0 and mine[-1].end == line.span
        assert all(one.end == then.begin for one, then in zip(mine, mine[1:]))
    busy = sum(row.end - row.begin for row in rows if row.kind != "idle")
    assert line.idle_share() == pytest.approx(1 - busy / (len(line.ipus) * line.span))
    # A value is there before it is read.
    times = {(row.task, row.micro_batch): row for row in rows if row.kind == "compute"}
    for edge in schedule.edges:
        for batch in range(pipeline.count):
            assert times[edge.source, batch].end <= times[edge.target, batch].begin
    # No more values are there than have room.
    for edge in schedule.edges:
        for batch in range(edge.depth + 1, pipeline.count):
            later = times[edge.source, batch].end
            assert times[edge.target, batch - edge.depth - 1].begin <= later


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_slowest_stage_is_a_bound(seed, schedule):
    """m times the slowest task, and the shortest way to it and away from it."""
    rng = random.Random(f"{seed} {schedule}")
    for _ in range(50):
        p, m = rng.randint(2, 6), rng.randint(1, 12)
        costs = {stage: rng.choice([1.0, 2.0, 5.0]) for stage in range(p)}
        line = timeline(Pipeline(p, m, schedule), costs)
        for stage in range(p):
            way = 2 * sum(costs[before] for before in range(stage))
            assert line.span >= m * 2 * costs[stage] + way


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_more_micro_batches_never_raise_the_idle_share(schedule):
    shares = [timeline(Pipeline(4, m, schedule)).idle_share() for m in range(1, 20)]
    assert all(one >= then - 1e-12 for one, then in zip(shares, shares[1:]))


def test_cycles_of_the_device():
    text = scheduled(Pipeline(2, 3, "grouped"))
    schedule, costs = Schedule(text), DeviceCosts(_C.program_costs(text, "gc200"))
    line = Timeline(schedule, costs)
    assert line.units == "cycles"
    of_task = {task.name: costs.task(task) for task in schedule.tasks}
    assert all(row.end - row.begin == pytest.approx(of_task[row.task])
               for row in line.rows if row.kind == "compute")
    stash = next(edge for edge in schedule.edges if edge.depth > 1)
    copies = [row for row in line.rows if (row.task, row.kind) == (stash.target, "exchange")]
    # From the other IPU and from the stash.
    assert len(copies) == 2 * 3 and all(row.end > row.begin for row in copies)


def test_replicas_do_the_same_at_the_same_time():
    pipeline = Pipeline(2, 3, "grouped")
    one, three = timeline(pipeline), timeline(pipeline, replicas=3)
    assert three.span == one.span and three.idle_share() == one.idle_share()
    assert len(three.rows) == 3 * len(one.rows)
    assert [row for row in three.rows if row.replica == 0] == one.rows


def test_the_host_and_copies_have_rows():
    rows = timeline(Pipeline(2, 2, "grouped")).rows
    exchanges = {(row.ipu, row.task, row.micro_batch) for row in rows if row.kind == "exchange"}
    assert exchanges == {(1, "micro.s1", 0), (1, "micro.s1", 1), (0, "micro.s0.back", 0),
                         (0, "micro.s0.back", 1)}
    hosts = [row for row in rows if row.kind == "host" and row.task == "micro.s0.back"]
    assert len(hosts) == 4 and all(row.begin == row.end for row in hosts)  # in and out


@pytest.mark.parametrize(("costs", "error", "words"), [
    ({"0": 1.0}, TypeError, r"\[stage_costs\] expected the number of a stage .int., got str '0'"),
    ({0: "1"}, TypeError, r"\[stage_costs\] expected a number as the cost of a stage, got str '1'"),
    ({0: -1.0}, ValueError, r"\[stage_costs\] expected a finite cost of at least 0, got -1.0"),
    ({0: float("nan")}, ValueError, "expected a finite cost of at least 0, got nan"),
    ({0: 1.0}, ValueError, r"\[stage_costs\] stage 1 of the program has no cost, got {0: 1.0}"),
])
def test_costs_that_make_no_sense(costs, error, words):
    with pytest.raises(error, match=words):
        timeline(Pipeline(2, 3, "grouped"), costs)
    assert switches.current_stage_costs() is None


def test_an_ipu_that_is_not_used():
    words = r"\[idle_share\] the program uses the IPUs \[0, 1\], got 2"
    with pytest.raises(ValueError, match=words):
        timeline(Pipeline(2, 3, "grouped")).idle_share(2)


def test_a_text_whose_tasks_wait_for_each_other():
    """A text of a file may be any."""
    text = scheduled(Pipeline(2, 3, "grouped")).replace("depth=3", "depth=1")
    with pytest.raises(Error, match=r"\[timeline\] the tasks of the program wait for each other"):
        Timeline(Schedule(text), StageCosts({0: 1.0, 1: 1.0}))


# -- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(5))
def test_perfetto_reads_back(seed, number, tmp_path):
    pipeline, costs = uneven(seed, number)
    schedule = Schedule(scheduled(pipeline))
    line = timeline(pipeline, costs, replicas=2)
    line.to_perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    assert set(tracks) == {(replica, ipu) for replica in range(2) for ipu in line.ipus}
    for (replica, ipu), slices in tracks.items():
        slices.sort(key=lambda event: event["ts"])
        assert all(one["ts"] + one["dur"] <= then["ts"] + 1e-9
                   for one, then in zip(slices, slices[1:]))
        wanted = [(row.begin, row.end - row.begin) for row in line.rows
                  if (row.replica, row.ipu) == (replica, ipu) and row.kind != "idle"
                  and row.end > row.begin]
        assert [(event["ts"], event["dur"]) for event in slices] == wanted
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"replica 0", "replica 1", *(f"IPU {ipu}" for ipu in line.ipus)}
    check_arrows(events, tracks, schedule, pipeline.count)
    check_stashes(events, schedule)


def check_arrows(events, tracks, schedule, count):
    """Each begins and ends within a slice, and there is one for each copy."""
    ipus = {task.name: task.ipu for task in schedule.tasks}
    copies = sum(ipus[edge.source] != ipus[edge.target] for edge in schedule.edges)
    ends = {kind: {event["id"]: event for event in events if event["ph"] == kind}
            for kind in "sf"}
    assert len(ends["s"]) == len(ends["f"]) == 2 * copies * count
    assert ends["s"].keys() == ends["f"].keys()
    for number, start in ends["s"].items():
        finish = ends["f"][number]
        assert start["ts"] <= finish["ts"] and start["pid"] == finish["pid"]
        for event in (start, finish):
            assert any(one["ts"] <= event["ts"] < one["ts"] + one["dur"]
                       for one in tracks[event["pid"], event["tid"]])


def check_stashes(events, schedule):
    """Bytes begin and end at 0 and never exceed the room."""
    tasks = {task.name: task for task in schedule.tasks}
    room = defaultdict(int)
    for edge in schedule.edges:
        if tasks[edge.source].ipu == tasks[edge.target].ipu and edge.memory == "chip":
            room[f"stash bytes of IPU {tasks[edge.source].ipu}"] += edge.bytes * edge.depth
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counters[event["pid"], event["name"]].append(event["args"]["bytes"])
    assert {name for _, name in counters} == set(room)
    for (_, name), held in counters.items():
        assert held[-1] == 0 and min(held) == 0 and max(held) <= room[name]


def test_pictures(tmp_path):
    line = timeline(Pipeline(3, 5, "grouped"))
    line.plot(tmp_path / "line.png")
    line.plot(tmp_path / "line.svg")
    assert (tmp_path / "line.png").read_bytes().startswith(b"\x89PNG")
    ElementTree.fromstring((tmp_path / "line.svg").read_text())
    with pytest.raises(ValueError, match="xyz"):
        line.plot(tmp_path / "line.xyz")


def test_a_picture_needs_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(Error, match=r"\[plot\] drawing a timeline needs matplotlib, which is not "
                                    r"installed. Call pip install poptorch\[plot\]"):
        timeline(Pipeline(2, 3, "grouped")).plot(tmp_path / "line.png")


def test_notebooks_show_a_picture():
    root = ElementTree.fromstring(timeline(Pipeline(3, 5, "grouped"))._repr_html_())
    boxes = root.findall("{http://www.w3.org/2000/svg}rect")
    assert len(boxes) == 5 * 5
    assert {box.find("{http://www.w3.org/2000/svg}title").text for box in boxes} >= {
        "micro.s0, micro-batch 0", "micro.s0.back, micro-batch 4"}


def test_printed():
    assert repr(timeline(Pipeline(2, 3, "grouped"))) == (
        "relative span 8, idle share 25.0%\nIPU 0: idle share 25.0%\nIPU 1: idle share 25.0%")


def test_the_legend_of_one_ipu_does_not_cover_the_label_of_the_axis(monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path: figures.append(figure))
    timeline(Pipeline(1, 3, "grouped")).plot("line.png")
    figure = figures[0]
    figure.draw_without_rendering()
    legend, = figure.legends
    label = figure.axes[0].xaxis.label
    assert not legend.get_window_extent().overlaps(label.get_window_extent())
