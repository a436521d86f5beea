"""The tables in benchmarks/results/."""

import re

import pytest

from benchmarks import parts, report
from benchmarks.table import Store
from tests.helpers import ROOT

MACHINE = "a machine, 2 cores"
ORIGIN = {"machine": MACHINE, "version": "0.1"}


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "figures.json")
    case = {"workload": "net", "mode": "train"}
    floor = {"totals": {"calls": 3, "flops": 2e9, "bytes": 1e6}}
    store.add(
        "speed",
        [
            case | {"backend": "eager", "ms": 40.0, "of_ours": 2.0},
            case | {"backend": "poptorch", "ms": 20.0, "of_ours": 1.0, "clean": "5/6"},
            case | {"backend": "floor", "ms": 16.0, "floor": floor, "of_ours": 0.8},
        ],
        ORIGIN,
        parts.find("speed").keys,
    )
    store.add("machine", [{"workload": "2", "gflops": 300.0, "copy": 25.0}], ORIGIN)
    store.add(
        "profile",
        [
            case | {"op": "addmm", "phase": "forward", "ms": 19.0, "share": 0.95, "mb": 100.0},
            case | {"op": "relu", "phase": "forward", "ms": 0.1, "share": 0.005, "mb": 25.0},
        ],
        ORIGIN,
    )
    store.add(
        "switches",
        [
            case | {"switch": "cse", "worth": 0.001},
            case | {"switch": "fold", "worth": 0.25},
            case | {"switch": "inplace", "worth": 0.001, "worth_mb": 9.2},
        ],
        ORIGIN,
        parts.find("switches").keys,
    )
    return store


def test_roofline(store):
    row = report.roofline(store, MACHINE).splitlines()[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["net", "train", "2.00", "125", "16.00", "5.00", "20.00", "1.25", "100"]


def test_peers(store):
    text = report.compared(store, MACHINE)
    assert "| net | 20.000 | 5/6 | 2.00 |" in text
    assert "Training" in text and "Inference" not in text
    assert "train: 2.00 times as fast as eager" in text


def test_small_ops_and_worthless_switches(store):
    assert "addmm" in report.profiles(store, MACHINE)
    assert "relu" not in report.profiles(store, MACHINE)
    assert report.worth(store, MACHINE).splitlines()[2:] == [
        "| `fold` | net train +25.0% |",
        "| `inplace` | net train +9 MiB |",
        "| `cse` | within the noise on net train |",
    ]


def test_tables_without_measurements_are_not_written(store, tmp_path):
    (tmp_path / "memory.md").write_text("old")
    assert report.write(store, tmp_path) == tmp_path
    assert (tmp_path / "memory.md").read_text() == "old"
    assert not (tmp_path / "half.md").exists()
    text = (tmp_path / "machine.md").read_text()
    assert text.startswith("# Peak rates of the machine\n") and "| 2 | 300 | 25.0 |" in text


def test_each_machine_has_its_table(store):
    row = {"workload": "2", "gflops": 90.0, "copy": 9.0}
    store.add("machine", [row], {"machine": "another", "version": "0.2"})
    text = report.page("machine", store)
    assert text.index("On another; poptorch 0.2:") < text.index("| 2 | 90 | 9.0 |")
    assert text.index("| 2 | 90 | 9.0 |") < text.index(f"On {MACHINE}; poptorch 0.1:")
    assert text.index(f"On {MACHINE}") < text.index("| 2 | 300 | 25.0 |")


def test_bars(store):
    text = report.summary(store, MACHINE)
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines()}
    assert ">= 1.7 | 2.00 (mean of 1, worst net 2.00) | yes" in lines[
        "training: times as fast as eager"]
    assert "| not measured | - |" in lines["16-bit over float32"]
    best = lines["training: none slower than the best peer"]
    assert "2.00 (worst of 1: net compared with eager) | yes" in best
    case = {"workload": "net", "mode": "train"}
    store.add("threads", [case | {"gain": 1.8}, {"workload": "b", "mode": "infer", "gain": 1.5}],
              ORIGIN)
    tiny = {"workload": "mlp", "mode": "infer"}
    store.add("speed", [tiny | {"backend": backend, "ms": ms, "of_ours": ms / 0.03}
                        for backend, ms in (("poptorch", 0.03), ("onnxruntime", 0.015))], ORIGIN)
    tiny = {"workload": "b", "mode": "infer", "peak": 9.0, "eager_process": 0.1}
    store.add("memory", [
        case | {"growth": 0.0, "calls": 1000, "peak": 1.2, "eager_process": 20.0},
        tiny | {"growth": 9.0, "calls": 20}], ORIGIN)
    text = report.summary(store, MACHINE)
    assert "| <= 21 | 30.00 (mlp infer; ONNX Runtime's 15.0 in this run) | no |" in text
    assert "inference: none slower than the best peer | >= 0.95 | not measured" in text
    assert "| >= 1.7 | 1.50 (worst of 2: b infer) | no |" in text
    assert "| <= 1.05 | 1.20 (worst of 1: net train) | no |" in text
    assert "| <= 1 | 0.00 (worst of 1: net train) | yes |" in text


def test_growth_with_the_layers_is_that_of_training(store):
    store.add("first-call", [{"workload": f"narrow-{layers}", "mode": mode, "per_layer": ms}
                             for layers, mode, ms in ((12, "train", 20.0), (96, "train", 30.0),
                                                      (12, "infer", 9.0), (96, "infer", 9.0))],
              ORIGIN)
    text = report.summary(store, MACHINE)
    assert "| <= 1.2 | 1.50 (a layer of 96 compared with a layer of 12) | no |" in text


def test_the_explanation_links_every_table():
    text = (ROOT / "docs" / "internals" / "performance.md").read_text()
    names = {part.name for part in parts.PARTS} - {"speed"} | {"roofline", "compared", "bars"}
    assert set(re.findall(r"\(../../benchmarks/results/([\w-]+)\.md\)", text)) == names
    assert set(report.TITLES) == names


def test_the_committed_tables_are_those_of_the_committed_figures():
    store = Store(ROOT / report.FIGURES)
    pages = {name: report.page(name, store) for name in report.TITLES}
    committed = {path.stem: path.read_text() for path in report.RESULTS.glob("*.md")}
    assert committed == {name: text for name, text in pages.items() if text}
