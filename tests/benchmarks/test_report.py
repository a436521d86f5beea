"""The tables of docs/internals/performance.md."""

import pytest

from benchmarks import parts, report
from benchmarks.table import Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "figures.json")
    case = {"workload": "net", "mode": "train"}
    floor = {"totals": {"calls": 3, "flops": 2e9, "bytes": 1e6}}
    store.add(
        "speed",
        [
            case | {"backend": "eager", "ms": 40.0},
            case | {"backend": "poptorch", "ms": 20.0},
            case | {"backend": "floor", "ms": 16.0, "floor": floor},
        ],
        {"cores": 2},
    )
    store.add("machine", [{"workload": "2", "gflops": 300.0, "copy": 25.0}], {"cores": 2})
    store.add(
        "profile",
        [
            case | {"op": "addmm", "phase": "forward", "ms": 19.0, "share": 0.95, "mb": 100.0},
            case | {"op": "relu", "phase": "forward", "ms": 0.1, "share": 0.005, "mb": 25.0},
        ],
        {"cores": 2},
    )
    store.add(
        "switches",
        [
            case | {"switch": "cse", "worth": 0.001},
            case | {"switch": "fold", "worth": 0.25},
        ],
        {"cores": 2},
    )
    return store


def test_roofline(store):
    row = report.roofline(store).splitlines()[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["net", "train", "2.00", "125", "16.00", "5.00", "20.00", "1.25", "100"]


def test_peers(store):
    text = report.compared(store)
    assert "| net | 20.000 | 2.00 |" in text and "Training" in text and "Inference" not in text
    assert "train: 2.00 times as fast as eager" in text


def test_small_ops_and_worthless_switches(store):
    assert "addmm" in report.profiles(store) and "relu" not in report.profiles(store)
    assert report.worth(store).splitlines()[2:] == [
        "| `fold` | net train +25.0% |",
        "| `cse` | within the noise |",
    ]


def test_what_was_not_measured_stays(store):
    text = "a\n<!-- table: memory -->\nold\n<!-- end -->\n"
    text += "<!-- table: machine -->\n<!-- end -->\nb\n"
    filled = report.filled(text, store)
    assert "old" in filled and "| 2 | 300 | 25.0 |" in filled
    assert filled.startswith("a\n") and filled.endswith("b\n")
    assert report.filled(filled, store) == filled


def test_the_page_has_a_place_for_every_part():
    names = set(report.BLOCK.findall(report.PAGE.read_text()))
    assert names == {part.name for part in parts.PARTS} - {"speed"} | {"roofline", "compared"}
