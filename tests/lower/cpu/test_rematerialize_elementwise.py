"""Computing element-wise results again keeps every bit, and memory that counts."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import poptorch
from poptorch import _C
from tests.helpers import in_parts, quiet_options

F = torch.nn.functional
PASS = "rematerialize_elementwise"
SIZES, LONG = [32, 64], 256
ROWS = 256  # so that activations count, not only gradients
UNARY = ["neg", "relu", "abs", "gelu", "tanh", "clone"]
BINARY = ["add", "sub", "mul", "maximum"]


class Step:
    """A random graph of a forward and a backward part, in which values wait for the latter."""

    def __init__(self, draw, dtype):
        self.draw, self.dtype = draw, dtype
        self.module = _C.Module()
        self.graph = self.module.add_graph("main")
        self.rng = self.graph.op("state", [], {"path": "rng"}, types=[("i32", [4])])[0]
        x = self.graph.op("stream_in", [], {"stream": "x"}, types=[("f32", SIZES)])[0]
        long = self.graph.op("stream_in", [], {"stream": "l"}, types=[("f32", [32, LONG])])[0]
        weight = self.graph.op("state", [], {"path": "a"}, types=[("f32", [LONG, 64])])[0]
        self.row = self.cast(self.graph.op("state", [], {"path": "b"}, types=[("f32", [64])])[0])
        product = self.cast(self.graph.op("matmul", [long, weight])[0])
        early = [self.cast(x), product]
        for _ in range(draw(st.integers(3, 14))):
            early.append(self.step(early))
        ordered = self.graph.op("sort", [early[-1]], {})[0]
        late = [ordered]
        for _ in range(draw(st.integers(3, 14))):
            late.append(self.late_step(early, late))
        for i, value in enumerate((ordered, late[-1])):
            wide = self.graph.op("cast", [value], {"dtype": _C.DType("f32")})[0]
            self.graph.op("stream_out", [wide], {"stream": f"y{i}"})

    def pick(self, items):
        return self.draw(st.sampled_from(items))

    def cast(self, value):
        return self.graph.op("cast", [value], {"dtype": _C.DType(self.dtype)})[0]

    def step(self, values):
        """A value of the forward part."""
        x, kind = self.pick(values), self.pick(["unary", "binary", "row", "dropout", "view"])
        if kind == "unary":
            return self.graph.op(self.pick(UNARY), [x])[0]
        if kind == "row":
            return self.graph.op(self.pick(BINARY), [x, self.row])[0]
        if kind == "dropout":
            return self.graph.op("dropout", [x, self.rng], {"p": 0.5, "salt": 1})[0]
        if kind == "view":
            turned = self.graph.op("permute", [x], {"dims": [1, 0]})[0]
            return self.graph.op("reshape", [turned], {"size": SIZES})[0]
        return self.graph.op(self.pick(BINARY), [x, self.pick(values)])[0]

    def late_step(self, early, late):
        """A value of the backward part, from one of the forward part or a view of one."""
        attrs, x = {"part": "backward"}, self.pick(early)
        if self.draw(st.booleans()):
            turned = self.graph.op("permute", [x], {"dims": [1, 0], **attrs})[0]
            x = self.graph.op("reshape", [turned], {"size": SIZES, **attrs})[0]
        return self.graph.op(self.pick(BINARY), [self.pick(late), x], attrs)[0]


def run_step(module):
    """Bytes of the outputs of a program of two inputs."""
    executable = _C.compile(_C.parse(module.text(), module), {"keep_text": False, "poison": True})
    generator = np.random.default_rng(0)
    hosts = {s.name: generator.standard_normal(s.sizes, np.float32) for s in executable.streams()}
    for state in executable.states():
        kind = np.int32 if state.dtype == "i32" else np.float32
        values = generator.integers(-2, 3, state.sizes).astype(kind)
        executable.write_state(state.path, values.ctypes.data, values.nbytes)
    executable.run([hosts[s.name].ctypes.data for s in executable.streams()], 1)
    return [hosts[s.name].tobytes() for s in executable.streams() if not s.is_input]


@settings(max_examples=25, deadline=None)
@given(st.data(), st.sampled_from(["f32", "bf16", "f16", "f64"]))
def test_random_graphs_keep_every_bit(data, dtype):
    module = Step(data.draw, dtype).module
    module = _C.parse(in_parts(module.text()), module)
    module.verify()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POPTORCH_OFF", PASS)
        expected = run_step(module)
        patch.setenv("POPTORCH_OFF", "")
        assert run_step(module) == expected, module.text()


class Blocks(nn.Module):
    """Layers whose activations are kept together with their operands."""

    def __init__(self, checkpoints=False):
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(512, 256) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(256, 512) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(512) for _ in range(3))
        self.scale = nn.Parameter(torch.rand(512) + 0.5)
        self.checkpoints = checkpoints

    def layer(self, i, x):
        y = F.gelu(self.norms[i](x) * self.scale + 0.5)
        return x + F.dropout(self.down[i](F.gelu(self.up[i](y))), 0.1)

    def forward(self, x, target):
        for i in range(3):
            x = checkpoint(self.layer, i, x, use_reentrant=False) if self.checkpoints else (
                self.layer(i, x))
        return x, F.mse_loss(x, target)


class InPlace(Blocks):
    def layer(self, i, x):
        y = self.norms[i](x).mul_(self.scale).add_(0.5)
        return F.dropout(self.down[i](F.gelu(self.up[i](F.relu_(y * 2)))), 0.1).add_(x)


class Staged(Blocks):
    def layer(self, i, x):
        with poptorch.Block(f"layer{i}", ipu_id=i % 2):
            return super().layer(i, x)


def train(model, dtype, options):
    """Three steps: losses and weights, and the step's memory."""
    model = copy.deepcopy(model).train().to(dtype)
    options.randomSeed(7)
    step = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.01))
    torch.manual_seed(5)
    count = ROWS * options.Training.gradient_accumulation
    x, target = (torch.randn(count, 512).to(dtype) for _ in range(2))
    results = [tensor.clone() for _ in range(3) for tensor in step(x, target)]
    step.copyWeightsToHost()
    report = step.memory_report()
    memory = sum(report[name] for name in ("activations", "gradients", "scratch"))
    return results + [p.detach().clone() for p in model.parameters()], memory


CASES = {
    "f32": (Blocks, torch.float32, 1), "bf16": (Blocks, torch.bfloat16, 1),
    "f16": (Blocks, torch.float16, 1), "accumulated": (Blocks, torch.float32, 2),
    "in place": (InPlace, torch.float32, 1), "staged": (Staged, torch.float32, 3),
    "checkpoints": (lambda: Blocks(checkpoints=True), torch.float32, 1),
}
NO_LESS = {"checkpoints"}  # activations are gone already


@pytest.mark.parametrize("name", CASES)
def test_training(name, monkeypatch):
    kind, dtype, accumulated = CASES[name]
    model = kind()
    found = []
    for off in (PASS, ""):
        monkeypatch.setenv("POPTORCH_OFF", off)
        options = quiet_options()
        options.Training.gradientAccumulation(accumulated)
        found.append(train(model, dtype, options))
    (expected, before), (results, after) = found
    assert all(torch.equal(a, b) for a, b in zip(expected, results, strict=True))
    assert after <= before if name in NO_LESS else after < before
