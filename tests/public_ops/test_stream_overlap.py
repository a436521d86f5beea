"""Copies that overlap with computation: values, streams, and where they are allowed."""

import collections

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import poptorch
from poptorch import OverlapMode, set_overlap_for_input, set_overlap_for_output
from tests.api.calls.model_output import Output
from tests.capture.common import Function
from tests.helpers import quiet_options

LOOP, STEP, NONE = (OverlapMode.OverlapAccumulationLoop, OverlapMode.OverlapDeviceIterationLoop,
                    OverlapMode.NoOverlap)
X, Y = torch.randn(4, 4), torch.randn(4, 4)


def tiled():
    options = quiet_options()
    options.TensorLocations.numIOTiles(32)
    return options


def streams(model):
    """The overlap of each stream, by the stream's name."""
    found = {}
    for line in model.ir("rewrite").splitlines():
        if 'stream="' in line:
            mode = line.split('overlap="')[1].split('"')[0] if "overlap" in line else ""
            found[line.split('stream="')[1].split('"')[0]] = mode
    return found


def test_streams_have_the_mode():
    def forward(m, x, y):
        x = set_overlap_for_input(x, LOOP)
        y = set_overlap_for_input(y, STEP)
        return set_overlap_for_output(x @ y, STEP), x + y

    module = Function(forward)
    model = poptorch.inferenceModel(module, tiled())
    torch.testing.assert_close(model(X, Y), module(X, Y))
    assert streams(model) == {
        "input.args.0": "accumulation_loop", "input.args.1": "device_iteration_loop",
        "output.0": "device_iteration_loop", "output.1": ""}


@pytest.mark.parametrize(("mode", "iterations", "overlap"), [
    (NONE, 2, "none"), (LOOP, 2, "loop"), (STEP, 2, "step"), (STEP, 1, "loop")])
def test_what_overlaps_with_what(mode, iterations, overlap):
    def forward(m, x):
        y = set_overlap_for_input(x, mode) @ m.w
        return set_overlap_for_output(y, mode), F.mse_loss(y, x)

    options = tiled().deviceIterations(iterations)
    options.Training.gradientAccumulation(2)
    model = poptorch.trainingModel(Function(forward, {"w": torch.randn(4, 4)}), options)
    model.compile(torch.randn(8 * iterations, 4))
    found = {"in": {}, "out": {}}
    for row in model.schedule().transfers:
        found[row.direction][row.overlap] = row.bytes
    loss = {"none": 4}  # of which nothing is said
    assert found == {"in": {overlap: 64},
                     "out": {"none": 68} if mode is NONE else {overlap: 64, **loss}}
    buffers = [line for line in model.ir("place").splitlines() if "buffers=2" in line]
    assert len(buffers) == (0 if mode is NONE else 2)
    tracks = {row.track for row in model.timeline().rows}
    assert tracks == ({"compute"} if mode is NONE else {"compute", "io"})


def test_inference_overlaps_within_the_loop_over_device_iterations():
    def forward(m, x):
        return set_overlap_for_output(set_overlap_for_input(x, STEP) * 2, LOOP)

    model = poptorch.inferenceModel(Function(forward), tiled().deviceIterations(3))
    model.compile(torch.randn(12, 4))
    assert {row.overlap for row in model.schedule().transfers} == {"loop"}


def test_nested_inputs_and_results():
    def forward(m, batch):
        batch = set_overlap_for_input(batch, LOOP)
        return set_overlap_for_output({"y": [batch["x"] + 1, (batch["z"][0] * 2,)]}, LOOP)

    module = Function(forward)
    model = poptorch.inferenceModel(module, tiled())
    batch = {"x": X, "z": (Y,)}
    torch.testing.assert_close(model(batch), module(batch))
    assert set(streams(model).values()) == {"accumulation_loop"}
    assert len(streams(model)) == 4


def test_training():
    def forward(m, x):
        x = set_overlap_for_input(x, LOOP)
        y = x @ m.w
        loss = F.mse_loss(y, x)
        return set_overlap_for_output(y, LOOP), set_overlap_for_output(loss, LOOP)

    module = Function(forward, {"w": torch.randn(4, 4)})
    expected, loss = module(X)
    loss.backward()
    model = poptorch.trainingModel(Function(forward, {"w": module.w.detach().clone()}), tiled())
    with poptorch.testing.keep_gradients():
        found, _ = model(X)
    torch.testing.assert_close(found, expected.detach())
    torch.testing.assert_close(poptorch.testing.gradients(model)["w"], module.w.grad)
    assert [streams(model)[f"output.{i}"] for i in (0, 1)] == ["accumulation_loop"] * 2


def test_under_a_checkpoint():
    def inner(x, w):
        return (set_overlap_for_input(x, LOOP) @ w).sin()

    def forward(m, x):
        y = checkpoint(inner, x, m.w, use_reentrant=False)
        return y, F.mse_loss(y, torch.zeros_like(y))

    model = poptorch.trainingModel(Function(forward, {"w": torch.randn(4, 4)}), tiled())
    model(X)
    assert streams(model)["input.args.0"] == "accumulation_loop"


def test_an_input_that_is_changed_in_place():
    def forward(m, x):
        x = set_overlap_for_input(x, LOOP)
        x.add_(1)
        return set_overlap_for_output(x * 2, LOOP)

    ours, theirs = X.clone(), X.clone()
    model = poptorch.inferenceModel(Function(forward), tiled())
    torch.testing.assert_close(model(ours), forward(None, theirs))
    torch.testing.assert_close(ours, theirs)


def test_without_overlap_nothing_is_needed():
    def forward(m, x):
        return set_overlap_for_output(set_overlap_for_input(x, NONE) + 1, NONE)

    model = poptorch.inferenceModel(Function(forward), quiet_options())
    torch.testing.assert_close(model(X), X + 1)
    assert set(streams(model).values()) == {""}


def of_input(x):
    return set_overlap_for_input(x, LOOP)


def of_output(x):
    return set_overlap_for_output(x, LOOP)


def _used(x):
    y = of_output(x * 2)
    return y, y + 1


def _changed(x):
    y = of_output(x * 2)
    y.add_(1)
    return y


def _not_returned(x):
    of_output(x * 2)
    return x + 1


def _the_old_one(x):
    y = x * 2
    of_output(y)
    return y


def _returned_twice(x):
    y = of_output(x * 2)
    return y, y


def _twice(x):
    y = x * 2
    return of_output(y), of_output(y)


@pytest.mark.parametrize(("forward", "words"), [
    (lambda m, x: of_input(x * 2), r"^\[set_overlap_for_input\] the tensor is not an input"),
    (lambda m, x: of_input(m.w), "the tensor is not an input of the model"),
    (lambda m, x: of_input(of_input(x)), "input args.0 has a mode already"),
    (lambda m, x: (x * 2, of_input(x)), "aten.mul.Tensor was computed from input args.0 before"),
    (lambda m, x: _used(x), r"^\[set_overlap_for_output\] aten.add.Tensor is computed from what"),
    (lambda m, x: _changed(x), "aten.add_.Tensor is computed from what it returned"),
    (lambda m, x: _not_returned(x), "forward does not return what it gave. Return that"),
    (lambda m, x: _the_old_one(x), "does not return what it gave, but the tensor that it was"),
    (lambda m, x: _returned_twice(x), 'forward returns the tensor 2 times: "0" and "1". Return'),
    (lambda m, x: _twice(x), "the tensor has a mode already"),
    (lambda m, x: of_output(of_output(x * 2)), "the tensor has a mode already"),
])
def test_a_wrong_place_is_an_error(forward, words):
    model = poptorch.inferenceModel(Function(forward, {"w": X}), tiled())
    with pytest.raises(poptorch.Error, match=words) as error:
        model(X)
    assert "test_stream_overlap.py:" in error.value.location


@pytest.mark.parametrize("function", [of_input, of_output])
def test_io_tiles_are_needed(function):
    model = poptorch.inferenceModel(Function(lambda m, x: function(x)), quiet_options())
    with pytest.raises(poptorch.Error, match=r"OverlapAccumulationLoop needs IO tiles: there are "
                       r"0, and at least 32 are needed.*numIOTiles\(32\)"):
        model(X)


def _in_two_stages(m, x):
    with poptorch.Block("a", ipu_id=0):
        x = of_input(x) * 2
    with poptorch.Block("b", ipu_id=1):
        return x + 1


def test_a_pipeline_is_refused():
    options = tiled().deviceIterations(2)
    model = poptorch.inferenceModel(Function(_in_two_stages), options)
    with pytest.raises(poptorch.Error, match="not possible in pipelined execution, and the model "
                       "is a pipeline of 2 stages"):
        model(torch.randn(4, 4))
    options = tiled().setExecutionStrategy(poptorch.ShardedExecution())
    torch.testing.assert_close(poptorch.inferenceModel(Function(_in_two_stages), options)(X),
                               X * 2 + 1)


@pytest.mark.parametrize("function", [set_overlap_for_input, set_overlap_for_output])
def test_outside_of_poptorch(function):
    batch = {"x": X, "y": [Y, (X,)]}
    found = function(batch, LOOP)
    assert found["x"] is X and found["y"][0] is Y and type(found["y"][1]) is tuple
    with pytest.raises(TypeError, match=r"expected one of OverlapMode.NoOverlap, .*got 1"):
        function(X, 1)
    with pytest.raises(TypeError, match="expected a tensor, or a list, tuple or dict of tensors, "
                       "got int 3"):
        function([X, 3], LOOP)


@pytest.mark.parametrize("make", [
    lambda x: collections.defaultdict(list, a=x), lambda x: collections.OrderedDict(a=x),
    lambda x: Output(loss=x)])
def test_containers_stay_what_they_are(make):
    given = make(torch.ones(2))
    found = set_overlap_for_input(given, OverlapMode.OverlapAccumulationLoop)
    assert type(found) is type(given) and found is not given and list(found) == list(given)
    if isinstance(given, collections.defaultdict):
        assert found.default_factory is list
