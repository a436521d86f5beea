"""Cycles of whole programs: a golden case, sums, and how they follow the program and the target."""

import random
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import poptorch
from poptorch import _C
from poptorch._reports.device.costs import DeviceCosts
from poptorch._reports.schedule import Schedule
from poptorch._reports.timeline import Timeline
from poptorch.errors import Error
from tests.helpers import check_case, quiet_options, read_case
from tests.tasks.pipelines import Pipeline, drawn
from tests.tasks.test_schedule import scheduled

TRAINING = Path(__file__).parent / "training.ir"
STREAMS = {"stream_in", "stream_out"}


def cycles(row):
    return row["compute"] + row["exchange"] + row["sync"]


def span(text, target="gc200", **settings):
    return Timeline(Schedule(text), DeviceCosts(_C.program_costs(text, target, settings))).span


def lines(costs):
    """What the golden case compares, as text."""
    for row in costs["ops"]:
        place = f"{row['task'] or row['graph']} ipu {row['ipu']} {row['part']}"
        yield (f"{row['id']} {row['op']} {row['shape']} in {place}: {row['runs']} x "
               f"{cycles(row):.0f} cycles, {row['flops']:.0f} FLOPs")
    for row in costs["tasks"]:
        yield f"task {row['name']}: {row['cycles']:.0f}"
    for row in costs["host"]:
        yield f"host of {row['task']}: in {row['in_cycles']:.0f}, out {row['out_cycles']:.0f}"
    for row in costs["edges"]:
        yield f"edge {row['source']} to {row['target']} ({row['memory']}): {row['cycles']:.0f}"
    for row in costs["steps"]:
        yield f"{row['kind']} of ipu {row['ipu']}: {row['cycles']:.0f}"
    yield f"host call {costs['host_call_cycles']:.0f}, sync {costs['sync_cycles']:.0f}"


def test_golden(update):
    _, source, _ = read_case(TRAINING)
    costs = _C.program_costs(source, "gc200", {"replicas": 2})
    check_case(TRAINING, "\n".join(lines(costs)) + "\n", update)


def encoder(layers, width=16):
    layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.1, batch_first=True)
    net = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return poptorch.identity_loss(self.net(x).square(), "mean")

    options = quiet_options()
    options.Training.gradientAccumulation(2)
    model = poptorch.trainingModel(Loss(), options, poptorch.optim.SGD(net.parameters(), lr=0.1))
    model.compile(torch.ones(4, 6, width))
    return model


def test_equal_layers_are_planned_once():
    two, five = (_C.program_costs(encoder(n).ir("place"), "gc200") for n in (2, 5))
    assert len(five["ops"]) > 2 * len(two["ops"])
    assert five["distinct_ops"] == two["distinct_ops"] < len(two["ops"])


@pytest.mark.parametrize("number", range(10))
def test_tasks_are_the_sums_of_their_ops(seed, number):
    text = scheduled(drawn(random.Random(f"{seed} {number}")))
    costs, schedule = _C.program_costs(text, "gc200"), Schedule(text)
    assert [row["name"] for row in costs["tasks"]] == [task.name for task in schedule.tasks]
    for row, host in zip(costs["tasks"], costs["host"]):
        ops = [op for op in costs["ops"] if op["task"] == row["name"]]
        assert {op["runs"] for op in ops} <= {schedule.micro_batches}
        assert row["cycles"] == pytest.approx(sum(cycles(op) for op in ops
                                                  if op["op"] not in STREAMS))
        assert host["in_cycles"] + host["out_cycles"] == pytest.approx(
            sum(cycles(op) for op in ops if op["op"] in STREAMS))
    assert [(row["source"], row["target"], row["memory"], row["depth"])
            for row in costs["edges"]] == [(edge.source, edge.target, edge.memory, edge.depth)
                                           for edge in schedule.edges]
    assert [op["id"] for op in costs["ops"]] == list(range(len(costs["ops"])))


@pytest.mark.parametrize("number", range(10))
def test_more_micro_batches_never_take_less_time(seed, number):
    rng = random.Random(f"{seed} {number}")
    schedule = rng.choice(("grouped", "interleaved", "sequential", "fill_drain"))
    stages = rng.randint(2, 5)
    spans = [span(scheduled(Pipeline(stages, count, schedule))) for count in range(1, 8)]
    assert spans == sorted(spans) and spans[0] > 0


def test_a_faster_clock_takes_no_more_seconds():
    """Of two targets that differ in the clock alone."""
    text = read_case(TRAINING)[1]
    row = {name: value for name, value in
           next(row for row in _C.targets() if row["name"] == "gc200").items()}
    seconds = [span(text, {**row, "clock_hz": clock}) / clock for clock in (1e9, 1.5e9, 2e9)]
    assert seconds == sorted(seconds, reverse=True)


def test_all_reduce_follows_the_replicas():
    text = read_case(TRAINING)[1]
    found = [_C.program_costs(text, "gc200", {"replicas": n})["steps"] for n in (1, 2, 4, 16)]
    of_kind = {kind: [sum(row["cycles"] for row in rows if row["kind"] == kind) for rows in found]
               for kind in ("all_reduce", "update")}
    assert of_kind["all_reduce"] == sorted(set(of_kind["all_reduce"]))
    assert len(set(of_kind["update"])) == 1


def test_a_stash_off_the_chip_costs_more():
    on_chip, off_chip = (
        next(edge for edge in _C.program_costs(text, "gc200")["edges"]
             if (edge["source"], edge["target"]) == ("micro.s0", "micro.s0.back"))
        for text in (scheduled(Pipeline(3, 6, "grouped", off_chip=stages)) for stages in ([], [0])))
    assert (on_chip["memory"], off_chip["memory"]) == ("chip", "streaming")
    assert off_chip["cycles"] > on_chip["cycles"] > 0


def test_loops_multiply_runs():
    text = """graph main {
      loop {body=@iteration, count=3}
      output
    }

    graph iteration {
      %x = stream_in {part="forward", stream="x"} : f32[4]
      %y = loop %x {body=@often, count=7} : f32[4]
      %more = constant {data=[1]} : bool[]
      %z, %w = loop %more, %y {body=@as_long_as, conditional=true, count=1} : bool[], f32[4]
      stream_out %w {part="forward", stream="y"}
      output
    }

    graph often {
      %x = input {index=0} : f32[4]
      %y = tanh %x : f32[4]
      output %y
    }

    graph as_long_as {
      %more = input {index=0} : bool[]
      %x = input {index=1} : f32[4]
      %y = relu %x : f32[4]
      output %more, %y
    }
    """
    module = _C.parse(re.sub(r"(?m)^    ", "", text))
    costs = _C.program_costs(module.text(), "gc200")
    ops = {row["op"]: row for row in costs["ops"]}
    assert (ops["tanh"]["runs"], ops["tanh"]["runs_are_known"]) == (21, True)
    assert (ops["relu"]["runs"], ops["relu"]["runs_are_known"]) == (3, False)
    wanted = 7 * cycles(ops["tanh"]) + cycles(ops["relu"])
    assert [(row["name"], row["cycles"]) for row in costs["tasks"]] == [
        ("forward", pytest.approx(wanted))]


def test_interval_and_utilisation():
    costs = _C.program_costs(read_case(TRAINING)[1], "gc200")
    low, high = costs["interval"]
    assert 0.5 < low < 1 / 1.15 and 1.15 < high < 2 and low * high == pytest.approx(1)
    assert costs["error"]["product"] < costs["error"]["loss"]
    assert all(0 <= row["utilisation"] <= 1 for row in costs["ops"])


def test_a_text_that_is_none():
    with pytest.raises(Error, match="no_such_op"):
        _C.program_costs("graph main {\n  %0 = no_such_op : f32[]\n  output\n}\n", "gc200")


def test_blocks_have_cycles():
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 64))
    poptorch.BeginBlock(net[0], "narrow", ipu_id=0)
    poptorch.BeginBlock(net[1], "wide", ipu_id=0)
    model = poptorch.inferenceModel(net, quiet_options())
    model.compile(torch.ones(2, 8))
    rows = _C.block_costs(model.ir("rewrite"), "gc200")
    assert [row["name"] for row in rows] == ["", "narrow", "wide"]
    assert rows[0]["forward"] == 0 < rows[1]["forward"] and rows[2]["backward"] == 0
    whole = _C.program_costs(model.ir("place"), "gc200")["tasks"][0]["cycles"]
    assert sum(row["forward"] for row in rows) == pytest.approx(whole)
