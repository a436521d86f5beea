"""``PoplarExecutor.report``: what it says of a program, files, pages and differences."""

import json

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options


class Net(nn.Module):
    """Two layers, on one IPU each if ``is_cut``."""

    def __init__(self, width=32, is_cut=True):
        super().__init__()
        self.first, self.second = nn.Linear(16, width), nn.Linear(width, 4)
        self.is_cut = is_cut

    def forward(self, x, target=None):
        y = torch.relu(self.first(x))
        with poptorch.Block(ipu_id=int(self.is_cut)):
            y = self.second(y)
        return y if target is None else (y, nn.functional.mse_loss(y, target))


def inference(net, options=None, samples=8):
    model = poptorch.inferenceModel(net, options or quiet_options())
    model.compile(torch.ones(samples, 16))
    return model


def training(accumulation=4, iterations=3, replicas=1, net=None):
    net = net or Net()
    options = quiet_options(deviceIterations=iterations, replicationFactor=replicas)
    options.Training.gradientAccumulation(accumulation)
    model = poptorch.trainingModel(net, options, torch.optim.Adam(net.parameters()))
    samples = 2 * accumulation * iterations * replicas
    model.compile(torch.ones(samples, 16), torch.ones(samples, 4))
    return model


def test_a_report_of_a_pipeline():
    report = training().report()
    assert report.fits and report.target == "gc200" and report.title == "Net, training"
    assert report.options["gradient_accumulation"] == "4"
    assert "device_iterations" in report.options and "output_mode" not in report.options
    memory = report.tile_memory
    assert [ipu.ipu for ipu in memory.ipus] == [0, 1] and memory.limit == 638976
    for ipu in memory.ipus:
        assert max(ipu.by_tile) == ipu.peak_without_gaps <= ipu.peak <= memory.peak
        assert {step.id for step in ipu.steps} <= {row.id for row in report.ops}
    assert memory.by_tile == memory.fullest.by_tile
    assert memory.fullest.peak == memory.peak and f"peak {memory.peak}" in repr(memory)
    for name, count in report.memory.items():
        assert count == sum(ipu.categories[name] for ipu in memory.ipus)
    layers = [row for row in report.ops if row.op == "addmm" and row.part == "forward"]
    assert [row.module for row in layers] == ["first", "second"]
    assert [row.runs for row in layers] == [4, 4] and [row.ipu for row in layers] == [0, 1]
    assert all("test_report.py:" in row.location and row.module in row.place for row in layers)


def test_time_of_a_step():
    """Of all device iterations; transfers from and to the host stand beside it."""
    for accumulation, iterations in ((1, 1), (1, 3), (4, 1), (4, 3)):
        is_cut = accumulation > 1
        report = training(accumulation, iterations, net=Net(is_cut=is_cut)).report()
        line = report.timeline
        assert line.units == "cycles" and line.ipus == [0, 1][:1 + is_cut]
        streams = report.host["stream_seconds"] * 1.325e9
        assert report.cycles + streams == pytest.approx(iterations * line.span)
        assert streams > 0 and report.host["call_seconds"] == pytest.approx(0.5e-3)
        assert report.seconds == pytest.approx(report.cycles / 1.325e9)
        assert report.throughput == pytest.approx(2 * accumulation * iterations / report.seconds)
        low, high = report.interval
        assert low < report.cycles < high
    one, two = (inference(Net(), quiet_options(deviceIterations=count), 2 * count).report()
                for count in (2, 8))
    assert one.cycles < two.cycles < 4 * one.cycles  # a pipeline


def test_replicas_add_samples():
    one, two = (training(replicas=replicas).report() for replicas in (1, 2))
    assert two.throughput > one.throughput
    assert {row.replica for row in two.timeline.rows} == {0, 1}
    assert two.cycles > one.cycles  # they sum gradients


def test_what_does_not_fit():
    wide = nn.Linear(2000, 2000, bias=False)  # 16 MB
    target = {"name": "mine", "base": "gc200", "tile_bytes": 8192, "interleaved_start": 4096}
    model = poptorch.inferenceModel(wide, quiet_options(target=target))
    model.compile(torch.ones(1, 2000))
    report = model.report()
    assert not report.fits and report.tile_memory.peak > report.tile_memory.limit
    assert "fits: no" in repr(report)


def test_streaming_memory_is_limited():
    target = {"name": "mine", "base": "gc200", "streaming_bytes": 100}
    net = nn.Linear(64, 64)
    reports = []
    for room in (100, 1 << 20):
        options = quiet_options(target=target | {"streaming_bytes": room})
        options.TensorLocations.setOptimizerLocation(
            poptorch.TensorLocationSettings().useOnChipStorage(False))

        class Loss(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = net

            def forward(self, x):
                return poptorch.identity_loss(self.net(x), "sum")

        model = poptorch.trainingModel(Loss(), options, torch.optim.Adam(net.parameters()))
        model.compile(torch.ones(2, 64))
        reports.append(model.report())
        model.destroy()
    assert [report.fits for report in reports] == [False, True]
    assert reports[0].target == "mine" and reports[0].memory["streaming"] > 100


def test_ops_without_a_rule():
    class Sorted(nn.Module):
        def forward(self, x):
            return torch.linalg.eigvalsh(x)

    model = poptorch.inferenceModel(Sorted(), quiet_options())
    model.compile(torch.eye(4))
    report = model.report()
    assert [row.op for row in report.opaque_ops] == ["aten"]
    assert "operations without a rule, whose costs are bounds: aten" in repr(report)


def test_text():
    text = repr(training().report())
    lines = text.splitlines()
    assert lines[0] == "Net, training on 2 IPUs (gc200)"
    assert lines[1].startswith("fits: yes; the fullest tile has ")
    assert "addmm" in text and "second (" in text and "gradient_accumulation=4" in text
    assert training().report()._repr_html_().startswith("<pre>Net, training")


def test_cycle_count():
    model = inference(Net(is_cut=False))
    with pytest.raises(poptorch.Error, match=r"\[cycleCount\] the model has not run"):
        model.cycleCount()
    model(torch.ones(8, 16))
    assert model.cycleCount() == round(model.report().cycles) > 0
    assert isinstance(model.cycleCount(), int)
    model.destroy()
    with pytest.raises(poptorch.Error, match=r"\[cycleCount\] Model has not been compiled"):
        model.cycleCount()


def test_files(tmp_path):
    report = training().report()
    path = tmp_path / "report.json"
    report.to_json(path)
    again = poptorch.DeviceReport.from_json(path)
    assert repr(again) == repr(report) and again.diff(report) == "no differences"
    assert again.ops == report.ops and again.timeline.rows == report.timeline.rows
    assert again.interval == report.interval
    line = json.loads(path.read_text())["timeline"]
    assert line["units"] == "cycles" and line["replicas"] == 1
    assert len(line["rows"]) == len(report.timeline.rows)


def test_files_have_the_track_of_io_tiles(tmp_path):
    class Overlapped(nn.Module):
        def forward(self, x):
            x = poptorch.set_overlap_for_input(x, poptorch.OverlapMode.OverlapAccumulationLoop)
            return torch.relu(x)

    options = quiet_options(deviceIterations=2)
    options.TensorLocations.numIOTiles(32)
    report = inference(Overlapped(), options).report()
    report.to_json(tmp_path / "report.json")
    rows = json.loads((tmp_path / "report.json").read_text())["timeline"]["rows"]
    assert [row[-1] for row in rows] == [row.track for row in report.timeline.rows]
    assert {row[-1] for row in rows} == {"compute", "io"}


@pytest.mark.parametrize("text, words", [
    ("{", "is not a JSON file"), ("[]", "has format None, this version of poptorch reads 1"),
    ('{"format": 7}', "has format 7, this version of poptorch reads 1")])
def test_other_files(text, words, tmp_path):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(poptorch.Error, match=rf"\[DeviceReport\] .*report.json {words}"):
        poptorch.DeviceReport.from_json(path)


def test_pages(tmp_path):
    report = inference(Net(is_cut=False)).report()
    report.to_html(tmp_path / "one.html")
    report.to_html(tmp_path / "two.html", other=training().report())
    one, two = ((tmp_path / f"{name}.html").read_text() for name in ("one", "two"))
    assert "<title>Net, inference</title>" in one
    assert "<title>Net, inference and Net, training</title>" in two


def test_differences():
    small, large = (training(net=Net(width)).report() for width in (32, 512))
    lines = large.diff(small).splitlines()
    names = [line.partition(":")[0] for line in lines]
    assert {"cycles", "seconds", "throughput", "fullest tile", "memory parameters"} <= set(names)
    assert f"memory parameters: {(17 * 32 + 33 * 4) * 4 / 1024:.1f} KiB -> " in large.diff(small)
    assert any(name.startswith("addmm in first (") for name in names)
    assert len(lines) < 60
    assert small.diff(small) == "no differences"
    other = training(accumulation=5).report().diff(small)
    assert "option gradient_accumulation: 4 -> 5" in other


def test_a_report_is_made_once():
    model = inference(Net(is_cut=False))
    assert model.report() is model.report()
    model.destroy()
    with pytest.raises(poptorch.Error, match=r"\[report\] Model has not been compiled"):
        model.report()
