"""The part 'convolutions': rows of small layers, and what there is to measure."""

import pytest

from benchmarks import report, table
from benchmarks.convolution_problems import BATCHES, DIRECTIONS, Layer, every_problem
from benchmarks.parts import convolutions


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layer", [Layer("image", 3, 8, (6, 5), 3), Layer("line", 4, 4, (9,), 1)],
                         ids=lambda layer: layer.name)
def test_a_row_and_its_line(layer, direction):
    row = convolutions.measured((layer, direction), blocks=2, block_s=1e-4)
    assert [row["layer"], row["batch"], row["computes"]] == [layer.name, 1, direction]
    assert all(row[name] > 0 for name in ("us", "rows_us", "last_us", "ratio"))
    name = row["algorithm"]
    assert name.startswith(f"{direction}=") or name == "onednn_joint" or direction == "forward"
    assert convolutions.conclude([row | {"ratio": 0.5}]) == [
        f"{direction}: 0.50 times as fast as ATen (geometric mean of 1; worst {layer.name} of 1: "
        f"0.50); below 0.95: 1"]


def test_lines_of_the_page(tmp_path):
    row = {"layer": "image", "computes": "dw", "algorithm": "dw=im2col"}
    rows = [row | {"batch": 1, "ratio": 2.0}, row | {"batch": 8, "ratio": 0.5}]
    store = table.Store(tmp_path / "figures.json")
    store.add("convolutions", rows, {"machine": "A", "version": "1"}, convolutions.PART.keys)
    assert "| image | dw | 2 | 1.00 | 0.50 | a batch of 8, dw=im2col |" in report.convolutions(
        store, "A")


def test_what_there_is_to_measure():
    found = every_problem()
    assert 150 < len(found) < 300
    assert {direction for _, direction in found} == set(DIRECTIONS)
    assert {layer.batch for layer, _ in found} == set(BATCHES)
    keys = {(layer.name, layer.batch, direction) for layer, direction in found}
    assert len(keys) == len(found)
