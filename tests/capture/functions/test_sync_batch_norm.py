"""SyncBatchNorm with replicas, compared with eager batch norm of the whole batch."""

import copy
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import poptorch
from tests.fuzz.judge import budget
from tests.helpers import check_narrow, check_wide, quiet_options, to_dtype

FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


class Normed(nn.Module):
    """A norm between two layers with weights."""

    def __init__(self, norm, channels):
        super().__init__()
        self.before = nn.Parameter(torch.randn(channels))
        self.norm = norm
        self.after = nn.Parameter(torch.randn(channels))

    def forward(self, x, y):
        sizes = (1, -1, *[1] * (x.dim() - 2))
        # Not x * before alone: its norm does not depend on the weight.
        out = self.norm(torch.sin(x * self.before.view(sizes))) * self.after.view(sizes)
        return out, poptorch.identity_loss(((out.sin() - y) ** 2).mean(), "none")


@dataclass(frozen=True)
class Case:
    """Of an example: what the layer is made with, and the data of one step."""

    replicas: int
    shape: tuple[int, ...]
    settings: tuple
    is_channels_last: bool
    seed: int

    def module(self):
        torch.manual_seed(self.seed)
        return Normed(nn.SyncBatchNorm(self.shape[1], **dict(self.settings)), self.shape[1])

    def data(self):
        torch.manual_seed(self.seed + 1)
        size = (self.replicas * self.shape[0], *self.shape[1:])
        data = [3 * torch.randn(size) + 2 for _ in range(4)]
        if self.is_channels_last:
            data = [x.to(memory_format=FORMATS[x.dim() - 2]) for x in data]
        return [tuple(data[:2]), tuple(data[2:])]


@st.composite
def cases(draw):
    replicas = draw(st.sampled_from([1, 2, 4]))
    dims = draw(st.integers(0, 3))
    sizes = [draw(st.integers(0, 4)), *(draw(st.integers(1, 4)) for _ in range(1 + dims))]
    # The norm of two values does not depend on them: their gradient is rounding errors alone.
    sizes[0] += -(-8 // (replicas * torch.Size(sizes[2:]).numel()))
    settings = {"momentum": draw(st.sampled_from([None, 0.1, 0.7])),
                "affine": draw(st.booleans()), "track_running_stats": draw(st.booleans()),
                "eps": draw(st.sampled_from([1e-5, 1e-3]))}
    return Case(replicas, tuple(sizes), tuple(settings.items()),
                dims in FORMATS and draw(st.booleans()), draw(st.integers(0, 2**31)))


def options_of(replicas: int):
    return quiet_options(replicationFactor=replicas, broadcastBuffers=False,
                         outputMode=poptorch.OutputMode.All)


def trained(module, replicas, steps):
    """Results, states and gradients by the optimizer's momentum, after some steps."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
    model = poptorch.trainingModel(module, options_of(replicas), optimizer)
    outs = [model(*step)[0] for step in steps]
    found = {"outs": outs, "state": dict(module.state_dict()),
             "sums": [optimizer.state[p]["momentum_buffer"] for p in module.parameters()]}
    model.destroy()
    return found


def eager(module, steps):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
    outs = []
    for step in steps:
        out, loss = module(*step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outs.append(out)
    return {"outs": outs, "state": dict(module.state_dict()),
            "sums": [optimizer.state[p]["momentum_buffer"] for p in module.parameters()]}


@budget(14)
@given(cases())
def test_training_equals_the_whole_batch(case):
    module, steps = case.module(), case.data()
    wide = to_dtype(steps, torch.float64)
    reference = eager(copy.deepcopy(module).double(), wide)
    with poptorch.testing.wide():
        check_wide(trained(copy.deepcopy(module).double(), case.replicas, wide), reference)
    # Of few values, one run may have almost no error: take more with inputs that are moved by one.
    moved = [[(x * (1 + part * 2**-23), y) for x, y in steps] for part in (0, 1, 2, -1, -2)]
    runs = [eager(copy.deepcopy(module), inputs) for inputs in moved]
    check_narrow(trained(module, case.replicas, steps), runs, reference)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits(dtype):
    torch.manual_seed(3)
    module, steps = Normed(nn.SyncBatchNorm(3), 3), [(torch.randn(8, 3), torch.randn(8, 3))]
    reference = eager(copy.deepcopy(module).double(), to_dtype(steps, torch.float64))
    halves = to_dtype(steps, dtype)
    runs = [eager(copy.deepcopy(module).to(dtype), halves)]
    check_narrow(trained(module.to(dtype), 2, halves), runs, reference)


def test_small_variance_beside_a_large_mean():
    torch.manual_seed(4)
    module = Normed(nn.SyncBatchNorm(2), 2)
    steps = [(1e-2 * torch.randn(32, 2, 5) + 100, torch.randn(32, 2, 5))]
    reference = eager(copy.deepcopy(module).double(), to_dtype(steps, torch.float64))
    runs = [eager(copy.deepcopy(module), steps)]
    check_narrow(trained(module, 4, steps), runs, reference)


def test_evaluation_uses_running_statistics():
    module = nn.SyncBatchNorm(3).eval()
    module.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    x = torch.randn(8, 3, 2)
    found = poptorch.inferenceModel(module, options_of(2))(x)
    torch.testing.assert_close(found, module(x))


def test_evaluation_without_running_statistics_is_not_synchronized():
    """As in eager: in evaluation mode each process uses its own batch."""
    module = nn.SyncBatchNorm(3, track_running_stats=False).eval()
    x = torch.randn(8, 3, 2)
    found = poptorch.inferenceModel(module, options_of(2))(x)
    torch.testing.assert_close(found, torch.cat([module(part) for part in x.chunk(2)]))


def test_inference_of_a_module_in_training_mode():
    module = nn.SyncBatchNorm(3)
    x = torch.randn(8, 3, 2)
    expected = copy.deepcopy(module)(x)
    found = poptorch.inferenceModel(module, options_of(2))(x)
    torch.testing.assert_close(found, expected.detach())


def test_one_value_for_each_replica():
    module = Normed(nn.SyncBatchNorm(3), 3)
    steps = [(torch.randn(4, 3), torch.randn(4, 3))]
    reference = eager(copy.deepcopy(module), steps)
    found = trained(module, 4, steps)
    torch.testing.assert_close(found["outs"], reference["outs"])


@pytest.mark.parametrize("settings", [{}, {"affine": False}, {"momentum": None}])
def test_recomputation_of_a_checkpoint(settings):
    class Checkpointed(Normed):
        def forward(self, x, y):
            return checkpoint(super().forward, x, y, use_reentrant=False)

    module = Checkpointed(nn.SyncBatchNorm(3, **settings), 3).double()
    steps = [(torch.randn(4, 3).double(), torch.randn(4, 3).double()) for _ in range(2)]
    reference = eager(copy.deepcopy(module), steps)
    with poptorch.testing.wide():
        check_wide(trained(module, 2, steps), reference)


class InTwoStages(Normed):
    def forward(self, x, y):
        with poptorch.Block("first", ipu_id=0):
            x = x * self.before
        with poptorch.Block("second", ipu_id=1):
            out = self.norm(torch.sin(x)) * self.after
            return out, poptorch.identity_loss(((out.sin() - y) ** 2).mean(), "none")


@pytest.mark.parametrize("kind", [Normed, InTwoStages])
def test_micro_batches_are_normalized_one_by_one(kind):
    torch.manual_seed(5)
    replicas, count = 2, 4
    module = kind(nn.SyncBatchNorm(3), 3).double()
    x, y = torch.randn(2, replicas, count, 3, 3).double()
    reference = copy.deepcopy(module)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for part in range(count):
        _, loss = Normed.forward(reference, x[:, part].flatten(0, 1), y[:, part].flatten(0, 1))
        (loss / count).backward()
    optimizer.step()
    options = options_of(replicas)
    options.Training.gradientAccumulation(count)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with poptorch.testing.wide():
        poptorch.trainingModel(module, options, optimizer)(x.flatten(0, 2), y.flatten(0, 2))
    check_wide(dict(module.state_dict()), dict(reference.state_dict()))


def test_gradient_of_a_gradient():
    class Penalty(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.SyncBatchNorm(2)

        def forward(self, x):
            x = x * self.norm.weight
            loss = self.norm(x).sin().sum()
            slope, = torch.autograd.grad(loss, x, create_graph=True)
            return poptorch.identity_loss((slope ** 2).mean(), "none"),

    module = Penalty().double()
    x = torch.randn(8, 2).double()
    expected = copy.deepcopy(module)
    expected(x)[0].backward()
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    before = module.norm.weight.detach().clone()
    with poptorch.testing.wide():
        poptorch.trainingModel(module, options_of(2), optimizer)(x)
    check_wide([before - module.norm.weight.detach()], [expected.norm.weight.grad])


def test_process_group_is_refused():
    module = Normed(nn.SyncBatchNorm(3, process_group="a group"), 3)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    model = poptorch.trainingModel(module, options_of(2), optimizer)
    with pytest.raises(poptorch.Error, match=(
            r"\[SyncBatchNorm\] expected process_group=None, got a str: the 2 replicas of a "
            r"program do not belong to a process group\. Create the layer without")):
        model(torch.randn(4, 3), torch.randn(4, 3))


def test_function_transforms_are_refused():
    norm = nn.SyncBatchNorm(3, track_running_stats=False)

    class Transformed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = norm

        def forward(self, x):
            return torch.func.grad(lambda x: self.norm(x).sin().sum())(x)

    with pytest.raises(poptorch.Error, match=(
            r"\[SyncBatchNorm\] torch\.func transforms a layer that uses the statistics of 2 "
            r"replicas, which is not implemented\. Use BatchNorm there")):
        poptorch.inferenceModel(Transformed(), options_of(2))(torch.randn(4, 3))
