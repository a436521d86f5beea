"""Schedules and timelines of compiled models."""

import pytest
import torch
from torch import nn

import poptorch
from poptorch import PipelineSchedule, testing
from tests.helpers import quiet_options


class Layers(nn.Module):
    """Layers of some widths in a row, each a block with its number."""

    def __init__(self, *widths):
        super().__init__()
        pairs = zip(widths, widths[1:])
        self.layers = nn.ModuleList(nn.Linear(first, second) for first, second in pairs)

    def forward(self, x, target=None):
        last = len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            with poptorch.Block(str(number)):
                x = torch.tanh(layer(x))
                if target is not None and number == last:
                    return x, nn.functional.mse_loss(x, target)
        return x


def pipelined(stages, schedule=PipelineSchedule.Grouped):
    return poptorch.PipelinedExecution(*stages).schedule(schedule)


def compiled(net, strategy, count, training=True, **settings):
    """The executor and its arguments, ``count`` micro-batches of 2 samples."""
    options = quiet_options(**settings).setExecutionStrategy(strategy).autoRoundNumIPUs()
    options.Training.recomputation(poptorch.Recomputation.Off)
    samples = 2 * count * settings.get("replicationFactor", 1)
    first, last = net.layers[0].in_features, net.layers[-1].out_features
    data = torch.randn(samples, first), torch.randn(samples, last)
    if not training:
        options.deviceIterations(count)
        model = poptorch.inferenceModel(net, options)
        model.compile(data[0])
        return model, data[:1]
    options.Training.gradientAccumulation(count)
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, options, optimizer=optimizer)
    model.compile(*data)
    return model, data


FORWARD, BACK = [0, 1, 2], {
    PipelineSchedule.Grouped: [3, 4], PipelineSchedule.Interleaved: [2, 2],
    PipelineSchedule.Sequential: [0, 0], PipelineSchedule.FillDrain: [9, 10, 11]}
STASH = {PipelineSchedule.Grouped: [3, 5], PipelineSchedule.Interleaved: [2, 3],
         PipelineSchedule.Sequential: [1, 1], PipelineSchedule.FillDrain: [7, 7, 7]}


@pytest.mark.parametrize("schedule", PipelineSchedule)
def test_tasks_of_each_schedule(schedule):
    model, _ = compiled(Layers(4, 4, 4, 4), pipelined("012", schedule), 7)
    shown = model.schedule()
    assert shown.name == schedule.value and shown.micro_batches == 7
    forward = [task.offset for task in shown.tasks if task.part != "backward"]
    assert forward == ([0] * 3 if schedule is PipelineSchedule.Sequential else FORWARD)
    backward = [task for task in shown.tasks if task.part == "backward"]
    assert [task.offset for task in backward] == BACK[schedule]
    for task, depth in zip(backward, STASH[schedule]):
        name = task.name.removesuffix(".back")
        assert {edge.depth for edge in shown.edges
                if (edge.source, edge.target) == (name, task.name)} == {depth}
    # The output of a layer crosses, 2 x 4 floats, and its gradient comes back.
    copies = [edge for edge in shown.edges
              if edge.source.removesuffix(".back") != edge.target.removesuffix(".back")]
    assert [edge.bytes for edge in copies] == [32] * 4
    assert {edge.depth for edge in copies} == {1} and {edge.memory for edge in copies} == {"chip"}
    assert f'pipeline="{schedule.value}"' in model.ir("place")


@pytest.mark.parametrize("schedule", PipelineSchedule)
@pytest.mark.parametrize("training", [True, False])
def test_idle_share_of_each_schedule(schedule, training):
    model, _ = compiled(Layers(3, 5, 7, 2), pipelined("012", schedule), 5, training)
    with testing.stage_costs(dict.fromkeys(range(3), 1.0)):
        line = model.timeline()
    is_sequential = schedule is PipelineSchedule.Sequential
    assert line.idle_share() == (2 / 3 if is_sequential else 2 / 7)
    assert line.span == (15 if is_sequential else 7) * (1 + training)


def test_results_do_not_depend_on_the_schedule():
    net, results = Layers(4, 6, 6, 3), []
    state = {name: value.clone() for name, value in net.state_dict().items()}
    data = None
    for schedule in PipelineSchedule:
        net.load_state_dict(state)
        model, drawn = compiled(net, pipelined("012", schedule), 5)
        data = data or drawn
        results.append((*model(*data), *model.state_dict().values()))
        model.destroy()
    assert all(all(map(torch.equal, one, results[0])) for one in results)


def test_the_time_of_a_step_is_its_work():
    """On one IPU nothing waits."""
    for strategy, count, replicas in ((poptorch.PipelinedExecution(), 1, 1),
                                      (poptorch.PipelinedExecution(), 4, 2)):
        net = Layers(4, 4)
        model, _ = compiled(net, strategy, count, replicationFactor=replicas)
        line = model.timeline()
        busy = sum(row.end - row.begin for row in line.rows if row.replica == 0)
        assert line.units == "cycles" and line.idle_share() == 0
        assert line.span == pytest.approx(busy)
        assert [task.part for task in model.schedule().tasks] == ["forward", "backward"]
        reduces = {"all_reduce"} if replicas > 1 else set()
        assert {row.kind for row in line.rows} == {"compute", "host", "update"} | reduces
        assert {row.replica for row in line.rows} == set(range(replicas))


def test_work_is_shared_among_tasks():
    model, _ = compiled(Layers(4, 8, 8, 4), pipelined("012"), 5)
    shown = model.schedule()
    flops = 5 * sum(task.flops for task in shown.tasks) + sum(step.flops for step in shown.steps)
    assert flops == model.work_report()["total"]["flops"]
    assert {step.ipu for step in shown.steps} == {0, 1, 2}


def test_strategies_differ_in_their_timelines():
    sharded, _ = compiled(Layers(4, 4, 4), poptorch.ShardedExecution("0", "1"), 3)
    grouped, _ = compiled(Layers(4, 4, 4), pipelined("01"), 3)
    assert sharded.ir("place") != grouped.ir("place")
    assert sharded.schedule().name == "sequential" and grouped.schedule().name == "grouped"
    with testing.stage_costs({0: 1.0, 1: 1.0}):
        assert sharded.timeline().idle_share() == 0.5
        assert grouped.timeline().idle_share() == 0.25


def test_phases_run_one_after_the_other():
    strategy = poptorch.ParallelPhasedExecution(["0"], ["1"])
    model, _ = compiled(Layers(4, 4, 4), strategy, 2)
    rows = [row for row in model.timeline().rows if row.kind == "compute"]
    rows.sort(key=lambda row: row.begin)
    assert all(one.end <= then.begin for one, then in zip(rows, rows[1:]))
    assert {task.phase for task in model.schedule().tasks} == {0, 1, 2}


@pytest.mark.parametrize("liveness", [poptorch.Liveness.AlwaysLive,
                                      poptorch.Liveness.OffChipAfterFwdNoOverlap])
def test_phases_have_their_own_stashes(liveness):
    strategy = poptorch.SerialPhasedExecution(["0"], ["1"], ["2"]).setTensorsLiveness(liveness)
    model, _ = compiled(Layers(4, 8, 16, 4), strategy, 2)
    rows = model.partition_summary().rows
    held = sum(edge.bytes * edge.depth for edge in model.schedule().edges
               if edge.memory == "chip" and not edge.source.endswith(".back"))
    assert sum(row["stash_bytes"] for row in rows) == held > 0


def test_stages_of_a_phase_run_at_the_same_time():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, y):
            with poptorch.Block("a"):
                x = self.first(x)
            with poptorch.Block("b"):
                return x, self.second(y)

    strategy = poptorch.SerialPhasedExecution(
        poptorch.Phase(poptorch.Stage("a"), poptorch.Stage("b")))
    model = poptorch.inferenceModel(Two(), quiet_options().setExecutionStrategy(strategy))
    model.compile(torch.ones(2, 4), torch.ones(2, 4))
    with testing.stage_costs({0: 1.0, 1: 1.0}):
        begins = [row.begin for row in model.timeline().rows if row.kind == "compute"]
    assert begins == [0, 0]


def test_an_activation_off_the_chip_leaves_it_by_its_stash():
    plain, _ = compiled(Layers(4, 4, 4), pipelined("01"), 3)
    options = quiet_options().setExecutionStrategy(pipelined("01"))
    options.Training.gradientAccumulation(3)
    options.Training.recomputation(poptorch.Recomputation.Off)
    options.TensorLocations.setActivationLocation(
        poptorch.TensorLocationSettings().useOnChipStorage(False))
    net = Layers(4, 4, 4)
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1)
    moved = poptorch.trainingModel(net, options, optimizer=optimizer)
    moved.compile(torch.randn(6, 4), torch.randn(6, 4))
    before, after = plain.schedule(), moved.schedule()
    streaming = [edge for edge in after.edges if edge.memory == "streaming"
                 and edge.target == "micro.s0.back"]
    assert streaming and all(edge.depth == 3 for edge in streaming)
    held = sum(edge.bytes * edge.depth for edge in streaming)
    assert after.stash_bytes(0) == before.stash_bytes(0) - held == 0


def test_a_file_has_the_schedule(tmp_path):
    model, data = compiled(Layers(4, 4, 4), pipelined("01", PipelineSchedule.Interleaved), 3)
    model.save(tmp_path / "model.poptorch")
    again = poptorch.load(str(tmp_path / "model.poptorch"))
    assert repr(again.schedule()) == repr(model.schedule())
    assert again.timeline().rows == model.timeline().rows
    assert repr(again.partition_summary()) == repr(model.partition_summary())
    assert again.options._execution_strategy == model.options._execution_strategy


# -- advice ------------------------------------------------------------------------------------


def span(stages):
    model, _ = compiled(Layers(32, 32, 32, 32, 32), pipelined(
        [poptorch.Stage(*blocks) for blocks in stages]), 8)
    return model.timeline().span, model.partition_summary()


def test_advice_is_right():
    """A block of the slow stage moves to the next one, and the step is shorter by what was said."""
    before, summary = span(["012", "3"])
    assert summary.advice == str(summary).splitlines()[-1] and "<p>Moving" in summary._repr_html_()
    words = summary.advice.split()
    assert words[:6] == ["Moving", "block", '"2"', "to", "stage", "1"]
    gain = float(words[-1].removesuffix("%.")) / 100
    after, better = span(["01", "23"])
    assert gain > 0.15 and 1 - after / before == pytest.approx(gain, abs=0.02)
    assert better.advice is None


def test_advice_names_the_first_block_for_the_stage_before():
    _, summary = span(["0", "123"])
    assert summary.advice.startswith('Moving block "1" to stage 0 (IPU 0) would shorten a step by')


def test_no_advice_for_stages_in_turn():
    model, _ = compiled(Layers(32, 32, 32, 32),
                        poptorch.ShardedExecution(poptorch.Stage("0", "1"), "2"), 3)
    assert model.partition_summary().advice is None


def test_the_summary_has_work_stashes_and_waiting():
    model, _ = compiled(Layers(4, 8, 4), pipelined("01"), 3)
    rows = model.partition_summary().rows
    assert sum(row["flops"] for row in rows) == sum(task.flops for task in model.schedule().tasks)
    assert rows[0]["stash_bytes"] == model.schedule().stash_bytes(0) > 0 == rows[1]["stash_bytes"]
    assert [row["idle_share"] for row in rows] == [model.timeline().idle_share(ipu)
                                                   for ipu in (0, 1)]
