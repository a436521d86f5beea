"""Named operations that exchange data between replicas, against all replicas in one eager graph."""

import random
from dataclasses import replace
from unittest import mock

import pytest
import torch

import poptorch
from poptorch.errors import Error
from tests.fuzz.judge import FACTOR
from tests.fuzz.programs.perturbed import moved_runs
from tests.fuzz.programs.running import applied
from tests.fuzz.programs.settings import draw_setting
from tests.helpers import Cases, check_equal_bits, check_narrow, check_wide, quiet_options

REDUCE, GATHER, EXCHANGE = "ReplicatedAllReduceTP", "ReplicatedAllGather", "ReplicatedAllToAll"
OPS = (REDUCE, GATHER, EXCHANGE)
RATE = 0.01  # steps that are long enough to be seen, and too short for roundings to grow
# Replicas and attributes.
GROUPS = [(1, {}), (2, {}), (3, {}), (4, {"group_size": 2}), (6, {"group_size": 3}),
          (4, {"group_size": 2, "orthogonal": 1}), (6, {"group_size": 2, "orthogonal": 1}),
          (4, {"group_size": 1}), (4, {"group_size": 4, "orthogonal": 1})]


def call(name, x, **attributes):
    """The result of an operation."""
    return poptorch.custom_op([x], name, "ai.graphcore", 1, example_outputs=[x],
                              attributes=attributes)[0]


def members(replicas, group_size=0, orthogonal=0):
    """The replicas of each group."""
    size = group_size or replicas
    count = replicas // size
    return [list(range(n, replicas, count)) if orthogonal else list(range(n * size, (n + 1) * size))
            for n in range(count)]


def expected(name, values, attributes):
    """What the replicas get that have these values."""
    found = [None] * len(values)
    for group in members(len(values), **attributes):
        every = torch.stack([values[r] for r in group])
        for place, r in enumerate(group):
            found[r] = {REDUCE: lambda: every.sum(0), GATHER: lambda: every,
                        EXCHANGE: lambda: every[:, place]}[name]()
    return found


class Net(torch.nn.Module):
    """A loss that weighs each replica's results by other numbers."""

    def __init__(self, name, weight, attributes):
        super().__init__()
        self.weight = torch.nn.Parameter(weight.clone())
        self.name, self.attributes = name, attributes

    def before(self, x):
        return torch.tanh(self.weight * x[0])

    def after(self, y, x):
        return y, poptorch.identity_loss((y * torch.sin(y) * x[0].square().sum()).sum(), "none")

    def forward(self, x):  # [1, size of a group, 3]
        return self.after(call(self.name, self.before(x), **self.attributes), x)


def eager(net, x, name, replicas, attributes, accumulation):
    """The same of plain PyTorch: values, loss and gradient of each update of one call."""
    steps = []
    for update in x.split(replicas * accumulation):
        results, losses = [], []
        for micro in update.split(replicas):
            parts = micro.split(1)
            found = expected(name, [net.before(part) for part in parts], attributes)
            rows = [net.after(y, part) for y, part in zip(found, parts)]
            results += [y.detach() for y, _ in rows]
            losses += [loss for _, loss in rows]
        gradient, = torch.autograd.grad(torch.stack(losses).mean(), net.weight)
        with torch.no_grad():
            net.weight -= RATE * gradient
        steps.append((results, [loss.detach() for loss in losses], gradient))
    return {"results": [y for results, _, _ in steps for y in results],
            "losses": torch.stack([loss for _, losses, _ in steps for loss in losses]),
            "gradient": steps[-1][2], "weight": net.weight.detach()}


def ours(net, x, replicas, iterations, accumulation, strategy=None):
    """Those of a wrapped model, in the order of the micro-batches."""
    options = quiet_options().replicationFactor(replicas).deviceIterations(iterations)
    options.outputMode(poptorch.OutputMode.All).autoRoundNumIPUs(True)
    options.Training.gradientAccumulation(accumulation)
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=RATE))
    # The host has the micro-batches of a replica one behind the other in each iteration.
    order = torch.arange(x.shape[0]).view(iterations, accumulation, replicas).transpose(1, 2)
    order = order.flatten()
    with poptorch.testing.keep_gradients():
        results, losses = model(x[order])
        gradient = poptorch.testing.gradients(model)["weight"].clone()
    back = order.argsort()
    rows = results.split(results.shape[0] // x.shape[0])
    losses = losses.reshape(-1)
    found = {"results": [rows[i].clone() for i in back], "losses": losses[back].clone(),
             "gradient": gradient, "weight": net.weight.detach().clone()}
    model.destroy()
    return found


def make(replicas, attributes, batches, dtype=torch.float32):
    """A weight and inputs."""
    size = attributes.get("group_size") or replicas
    return torch.randn(size, 3).to(dtype), torch.randn(batches * replicas, size, 3).to(dtype)


def check_beside_eager(found, plain):
    """The float32 rule, with several draws of eager; ``plain(dtype)`` gives its results."""
    draws = [plain(torch.float32), *moved_runs(lambda: plain(torch.float32))]
    exact = plain(torch.float64)
    check_narrow(found, draws, exact)
    return exact


@pytest.mark.sampled
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("replicas, attributes", GROUPS)
def test_values_and_gradients(name, replicas, attributes):
    weight, x = make(replicas, attributes, 4)
    found = ours(Net(name, weight, attributes), x, replicas, 2, 2)
    exact = check_beside_eager(found, lambda dtype: eager(
        Net(name, weight.to(dtype), attributes), x.to(dtype), name, replicas, attributes, 2))
    with poptorch.testing.wide():
        wide = ours(Net(name, weight.double(), attributes), x.double(), replicas, 2, 2)
    check_wide(wide, exact)


def test_in_random_settings(seed):
    """Passes that are off, instruction sets, threads, poisoned memory."""
    rng = random.Random(seed)
    with Cases() as cases:
        for _ in range(12 * FACTOR):
            setting = replace(draw_setting(rng, True), wide=False)
            name, (replicas, attributes) = rng.choice(OPS), rng.choice(GROUPS)
            iterations, accumulation = rng.randint(1, 3), rng.randint(1, 3)
            weight, x = make(replicas, attributes, iterations * accumulation)
            with cases.case(setting, name, replicas, attributes, iterations, accumulation):
                with applied(setting):
                    found = ours(Net(name, weight, attributes), x, replicas, iterations,
                                 accumulation)
                check_beside_eager(found, lambda dtype: eager(
                    Net(name, weight.to(dtype), attributes), x.to(dtype), name, replicas,
                    attributes, accumulation))


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_halves(name, dtype):
    weight, x = make(3, {}, 1, dtype)
    found = ours(Net(name, weight, {}), x, 3, 1, 1)
    plain = eager(Net(name, weight, {}), x, name, 3, {}, 1)
    exact = eager(Net(name, weight.double(), {}), x.double(), name, 3, {}, 1)
    for key in ("results", "losses", "gradient"):
        right, eagers, mine = (torch.cat([y.double().flatten() for y in run[key]])
                               for run in (exact, plain, found))
        rounding = torch.finfo(dtype).eps * right.norm()
        assert (mine - right).norm() <= 4 * (eagers - right).norm() + rounding, key
    assert all(y.dtype is dtype for y in found["results"])


class Only(torch.nn.Module):
    """The operation and nothing else."""

    def __init__(self, name, attributes):
        super().__init__()
        self.name, self.attributes = name, attributes

    def forward(self, x):
        return call(self.name, x[0], **self.attributes)


def inferred(name, x, replicas, **attributes):
    """What each replica gets in inference."""
    options = quiet_options().replicationFactor(replicas).autoRoundNumIPUs(True)
    model = poptorch.inferenceModel(Only(name, attributes), options)
    found = model(x)
    model.destroy()
    return list(found.split(found.shape[0] // replicas))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32,
                                   torch.int64, torch.int16, torch.int8, torch.uint8, torch.bool])
def test_data_moves_to_the_bit(dtype):
    x = torch.randint(-3, 4, (3, 3, 5)).to(dtype)
    if dtype.is_floating_point:
        x = x / 3
        x[0, 0, :4] = torch.tensor([-0.0, float("inf"), -float("inf"), 0.0])
    narrow = torch.int32 if dtype is torch.int64 else dtype
    for name in (GATHER, EXCHANGE):
        check_equal_bits(inferred(name, x, 3), expected(name, list(x.to(narrow)), {}))
    if dtype is not torch.bool:
        sums = inferred(REDUCE, x, 3)
        check_equal_bits(sums[1:], [sums[0]] * 2)
        assert sums[0].dtype is narrow


@pytest.mark.parametrize("name", OPS)
def test_without_replicas(name):
    x = torch.randn(1, 3, requires_grad=True)
    y = call(name, x)
    assert torch.equal(y, expected(name, [x], {})[0])
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones(1, 3))
    assert torch.equal(inferred(name, x.detach()[None], 1)[0].view(y.shape), y)


class Looped(Net):
    """The operation in the body of a loop."""

    def forward(self, x):
        def body(v):
            found = call(self.name, torch.sin(v) * self.weight)
            return [torch.tanh(found.sum(0) if self.name == GATHER else found)]
        return self.after(poptorch.for_loop(3, body, [self.before(x)])[0], x)


@pytest.mark.parametrize("name", OPS)
def test_in_a_loop(name):
    """Each round exchanges; eager has the rounds of all replicas side by side."""
    weight, x = torch.randn(2, 3), torch.randn(8, 2, 3)
    found = ours(Looped(name, weight, {}), x, 2, 2, 2)

    def plain(dtype):
        net = Looped(name, weight.to(dtype), {})
        steps = []
        for update in x.to(dtype).split(4):
            rows = []
            for micro in update.split(2):
                values = [torch.tanh(net.weight * part) for part in micro]
                for _ in range(3):
                    values = expected(name, [torch.sin(v) * net.weight for v in values], {})
                    values = [torch.tanh(v.sum(0) if name == GATHER else v) for v in values]
                rows += [net.after(y, part[None]) for y, part in zip(values, micro)]
            losses = [loss for _, loss in rows]
            gradient, = torch.autograd.grad(torch.stack(losses).mean(), net.weight)
            with torch.no_grad():
                net.weight -= RATE * gradient
            steps.append(([y.detach() for y, _ in rows], [loss.detach() for loss in losses]))
        return {"results": [y for ys, _ in steps for y in ys],
                "losses": torch.stack([loss for _, losses in steps for loss in losses]),
                "gradient": gradient, "weight": net.weight.detach()}

    check_beside_eager(found, plain)


def test_in_a_branch_it_is_refused():
    class Branched(torch.nn.Module):
        def forward(self, x):
            return poptorch.cond((x.sum() > 0).reshape(1), lambda v: [call(REDUCE, v)], [x],
                                 lambda v: [v * 2], [x])[0]

    with pytest.raises(Error, match="exchanged between 2 replicas inside of a branch") as found:
        poptorch.inferenceModel(Branched(), quiet_options().replicationFactor(2))(torch.ones(2, 3))
    assert "test_replicated.py" in str(found.value)


class OfWeights(torch.nn.Module):
    """What depends on weights alone is computed when these change."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, 3))

    def forward(self, x):
        return (call(REDUCE, torch.exp(self.weight)) + x.sum(),
                call(GATHER, torch.sin(self.weight)) + x.sum())


def test_weights_that_replicas_have_for_themselves():
    net = OfWeights()
    model = poptorch.inferenceModel(net, quiet_options().replicationFactor(2).deviceIterations(2))
    model.weight.replicaGrouping(poptorch.CommGroupType.NoGrouping, 0,
                                 poptorch.VariableRetrievalMode.OnePerGroup)
    for _ in range(2):
        sums, every = model(torch.zeros(4, 1))
        weight = net.weight.detach()
        torch.testing.assert_close(sums.view(4, 3), torch.exp(weight).sum(0).expand(4, 3))
        torch.testing.assert_close(every.view(4, 2, 3), torch.sin(weight).expand(4, 2, 3))
        with torch.no_grad():
            net.weight += 0.5
        model.copyWeightsToDevice()


def test_through_a_file(tmp_path):
    """With the program printed and read again after each step, too."""
    options = quiet_options().replicationFactor(2)
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), Only(EXCHANGE, {}))
    model = poptorch.inferenceModel(net, options)
    x = torch.randn(2, 2, 3)
    with mock.patch.dict("os.environ", {"POPTORCH_RELOAD_IR": "1"}):
        model.compileAndExport(str(tmp_path / "model"), x)
        found = model(x)
    torch.testing.assert_close(found.view(2, 2, 3), net[0](x).detach().transpose(0, 1))
    assert torch.equal(poptorch.load(str(tmp_path / "model"))(x), found)


def test_in_a_block_it_is_part_of_the_forward_pass():
    class Staged(torch.nn.Module):
        def forward(self, x):
            with poptorch.Block("first", ipu_id=0):
                x = x * 2
            with poptorch.Block("second", ipu_id=1):
                return call(REDUCE, x) + 1

    options = quiet_options().replicationFactor(2).deviceIterations(2).autoRoundNumIPUs(True)
    model = poptorch.inferenceModel(Staged(), options)
    x = torch.randn(4, 3)
    sums = 2 * x.view(2, 2, 3).sum(1, keepdim=True) + 1
    torch.testing.assert_close(model(x), sums.expand(2, 2, 3).reshape(4, 3))
    line, = (line for line in model.ir("place").splitlines() if "all_reduce" in line)
    assert "ipu=1" in line and "stage=1" in line


@pytest.mark.parametrize("call_it, words", [
    (lambda: inferred(REDUCE, torch.ones(4, 3), 4, group_size=3),
     r"\[ai.graphcore::ReplicatedAllReduceTP\] group_size is 3, there are 4 replicas"),
    (lambda: inferred(REDUCE, torch.ones(4, 3), 4, group_size=-2), "group_size is -2"),
    (lambda: inferred(GATHER, torch.ones(4, 3), 4, orthogonal=2), "orthogonal is 2. Give 0 or 1"),
    (lambda: inferred(REDUCE, torch.ones(2, 3) > 0, 2), "adds numbers, got a tensor of bools"),
    (lambda: inferred(EXCHANGE, torch.ones(2, 3, 4), 2),
     r"a tensor of sizes \[3, 4\] is exchanged between 2 replicas"),
    (lambda: call(EXCHANGE, torch.ones(2)), "exchanged between 1 replicas"),
    (lambda: call(GATHER, torch.ones(2), group_size=2), "group_size is 2, there are 1 replicas"),
    (lambda: call(GATHER, torch.ones(2), commGroup=2), "Its attributes: group_size, orthogonal"),
])
def test_mistakes(call_it, words):
    with pytest.raises(Error, match=words):
        call_it()
