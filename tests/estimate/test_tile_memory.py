"""The memory of tiles, step by step."""

import pytest
import torch
from hypothesis import given

import poptorch
from poptorch import _C
from tests.fuzz.judge import budget
from tests.helpers import quiet_options
from tests.tasks.test_models import COLUMNS, Net, compiled, programs
from tests.tasks.test_recompute import trained

TARGET = next(row for row in _C.targets() if row["name"] == "gc200")
PROGRAM = ("code", "exchange", "vertex_state")


def memory(text, target="gc200", **settings):
    """Of the first IPU of a program with one graph."""
    return _C.tile_memory(f"graph main {{\n{text}\n}}\n", target, settings)[0]


def small(**fields):
    """A target with few tiles."""
    return {**TARGET, "name": "few tiles", "tiles": 4, **fields}


class Encoder(torch.nn.Module):
    def __init__(self, layers, width=64):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))
            for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x, poptorch.identity_loss(x.square().mean(), "none")


def encoder(layers, **settings):
    net = Encoder(layers)
    options = quiet_options(Training__gradientAccumulation=2)
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), 0.1))
    model.compile(torch.zeros(256, 64))
    row, = _C.tile_memory(model.ir("place"), "gc200", settings)
    return row


def test_values_lie_on_all_tiles():
    row = memory("""
      %w = state {path="w", role="parameter"} : f32[9]
      %v = state {path="v", role="optimizer"} : f32[2]
      output""", small())
    # 5 grains from tile 0 on, then one on tile 1.
    assert row["by_tile"] == [16, 16, 8, 8]
    assert row["peak_bytes"] == row["peak_without_gaps"] == 16
    assert row["mean_bytes"] == 12
    assert row["categories"] == dict.fromkeys(row["categories"], 0) | {
        "parameters": 36, "optimizer": 8}
    assert [one["name"] for one in row["live_at_peak"]] == ["w", "v"]
    assert row["steps"] == []


def test_step_with_most_decides():
    row = memory("""
      %x = stream_in {stream="x"} : f32[4096]  // net.py:3 first
      %0 = expand %x {size=[64, 4096]} : f32[64,4096]
      %1 = tanh %0 : f32[64,4096]  // net.py:4 wide
      %2 = sum %1 {dim=[0]} : f32[4096]  // net.py:5 last
      stream_out %2 {stream="y"}
      output""")
    steps = row["steps"]
    assert [step["op"] for step in steps] == ["stream_in", "tanh", "sum", "stream_out"]
    assert [step["id"] for step in steps] == [0, 1, 2, 3]
    wide, small_bytes = 64 * 4096 * 4, 4096 * 4
    assert [step["live"]["activations"] for step in steps] == [
        small_bytes, small_bytes + wide, wide + small_bytes, small_bytes]
    peak = steps[row["peak_step"]]
    assert peak["op"] in ("tanh", "sum") and peak["tile_bytes"] == row["peak_bytes"]
    assert row["live_at_peak"][0] == {"name": "1", "category": "activations", "bytes": wide,
                                      "module": "wide", "location": "net.py:4"}
    assert row["values"][0] == row["live_at_peak"][0] | {"first": 1, "last": 2}


def test_values_name_what_is_live_in_each_step():
    row = memory("""
      %w = state {path="w", role="parameter"} : f32[4096]
      %x = stream_in {stream="x"} : f32[4096]
      %0 = add %x, %w : f32[4096]
      %1 = sum %0 {dim=[0]} : f32[]
      %2 = tanh %0 : f32[4096]
      stream_out %2 {stream="y"}
      stream_out %1 {stream="z"}
      output""")
    for number, step in enumerate(row["steps"]):
        live = [one for one in row["values"] if one["first"] <= number <= one["last"]]
        for category in ("parameters", "activations"):
            large = sum(one["bytes"] for one in live if one["category"] == category)
            assert large == pytest.approx(step["live"][category], abs=16)
    assert {one["name"]: (one["first"], one["last"]) for one in row["values"]}["w"] == (
        0, len(row["steps"]) - 1)


def test_partial_sums_lie_in_interleaved_memory():
    text = """
      %x = stream_in {stream="x"} : f16[1024,1024]
      %w = state {path="w", role="parameter"} : f16[1024,1024]
      %0 = matmul %x, %w : f16[1024,1024]
      stream_out %0 {stream="y"}
      output"""
    row = memory(text)
    cost = next(one for one in _C.op_costs(f"graph main {{{text}\n}}\n", "gc200")
                if one["op"] == "matmul")
    step = next(step for step in row["steps"] if step["op"] == "matmul")
    assert step["tile_bytes"] == TARGET["interleaved_start"] + 24 + cost["interleaved_bytes"]
    assert row["peak_bytes"] == step["tile_bytes"] > row["peak_without_gaps"]
    assert step["temporary"] == cost["temporary_bytes"] * TARGET["tiles"]


def test_less_memory_for_an_op_is_never_more():
    text = """
      %x = stream_in {stream="x"} : f16[2048,1024]
      %w = state {path="w", role="parameter"} : f16[1024,4096]
      %0 = matmul %x, %w : f16[2048,4096]
      stream_out %0 {stream="y"}
      output"""
    temporary = [memory(text, memory_proportion=one)["categories"]["temporary"]
                 for one in (0.8, 0.4, 0.2, 0.1, 0.05)]
    assert temporary == sorted(temporary, reverse=True)
    assert temporary[-1] < temporary[0]


def test_io_tiles_hold_nothing():
    text = '%w = state {path="w", role="parameter"} : f32[8192]\n output'
    all_tiles, fewer = memory(text), memory(text, io_tiles=736)
    assert len(fewer["by_tile"]) == len(all_tiles["by_tile"]) - 736
    assert fewer["peak_bytes"] > all_tiles["peak_bytes"]


@pytest.mark.parametrize("on_op", [False, True])
def test_dithering_spreads_results_of_convolutions(on_op):
    def peak(is_dithered):
        attrs = ", dithering=true" if on_op and is_dithered else ""
        settings = {"dithering": is_dithered and not on_op}
        more = "dilation=[1, 1], groups=1, output_padding=[0, 0], padding=[0, 0], " \
               "stride=[1, 1], transposed=false"
        return memory(f"""
          %x = stream_in {{stream="x"}} : f32[1,2,3,3]
          %w = state {{path="w", role="parameter"}} : f32[4,2,1,1]
          %v = state {{path="v", role="parameter"}} : f32[4,2,1,1]
          %a = convolution %x, %w, _ {{{more}{attrs}}} : f32[1,4,3,3]
          %b = convolution %x, %v, _ {{{more}{attrs}}} : f32[1,4,3,3]
          %c = add %a, %b : f32[1,4,3,3]
          stream_out %c {{stream="y"}}
          output""", **settings)["peak_without_gaps"]

    assert peak(True) < peak(False)


def test_layers_that_are_alike_have_one_program():
    few, many = encoder(2), encoder(24)
    for name in PROGRAM:
        assert few["categories"][name] == many["categories"][name] > 0
    assert many["categories"]["parameters"] == 12 * few["categories"]["parameters"]
    assert many["peak_without_gaps"] > few["peak_without_gaps"]


def test_recomputation_lowers_the_peak():
    peaks = [[row["peak_without_gaps"] for row in _C.tile_memory(model.ir("place"), small())]
             for model in (trained(recomputation=one) for one in
                           (poptorch.Recomputation.Off, poptorch.Recomputation.Auto))]
    assert peaks[0][0] > peaks[1][0]


@budget(6)
@given(programs())
def test_models(program):
    layers, blocks, strategy, _, _, is_off_chip = program
    model = compiled(Net(layers, blocks), strategy, 7, True, is_off_chip)
    model.compile(torch.zeros(14, COLUMNS))
    text = model.ir("place")
    ids = {}
    for op in _C.program_costs(text, "gc200", {})["ops"]:
        ids.setdefault(op["ipu"], set()).add(op["id"])
    rows = _C.tile_memory(text, small())
    chip = model.memory_report()["ipus"]
    assert [row["ipu"] for row in rows] == list(range(len(chip)))
    for row, bytes_of in zip(rows, chip):
        steps = row["steps"]
        assert sorted(step["id"] for step in steps) == sorted(ids.get(row["ipu"], ()))
        assert row["peak_bytes"] == max(row["by_tile"]) >= row["mean_bytes"]
        assert row["peak_bytes"] == max([step["tile_bytes"] for step in steps],
                                        default=row["peak_bytes"])
        assert row["peak_without_gaps"] <= row["peak_bytes"]
        for name in ("parameters", "optimizer", "accumulators", "constants", "stashes",
                     "streaming"):
            assert row["categories"][name] == bytes_of[name]
        # Copies and stashes are no steps. More may be live at one of them than at any step.
        largest = max([step["live"]["activations"] for step in steps], default=0)
        assert row["categories"]["activations"] <= largest <= bytes_of["activations"]
