"""The part 'convolutions': rows of small layers, and what there is to measure."""

import pytest

from benchmarks import report, table
from benchmarks.convolution_problems import BATCHES, DIRECTIONS, LAST, ROWS, Layer, every_problem
from benchmarks.parts import convolutions


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layer, layout", [
    (Layer("image", 3, 8, (6, 5), 3), ROWS), (Layer("image", 3, 8, (6, 5), 3), LAST),
    (Layer("volume", 3, 8, (4, 3, 5), 3), LAST), (Layer("line", 4, 4, (9,), 1), ROWS)])
def test_a_row_and_its_line(layer, layout, direction):
    row = convolutions.measured((layer, direction, layout), blocks=2, block_s=1e-4)
    assert [row["layer"], row["batch"], row["computes"], row["layout"]] == [
        layer.name, 1, direction, layout]
    assert all(row[name] > 0 for name in ("us", "aten_us", "ratio"))
    name = row["algorithm"]
    assert name.startswith(f"{direction}=") or name == "onednn_joint" or direction == "forward"
    assert convolutions.conclude([row | {"ratio": 0.5}]) == [
        f"{direction}, {layout}: 0.50 times as fast as ATen (geometric mean of 1; worst "
        f"{layer.name} of 1: 0.50); below 0.95: 1"]


@pytest.mark.parametrize("layout", [ROWS, LAST])
def test_images_lie_as_the_problem_says(layout):
    seen = []

    class Step(convolutions.Step):
        def __init__(self, *args):
            super().__init__(*args)
            self.layer.register_forward_pre_hook(
                lambda layer, args: seen.append(args[0].stride()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolutions, "Step", Step)
        convolutions.Ours(Layer("image", 3, 8, (6, 5), 3), "forward", layout).destroy()
    assert seen[0] == ((90, 30, 5, 1) if layout == ROWS else (90, 1, 15, 3))


def test_lines_of_the_page(tmp_path):
    row = {"layer": "image", "computes": "dw", "layout": ROWS, "algorithm": "dw=im2col"}
    rows = [row | {"batch": 1, "ratio": 2.0}, row | {"batch": 8, "ratio": 0.5}]
    store = table.Store(tmp_path / "figures.json")
    store.add("convolutions", rows, {"machine": "A", "version": "1"}, convolutions.PART.keys)
    line = "| image | dw | row-major | 2 | 1.00 | 0.50 | a batch of 8, dw=im2col |"
    assert line in report.convolutions(store, "A")


def test_what_there_is_to_measure():
    found = every_problem()
    assert 250 < len(found) < 500
    assert {direction for _, direction, _ in found} == set(DIRECTIONS)
    assert {layer.batch for layer, _, _ in found} == set(BATCHES)
    keys = {(layer.name, layer.batch, direction, layout) for layer, direction, layout in found}
    assert len(keys) == len(found)
    assert {layout for layer, _, layout in found if len(layer.size) == 1} == {ROWS}
    assert {layout for layer, _, layout in found if len(layer.size) > 1} == {ROWS, LAST}
