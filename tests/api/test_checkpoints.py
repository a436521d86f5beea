"""Recomputation between checkpoints: the same bits, in less memory."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import poptorch
from poptorch import recomputationCheckpoint
from tests.capture.common import Function
from tests.helpers import check_equal_bits, quiet_options


def unmarked(*tensors):
    return tensors[0] if len(tensors) == 1 else list(tensors)


def trained(make, *args, options=None, calls=2):
    """Results, gradients, parameters and buffers after some steps; the program."""
    torch.manual_seed(1)
    net = make()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1)
    options = (options or quiet_options()).randomSeed(7)
    model = poptorch.trainingModel(net, options, optimizer)
    with poptorch.testing.keep_gradients():
        results = [model(*args) for _ in range(calls)]
    found = {"results": results, "gradients": poptorch.testing.gradients(model),
             "state": {name: t.clone() for name, t in net.state_dict().items()}}
    return found, model


def compare(make, *args, options=quiet_options, **how):
    """Trains with marks and without; returns both programs."""
    plain, before = trained(lambda: make(unmarked), *args, options=options(), **how)
    marked, after = trained(lambda: make(recomputationCheckpoint), *args, options=options(), **how)
    check_equal_bits(marked, plain)
    assert after.ir("translate").count("recompute=") > before.ir("translate").count("recompute=")
    return before, after


class Chain(nn.Module):
    def __init__(self, mark, layer, count=6):
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(count))
        self.mark = mark

    def forward(self, x):
        for layer in self.layers:
            x = self.mark(layer(x))
        return x, F.mse_loss(x, torch.zeros_like(x))


def _dense():
    return nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Dropout(0.1), nn.Linear(128, 32),
                         nn.LayerNorm(32))


def _images():
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(),
                         nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(inplace=True))


def _attention():
    return nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)


LAYERS = {"dense": (_dense, (256, 32)), "images": (_images, (4, 8, 12, 12)),
          "attention": (_attention, (8, 16, 32))}


@pytest.mark.parametrize("name", LAYERS)
def test_the_same_bits_in_less_memory(name):
    layer, sizes = LAYERS[name]
    before, after = compare(lambda mark: Chain(mark, layer), torch.randn(sizes))
    assert after.memory_report()["arena"] < 0.75 * before.memory_report()["arena"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves(dtype):
    x = torch.randn(64, 32).to(dtype)
    compare(lambda mark: Chain(mark, _dense).to(dtype), x)


def test_accumulation_and_replicas():
    def options():
        own = quiet_options().replicationFactor(2).deviceIterations(2)
        own.Training.gradientAccumulation(2)
        return own

    compare(lambda mark: Chain(mark, _dense, 3), torch.randn(8 * 16, 32), options=options)


class Stages(nn.Module):
    """Layers; each third one is a block."""

    def __init__(self, mark):
        super().__init__()
        self.layers = nn.ModuleList(_dense() for _ in range(6))
        self.mark = mark

    def forward(self, x):
        for stage in range(3):
            with poptorch.Block(f"block{stage}", ipu_id=stage % 2):
                for layer in self.layers[2 * stage:2 * stage + 2]:
                    x = self.mark(layer(x) + x)
        return x, F.mse_loss(x, torch.zeros_like(x))


@pytest.mark.parametrize("strategy", [poptorch.PipelinedExecution, poptorch.ShardedExecution])
def test_stages(strategy):
    def options():
        own = quiet_options().setExecutionStrategy(strategy())
        own.Training.gradientAccumulation(6)
        return own

    before, after = compare(Stages, torch.randn(6 * 64, 32), options=options)
    assert after.memory_report()["arena"] < before.memory_report()["arena"]
    again = [line for line in after.ir("place").splitlines() if "recompute=" in line]
    assert {"ipu=0", "ipu=1"} == {f"ipu={i}" for i in (0, 1) for line in again
                                  if f"ipu={i}," in line}
    # What one block gives another is not computed again for it.
    assert not any("ipu_copy" in line for line in again)


def _step(forward):
    def make(mark):
        return Function(lambda m, x: forward(m, x, mark), {"w": torch.randn(8, 8)})

    return make


def _views(m, x, mark):
    y = mark((x @ m.w).sin().view(4, 4, 4).mT)
    y = mark(y.exp().sum(0), y[:, 1:].tanh())[1]
    return y, F.mse_loss(y.sin(), torch.zeros_like(y))


def _in_place(m, x, mark):
    y = (x @ m.w).sin()
    z = mark(y)
    y.mul_(2)
    z[2:].tanh_()
    u = mark(y) * 2
    u[0].zero_()
    mark(u)
    return z, F.mse_loss(u.cos(), y)


def _skips(m, x, mark):
    a = (x @ m.w).sin()
    b = mark((a @ m.w).cos())
    c = mark((a * b) @ m.w)
    return c, F.mse_loss(a * c.tanh(), b)


def _random(m, x, mark):
    y = mark(F.dropout(x @ m.w, 0.5) * torch.rand(8))
    y = mark(y + torch.randn_like(y).sin() * (y @ m.w))
    return y, F.mse_loss(y.exp(), x)


def _parts(m, x, mark):
    low, high = mark(*((x @ m.w).exp().chunk(2, 1)))
    values, places = mark(low * high.sin()).sort(1)
    mark(values)
    return places, F.mse_loss(values.tanh() @ m.w[:4], x)


def _checkpoints_of_torch(m, x, mark):
    x = mark((x @ m.w).sin())
    x = checkpoint(lambda x: mark((x @ m.w).cos()).exp(), x, use_reentrant=False)
    x = mark(x @ m.w)
    return x, F.mse_loss(x.tanh(), torch.zeros_like(x))


def _region(m, x, mark):
    part = torch.compiler.nested_compile_region(lambda x: mark((x @ m.w).sin()).cos())
    x = part(part(x))
    return x, F.mse_loss(mark(x).exp(), torch.zeros_like(x))


def _of_an_input(m, x, mark):
    y = mark(mark(x), m.w)[0] @ m.w
    return y, F.mse_loss(mark(y.exp().sin()).cos(), x)


@pytest.mark.parametrize("forward", [_views, _in_place, _skips, _random, _parts,
                                     _checkpoints_of_torch, _region, _of_an_input])
def test_programs(forward):
    compare(_step(forward), torch.randn(8, 8))


def test_operators_of_other_libraries_run_once():
    calls = []

    @torch.library.custom_op("own_checkpoints::noisy", mutates_args=())
    def noisy(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape)
        return x * len(calls)

    noisy.register_fake(lambda x: torch.empty_like(x))
    noisy.register_autograd(lambda ctx, gradient: gradient)

    def forward(m, x, mark):
        y = noisy(x @ m.w)
        y = mark(y.sin().exp())
        return y, F.mse_loss(y.tanh(), x)

    module = Function(lambda m, x: forward(m, x, recomputationCheckpoint),
                      {"w": torch.randn(8, 8)})
    model = poptorch.trainingModel(module, quiet_options())
    model(torch.randn(8, 8))
    calls.clear()
    model(torch.randn(8, 8))
    assert len(calls) == 1


def test_a_marked_value_is_not_computed_again():
    """Not even by the pass that does so with what costs little."""
    def forward(m, x, mark):
        y = mark((x @ m.w).tanh().relu())
        for _ in range(3):
            y = (y @ m.w).tanh() * y
        return y, F.mse_loss(y, x)

    _, after = compare(_step(forward), torch.randn(512, 8))
    assert after.ir("translate").count("checkpoint=true") == 1
    relus = [line for line in after.ir("lower").splitlines() if "relu" in line]
    assert relus and not any('part="backward"' in line and '"relu"' in line for line in relus)


def test_nested_tensors():
    """What is kept is nested as it was; the program is that of separate marks."""
    def nested(x):
        found = recomputationCheckpoint({"a": (x, None), "b": [x * 2, (x * 3,)]})
        assert found["a"][0] is x and found["a"][1] is None and type(found["b"][1]) is tuple
        return found["a"][0] + found["b"][0] + found["b"][1][0]

    def separate(x):
        x, y, z = recomputationCheckpoint(x, x * 2, x * 3)
        return x + y + z

    def forward(m, x, mark):
        y = mark((x @ m.w).sin().exp().cos()).sin()
        return y, F.mse_loss(y, x)

    x = torch.randn(16, 8)
    (one, program), (other, expected) = (trained(lambda mark=mark: _step(forward)(mark), x)
                                         for mark in (nested, separate))
    check_equal_bits(one, other)
    assert program.ir("translate").count("recompute=") == \
        expected.ir("translate").count("recompute=") > 0
    given = [x, {"y": (x,)}]
    assert recomputationCheckpoint(given) is given


def test_inference_and_eager_are_as_without_it():
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    assert recomputationCheckpoint(x) is x
    assert recomputationCheckpoint(x, y) == [x, y]
    model = poptorch.inferenceModel(
        Function(lambda m, x: recomputationCheckpoint(x.sin()).cos()), quiet_options())
    torch.testing.assert_close(model(x), x.sin().cos())
    assert "checkpoint" not in model.ir("translate").replace("test_checkpoints", "")


@pytest.mark.parametrize(("arguments", "words"), [
    ((), r"^\[recomputationCheckpoint\] expected tensors, got none"),
    ((torch.ones(2), 3), "argument 1 is expected to be a tensor, got int 3"),
    (([torch.ones(2), {"a": (None, 3)}],), "argument 0.1.a.1 is expected to be a tensor, got int"),
    (([], {}), r"^\[recomputationCheckpoint\] expected tensors, got none"),
])
def test_what_is_no_tensor_is_refused(arguments, words):
    with pytest.raises(TypeError, match=words):
        recomputationCheckpoint(*arguments)
