"""Bytes of each IPU by category: ``memory_report()["ipus"]``."""

import re

import pytest
import torch
from hypothesis import assume, given

import poptorch
from poptorch import _C
from poptorch.enums import PipelineSchedule, Recomputation
from tests.fuzz.judge import budget
from tests.helpers import quiet_options
from tests.tasks.test_models import COLUMNS, Net, compiled, programs
from tests.tasks.test_recompute import stash_bytes, trained

CATEGORIES = ["parameters", "optimizer", "accumulators", "constants", "activations", "stashes",
              "streaming"]
STASH = re.compile(r"%(\S+) = stash %(\S+) \{bytes=(\d+), depth=(\d+), ipu=(\d+)")


def memory(text):
    """By IPU, of a program with one graph."""
    return _C.ipu_memory(f"graph main {{\n{text}\n}}\n")


def activations(text):
    return memory(text)[0]["activations"]


def ipus_of(net, strategy, schedule=None, **more):
    if schedule is not None:
        strategy.schedule(schedule)
    model = compiled(net, strategy, 7, True, **more)
    model.compile(torch.zeros(14, COLUMNS))
    return model.memory_report()["ipus"], model


def chip_bytes(row):
    return sum(row.values()) - row["streaming"]


def test_results_live_until_they_are_read():
    assert activations("""
      %x = stream_in {stream="x"} : f32[4]
      %0 = sum %x {dim=[0]} : f32[]
      %1 = sum %x {dim=[0]} : f32[]
      %2 = add %0, %1 : f32[]
      stream_out %2 {stream="y"}
      output""") == 16 + 4 + 4


def test_views_have_no_memory():
    assert activations("""
      %x = stream_in {stream="x"} : f32[2,8]
      %0 = permute %x {dims=[1, 0]} : f32[8,2]
      %1 = reshape %0 {size=[16]} : f32[16]
      %2 = slice %1 {dim=0, end=4, start=0} : f32[4]
      %3 = tanh %2 : f32[4]
      stream_out %3 {stream="y"}
      output""") == 64 + 16


def test_a_result_takes_the_memory_of_what_nobody_reads_later():
    text = """
      %x = stream_in {stream="x"} : f32[16]
      %0 = tanh %x : f32[16]
      %1 = relu %0 : f32[16]
      %2 = add %1, %0 : f32[16]
      stream_out %2 {stream="y"}
      output"""
    assert activations(text) == 2 * 64  # %0 lies in %x, %2 in %1
    assert activations(text.replace("add %1, %0", "add %1, %1")) == 64


def test_new_values_of_states_lie_in_the_old_ones():
    rows = memory("""
      %w = state {path="w", role="parameter"} : f32[16]
      %m = state {path="m", role="optimizer"} : f32[4]
      %b = state {path="b"} : f32[2]
      %g = stream_in {stream="g"} : f32[16]
      %0 = sub %w, %g : f32[16]
      assign %0 {path="w"}
      %1 = neg %m : f32[4]
      assign %1 {path="m"}
      %2 = neg %b : f32[2]
      assign %2 {path="b"}
      output""")
    assert rows == [dict.fromkeys(CATEGORIES, 0) | {
        "parameters": 64, "optimizer": 16, "constants": 8, "activations": 64}]


def test_loops():
    text = """graph main {
  %x = stream_in {stream="x"} : f32[16]
  %c = constant {data=[2.0]} : f32[]
  %0, %1 = loop %x, %c {body=@body, count=3} : f32[16], f32[]
  stream_out %0 {stream="y"}
  output
}

graph body {
  %a = input {index=0} : f32[16]
  %b = input {index=1} : f32[]
  %0 = tanh %a : f32[16]
  %1 = mul %0, %b : f32[16]
  output %1, %b
}
"""
    row, = _C.ipu_memory(text)
    assert row["constants"] == 4
    assert row["activations"] == 2 * 64  # what the body takes, and what it makes of that


def test_wrong_text_is_an_error():
    with pytest.raises(poptorch.Error, match="expected a value that is defined above"):
        memory("%0 = relu %x : f32[4]\n output")


class Dense(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
        self.norm = torch.nn.BatchNorm1d(64)

    def forward(self, x):
        x = self.norm(self.layer(x))
        return x, poptorch.identity_loss(x.square().mean(), "none")


def test_training_on_one_ipu():
    net = Dense()
    options = quiet_options(Training__gradientAccumulation=4)
    model = poptorch.trainingModel(net, options, torch.optim.Adam(net.parameters()))
    model.compile(torch.zeros(8, 64))
    report = model.memory_report()
    row, = report["ipus"]
    weights = 4 * sum(one.numel() for one in net.parameters())
    assert list(row) == CATEGORIES
    assert row["parameters"] == report["parameters"] == weights
    assert row["optimizer"] == report["optimizer_state"] == 2 * weights + 4
    assert row["accumulators"] == weights
    assert row["constants"] >= 4 * 64 * 2
    assert row["stashes"] == row["streaming"] == 0
    assert 2 * 64 * 4 < row["activations"] < report["activations"] + report["gradients"]


@pytest.mark.parametrize("recomputation", [Recomputation.Off, Recomputation.Auto])
def test_stashes_are_the_edges_to_backward_tasks(recomputation):
    model = trained(recomputation=recomputation)
    held = [row["stashes"] for row in model.memory_report()["ipus"]]
    edges = list(stash_bytes(model).values())
    assert held == edges + [0] * (len(held) - len(edges))


class Tied(torch.nn.Module):
    """The embedding and the head have one weight, and are on one IPU in two stages."""

    def __init__(self):
        super().__init__()
        self.words, self.layer = torch.nn.Embedding(500, 8), torch.nn.Linear(8, 8)

    def forward(self, ids, labels):
        with poptorch.Block("embedding", ipu_id=0):
            x = self.words(ids)
        with poptorch.Block("layer", ipu_id=1):
            x = self.layer(x)
        with poptorch.Block("head", ipu_id=0):
            scores = x @ self.words.weight.t()
            return torch.nn.functional.cross_entropy(scores, labels)


def test_a_gradient_of_a_shared_weight_waits_for_no_stage():
    net = Tied()
    model = poptorch.trainingModel(net, quiet_options(Training__gradientAccumulation=8),
                                   torch.optim.SGD(net.parameters(), 0.1))
    model.compile(torch.zeros(16, dtype=torch.int64), torch.zeros(16, dtype=torch.int64))
    assert re.search(r"stash .* : f32\[500,8\]", model.ir("place"))
    weight = 4 * net.words.weight.numel()
    row = model.memory_report()["ipus"][0]
    assert row["parameters"] == row["accumulators"] == weight
    assert row["stashes"] < weight


@pytest.mark.parametrize("schedule", PipelineSchedule, ids=lambda one: one.name)
@pytest.mark.parametrize("recomputation", [Recomputation.Off, Recomputation.Auto])
def test_streaming_memory_takes_the_stashes_alone(schedule, recomputation):
    chip, off = (trained(schedule=schedule, recomputation=recomputation, off_chip=is_off)
                 .memory_report()["ipus"] for is_off in (False, True))
    for before, after in zip(chip, off):
        moved = before["stashes"] - after["stashes"]
        assert chip_bytes(before) - chip_bytes(after) == moved
        assert before["streaming"] == 0
    assert sum(row["streaming"] for row in off) > 0


# The order of ops asked a task for its part of the step, which "both" is not.
def test_a_task_of_both_parts_with_one_result():
    strategy = poptorch.ShardedExecution(poptorch.Stage("A").ipu(0), poptorch.Stage("B").ipu(1))
    rows, _ = ipus_of(Net(["linear", "linear", "dropout"], ["A", "A", "B"]), strategy)
    assert [row["parameters"] for row in rows] == [160, 0]


@budget(6)
@given(programs())
def test_schedules(program):
    """Interleaved needs no more than grouped, sequential no more than interleaved."""
    layers, blocks, strategy, _, kind, is_off_chip = program
    assume(kind == "pipelined")
    before = None
    for schedule in (PipelineSchedule.Grouped, PipelineSchedule.Interleaved,
                     PipelineSchedule.Sequential):
        rows, model = ipus_of(Net(layers, blocks), strategy, schedule, is_off_chip=is_off_chip,
                              recomputation=Recomputation.Off)
        if "cyclic=true" in model.ir("place"):
            return
        if before is not None:
            for row, most in zip(rows, before):
                assert chip_bytes(row) <= chip_bytes(most)
                assert row["streaming"] <= most["streaming"]
        before = rows


@budget(6)
@given(programs())
def test_stashes_of_models(program):
    """Each holds its depth of micro-batches; states and accumulators are the model's."""
    layers, blocks, strategy, _, kind, is_off_chip = program
    net = Net(layers, blocks)
    rows, model = ipus_of(net, strategy, is_off_chip=is_off_chip)
    stashes = [0] * len(rows)
    text = model.ir("place")
    for name, operand, size, depth, ipu in STASH.findall(text):
        if not re.search(rf"%{re.escape(operand)} = remote_store ", text):
            stashes[int(ipu)] += int(size) * int(depth)
    assert [row["stashes"] for row in rows] == stashes
    if kind in ("pipelined", "sharded"):
        assert sum(row["parameters"] for row in rows) == model.memory_report()["parameters"]


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_sharded_optimizer_states(replicas):
    net = Dense()
    options = quiet_options(Training__gradientAccumulation=2, replicationFactor=replicas,
                            broadcastBuffers=False)
    options.TensorLocations.setOptimizerLocation(
        poptorch.TensorLocationSettings().useReplicatedTensorSharding(True)
        .minElementsForReplicatedTensorSharding(2))
    model = poptorch.trainingModel(net, options, torch.optim.Adam(net.parameters()))
    model.compile(torch.zeros(4 * replicas, 64))
    weights = 4 * sum(one.numel() for one in net.parameters())
    assert model.memory_report()["ipus"][0]["optimizer"] == 2 * weights / replicas + 4


def test_offloaded_optimizer_states():
    rows = []
    for is_off_chip in (False, True):
        net = Dense()
        options = quiet_options(Training__gradientAccumulation=2)
        options.TensorLocations.setOptimizerLocation(
            poptorch.TensorLocationSettings().minElementsForOffChip(0)
            .useOnChipStorage(not is_off_chip))
        model = poptorch.trainingModel(net, options, torch.optim.Adam(net.parameters()))
        model.compile(torch.zeros(4, 64))
        rows += model.memory_report()["ipus"]
    assert rows[0]["optimizer"] == rows[1]["streaming"] + rows[1]["optimizer"]
    assert rows[1]["optimizer"] < 0.01 * rows[0]["optimizer"]
