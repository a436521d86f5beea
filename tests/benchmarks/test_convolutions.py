"""Convolutions of networks beside ATen's: one small layer, and what there is to measure."""

import pytest

from benchmarks import convolutions
from benchmarks.convolutions import DIRECTIONS, Layer


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layer", [Layer("image", 3, 8, (6, 5), 3), Layer("line", 4, 4, (9,), 1)],
                         ids=lambda layer: layer.name)
def test_a_line_of_the_table(layer, direction):
    words = convolutions.measured(layer, direction).split()
    assert words[:3] == [layer.name, "1", direction]
    assert all(float(word) >= 0 for word in words[-4:])
    name = words[3]
    assert name.startswith(f"{direction}=") or name == "onednn_joint" or direction == "forward"


def test_what_there_is_to_measure():
    found = list(convolutions.problems())
    assert 150 < len(found) < 300
    assert {direction for _, direction in found} == set(DIRECTIONS)
    assert {layer.batch for layer, _ in found} == set(convolutions.BATCHES)
