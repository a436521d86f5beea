"""Effects of options on what people read: places and paths in the IR, logs, progress, reports."""

import json
import re
import sys
import textwrap

import pytest
import torch

import poptorch
from tests.api.options.effects import Scale, ir
from tests.helpers import quiet_options as quiet
from tests.helpers import run_python


class Net(torch.nn.Module):
    """One layer with a name."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x)


X = torch.ones(1, 2)


def place(options):
    """The comment behind the first op of the layer."""
    found = re.search(r"// (\S+:\d+ fc)$", ir(options, Net(), X), flags=re.MULTILINE)
    return found[1]


def test_places_are_the_users():
    assert "test_effects_reports.py:" in place(quiet())


def test_location_excludes():
    # Frames of torch count when nothing excludes them.
    assert "modules/linear.py:" in place(quiet(sourceLocationExcludes=([],)))
    inner = place(quiet(sourceLocationExcludes=(["nn/modules/", "nn/functional"],)))
    assert "test_effects_reports.py:" in inner
    options = quiet(sourceLocationExcludes=([],)).appendToLocationExcludes("nn/modules/linear")
    assert "modules/module.py:" in place(options)
    hidden = quiet().appendToLocationExcludes("test_effects_reports", "effects.py")
    assert "test_effects_reports.py" not in ir(hidden, Net(), X)


def test_backward_ops_keep_the_place_of_forward():
    model = poptorch.trainingModel(Scale(), quiet(sourceLocationExcludes=([],)))
    model.compile(torch.ones(1, 2))
    assert "torch/autograd" not in model.ir("translate")


def test_module_namescope():
    assert " fc\n" in ir(quiet(), Net(), X)
    assert " fc\n" not in ir(quiet().disableModuleNamescope(), Net(), X)


def test_progress_bar_and_model_name(capsys):
    def shown():
        return poptorch.Options().showCompilationProgressBar()

    poptorch.inferenceModel(Net(), shown().modelName("encoder"))(X)
    assert "compile encoder" in capsys.readouterr().err
    poptorch.inferenceModel(Net(), shown())(X)
    assert "compile inference" in capsys.readouterr().err
    poptorch.trainingModel(Scale(), quiet())(torch.ones(1, 2))
    assert capsys.readouterr().err == ""


def test_progress_bar_of_a_terminal(capsys, monkeypatch):
    poptorch.inferenceModel(Net(), poptorch.Options())(X)
    assert capsys.readouterr().err == "", "no terminal"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    poptorch.inferenceModel(Net(), quiet())(X)
    assert capsys.readouterr().err == "", "forbidden"
    poptorch.inferenceModel(Net(), poptorch.Options())(X)
    assert "compile inference" in capsys.readouterr().err


@pytest.mark.sampled
def test_progress_bar_of_a_notebook():
    """One output, which tqdm's class for notebooks redraws and closes."""
    run_python(textwrap.dedent("""
        import tqdm.autonotebook, tqdm.std
        class Bar(tqdm.std.tqdm):
            made = []
            def __init__(self, *args, **settings):
                super().__init__(*args, **settings)
                Bar.made.append(self)
        tqdm.autonotebook.tqdm = Bar
        import poptorch, torch
        poptorch.inferenceModel(torch.nn.ReLU(), poptorch.Options())(torch.ones(2))
        (bar,) = Bar.made
        assert bar.n == bar.total == 8 and bar.disable and not bar.leave
        """))


def test_the_trace_is_there_from_the_compilation_on(tmp_path):
    model = poptorch.inferenceModel(Net(), quiet(enableProfiling=tmp_path, modelName="net"))

    def names():
        trace = json.loads((tmp_path / "net" / "trace.json").read_text())["traceEvents"]
        return [event["name"] for event in trace]

    model.compile(X)
    assert names()[0] == "capture" and "run" not in names()
    model(X)
    model.detachFromDevice()
    assert names().count("run") == 1


def test_log_dir(tmp_path, monkeypatch):
    monkeypatch.setattr("poptorch._base.logging._files", {})
    handlers = list(poptorch.logger.handlers)
    folder = tmp_path / "logs" / "run"
    poptorch.inferenceModel(Net(), quiet(logDir=folder))
    try:
        poptorch.logger.warning("a line of %s", "this test")
        poptorch.inferenceModel(Net(), quiet(logDir=folder))  # opens no second file
        poptorch.inferenceModel(Net(), quiet())
        poptorch.logger.warning("another line")
    finally:
        for handler in set(poptorch.logger.handlers) - set(handlers):
            handler.close()
            poptorch.logger.removeHandler(handler)
    text = (folder / "poptorch.log").read_text()
    assert text.count("[WARNING] a line of this test") == text.count("another line") == 1


@pytest.mark.parametrize(("limit", "shown"), [(None, 7), (4, 4), (1, 1)])
def test_max_repeat_logs(limit, shown, capsys):
    poptorch.inferenceModel(Net(), quiet(maxRepeatLogs=limit))
    for number in range(7):
        poptorch.logger.warning("line %s", "again")
        poptorch.logger.warning("line %d", number)
    err = capsys.readouterr().err
    assert err.count("line again") == shown and err.count("line 6") == 1
    assert err.count("no longer shown, see maxRepeatLogs") == (limit == 4)


def test_profile_report(tmp_path):
    options = quiet(enableProfiling=tmp_path, modelName="net")
    model = poptorch.inferenceModel(Net(), options)
    model(X)
    model.destroy()
    folder = tmp_path / "net"
    assert "%" in (folder / "plan.ir").read_text()
    report = json.loads((folder / "report.json").read_text())
    assert report["memory_bytes"] and report["ops"] and report["step_times_ns"]["place"] > 0
    assert report["options"]["model_name"] == "net"
    assert report["host"]["form"] == "inline" and report["host"]["reason"]
    device = poptorch.DeviceReport.from_json(folder / "device_report.json")
    assert device.title == "Net, net" and device.options["model_name"] == "'net'"
    assert "<title>Net, net</title>" in (folder / "device_report.html").read_text()
    trace = json.loads((folder / "trace.json").read_text())["traceEvents"]
    names = [event["name"] for event in trace]
    assert names == ["capture", "translate", "rewrite", "place", "lower", "schedule", "plan",
                     "assemble", "run", "iteration 0"]


@pytest.mark.parametrize("is_on", [True, False])
def test_cycles_of_each_run_are_logged(is_on, capsys):
    model = poptorch.inferenceModel(Net(), quiet(logCycleCount=is_on))
    poptorch.setLogLevel("DEBUG")
    try:
        model(X), model(X)
    finally:
        poptorch.setLogLevel("WARN")
    line = f"[DEBUG] Total number of IPU cycles: {model.cycleCount()}"
    assert capsys.readouterr().err.count(line) == 2 * is_on


def test_profile_reports_of_several_models(tmp_path):
    options = quiet(enableProfiling=tmp_path)
    models = [poptorch.inferenceModel(torch.nn.Linear(3, size), options) for size in (2, 4, 5)]
    for model in models:
        model(torch.ones(2, 3))
        model.destroy()
    models[1](torch.ones(2, 3))  # has its folder still
    models[1].destroy()
    assert {path.name for path in tmp_path.iterdir()} == {
        "inference", "inference.2", "inference.3"}
    for name, size in (("inference", 2), ("inference.2", 4), ("inference.3", 5)):
        assert f"[2,{size}]" in (tmp_path / name / "plan.ir").read_text()
        trace = json.loads((tmp_path / name / "trace.json").read_text())["traceEvents"]
        assert [event["name"] for event in trace].count("run") == (2 if size == 4 else 1)


def test_engine_options_beat_the_profile_folder(tmp_path, monkeypatch):
    settings = {"autoReport.directory": str(tmp_path / "there"), "autoReport.all": "true"}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(settings))
    for options in (quiet(enableProfiling=tmp_path / "here", modelName="a"), quiet(modelName="b")):
        poptorch.inferenceModel(Net(), options)(X)
    assert {p.parent.name for p in (tmp_path / "there").glob("*/report.json")} == {"a", "b"}
    assert not (tmp_path / "here").exists()
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", "{")
    with pytest.raises(ValueError, match="POPLAR_ENGINE_OPTIONS. is no JSON"):
        poptorch.inferenceModel(Net(), quiet())


@pytest.mark.parametrize("relax", [False, True])
def test_unexpected_optimizer_attributes(relax, capsys):
    net = Scale()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.mine, optimizer.param_groups[0]["mine"] = 1, 2  # present from the start
    options = quiet(maxRepeatLogs=None)
    if relax:
        options.relaxOptimizerAttributesChecks()
    model = poptorch.trainingModel(net, options, optimizer)
    optimizer.other, optimizer.param_groups[0]["more"] = 1, 2
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(2):
        model.setOptimizer(optimizer)
    err = capsys.readouterr().err
    assert err.count("Ignoring unexpected optimizer attribute: other.") == (not relax)
    assert err.count("Ignoring unexpected group 0 attribute: more.") == (not relax)
    assert err.count("Ignoring") == 2 * (not relax)


def test_attributes_of_another_class_are_expected(capsys):
    net = Scale()
    model = poptorch.trainingModel(net, quiet(maxRepeatLogs=None),
                                   torch.optim.SGD(net.parameters(), lr=0.1))
    for optimizer in (poptorch.optim.SGD(net.parameters(), lr=0.1),
                      torch.optim.SGD(net.named_parameters(), lr=0.1),
                      torch.optim.Adam(net.parameters())):
        model.setOptimizer(optimizer)
    assert "Ignoring" not in capsys.readouterr().err
    optimizer.mine = optimizer.param_groups[0]["more"] = 1
    model.setOptimizer(optimizer)
    err = capsys.readouterr().err
    assert "optimizer attribute: mine." in err and "group 0 attribute: more." in err
