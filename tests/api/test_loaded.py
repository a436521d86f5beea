"""A model from a file reports the same about itself as the one that was saved."""

import contextlib
import io
import json
import zipfile

import pytest
import torch

import poptorch
from tests.helpers import quiet_options as options

STEPS = ("translate", "rewrite", "place", "lower", "schedule", "plan")


class Net(torch.nn.Module):
    """Two blocks on two IPUs, dropout, and a loss."""

    def __init__(self):
        super().__init__()
        self.first = poptorch.BeginBlock(torch.nn.Linear(4, 6), "wide", ipu_id=0)
        self.second = poptorch.BeginBlock(torch.nn.Linear(6, 2), "narrow", ipu_id=1)

    def forward(self, x):
        y = self.second(torch.nn.functional.dropout(self.first(x), training=self.training))
        return y, poptorch.identity_loss(y, "sum")


def settings(**more):
    opts = options(deviceIterations=3, setExecutionStrategy=poptorch.ShardedExecution(), **more)
    opts.anchorTensor("hidden", "first/addmm")
    opts.anchorTensor("weight", "UpdatedVar___second.weight")
    return opts


def wrapped(net, **more):
    return poptorch.trainingModel(net, settings(**more),
                                  torch.optim.SGD(net.parameters(), lr=0.1))


def through_load(model, folder, **_):
    return poptorch.load(model.save(folder / "net.poptorch"))


def through_load_executable(model, folder, **more):
    again = wrapped(Net(), **more)
    again.model.load_state_dict(model.state_dict())
    again.loadExecutable(model.save(folder / "net.poptorch", export_model=False))
    return again


def saved_twice(model, folder, **_):
    again = poptorch.load(model.save(folder / "first.poptorch"))
    return poptorch.load(again.save(folder / "second.poptorch"))


WAYS = [through_load, through_load_executable, saved_twice]


def both(way, folder, **more):
    model = wrapped(Net(), **more)
    model(torch.randn(6, 4))
    return model, way(model, folder, **more)


def printed(model):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        print(model.partition_summary())
    return text.getvalue()


@pytest.mark.parametrize("way", WAYS)
def test_reports_are_those_of_the_model_that_was_saved(way, tmp_path):
    model, again = both(way, tmp_path)
    assert {step: again.ir(step) for step in STEPS} == {step: model.ir(step) for step in STEPS}
    assert printed(again) == printed(model) and "narrow" in printed(again)
    assert again.memory_report() == model.memory_report()
    assert again.op_report() == model.op_report()
    assert again.work_report() == model.work_report()
    assert again.getTensorNames() == model.getTensorNames()
    assert json.loads(again._debugGetPopartIR()) == json.loads(model._debugGetPopartIR())
    with pytest.raises(poptorch.Error, match='no IR text of step "assemble".*translate, rewrite'):
        again.ir("assemble")


@pytest.mark.parametrize("way", WAYS)
def test_runs_tell_the_same(way, tmp_path):
    model, again = both(way, tmp_path)
    with pytest.raises(poptorch.Error, match="has not run"):
        again.getLatency()
    assert again.compilationTime > 0 and again.isAttachedToDevice()
    x = torch.randn(6, 4)
    assert all(torch.equal(a, b) for a, b in zip(model(x), again(x)))
    for name in ("hidden", "weight"):
        assert torch.equal(again.getAnchoredTensor(name), model.getAnchoredTensor(name))
    ours, theirs = ({event: [len(steps) for steps in times] for event, times
                     in one.getPerfCounters().items()} for one in (model, again))
    assert ours == theirs and ours["input"] == [3]
    least, most, mean = again.getLatency()
    assert 0 < least <= mean <= most
    for latency in (again.getComputeLatency, again.getHostIpuLatency, again.getIpuHostLatency):
        assert 0 <= latency()[0] <= latency()[1] <= most
    assert again.rng_state == model.rng_state


@pytest.mark.parametrize("way", WAYS)
def test_hooks_run_when_something_is_compiled(way, tmp_path):
    """Loading compiles nothing; after destroy() the model is compiled again, like any other."""
    calls = []
    model = wrapped(Net())
    model(torch.randn(6, 4))
    hooks = [poptorch.registerPreCompileHook(lambda: calls.append("before")),
             poptorch.registerPostCompileHook(lambda: calls.append("after"))]
    try:
        again = way(model, tmp_path)
        again(torch.randn(6, 4))
        assert calls == []
        again.destroy()
        again(torch.randn(6, 4))
        assert calls == ["before", "after"]
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize("way", [through_load, through_load_executable])
def test_a_profile_report_is_written(way, tmp_path):
    folder = tmp_path / "reports"
    model, again = both(way, tmp_path, enableProfiling=folder, modelName="net")
    wanted = {path.name: path.read_text() for path in (folder / "net").glob("*.ir")}
    others = {path.name for path in folder.iterdir()}
    again = way(model, tmp_path, enableProfiling=folder, modelName="net")
    again(torch.randn(6, 4))
    again.destroy()
    own, = {path.name for path in folder.iterdir()} - others
    assert {path.name: path.read_text() for path in (folder / own).glob("*.ir")} == wanted
    report = json.loads((folder / own / "report.json").read_text())
    assert report["memory_bytes"] == model.memory_report() and report["step_times_ns"] == {}
    assert report["work"] == model.work_report()
    assert "iteration 2" in (folder / own / "trace.json").read_text()


def test_the_file_holds_every_step(tmp_path):
    model = wrapped(Net())
    model.compile(torch.randn(6, 4))
    with zipfile.ZipFile(model.save(tmp_path / "net.poptorch")) as archive:
        assert {step: archive.read(f"{step}.ir").decode() for step in STEPS} == \
            {step: model.ir(step) for step in STEPS}
        rows = json.loads(archive.read("partition.json"))
    assert [(row["ipu"], row["blocks"]) for row in rows] == [(0, ["wide"]), (1, ["narrow"])]
