"""Stochastic rounding: the device's roundings are random, everything else is unchanged."""

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch import _C
from poptorch._translate import rounding
from tests.helpers import quiet_options
from tests.ops.sample import ROWS, evaluate
from tests.ops.test_ops import SAMPLES

SIXTEEN_BIT = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


def options(seed=7, **settings):
    found = quiet_options(randomSeed=seed, **settings)
    found.Precision.enableStochasticRounding(True)
    return found


class Net(torch.nn.Module):
    """Layers of several kinds, with a loss."""

    def __init__(self, dtype):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(4 * 4 * 4, 8)
        self.table = torch.nn.Embedding(5, 8)
        self.to(dtype)

    def forward(self, x, index, target):
        y = F.max_pool2d(F.gelu(self.norm(self.convolution(x))), 2)
        y = self.fc(y.flatten(1)) + self.table(index)
        y = torch.cat([y.softmax(1)[:, :4], y.cumsum(1)[:, 4:]], 1)
        return y, F.mse_loss(y.float(), target)


def trained(dtype, opts, steps=3):
    """The model, the outputs of each step, and the weights after the last one."""
    torch.manual_seed(0)
    net = Net(dtype)
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.5)
    model = poptorch.trainingModel(net, opts, optimizer)
    x = torch.randn(4, 3, 8, 8).to(dtype)
    index, target = torch.randint(0, 5, [4]), torch.randn(4, 8)
    outs = [model(x, index, target) for _ in range(steps)]
    return model, [[out.clone() for out in pair] for pair in outs], {
        name: value.clone() for name, value in net.state_dict().items()}



def check_makers(model):
    """Only exact ops make 16-bit numbers, and the one that rounds by chance."""
    makers = set()
    for line in model.ir("translate").splitlines():
        _, _, op = line.strip().split("  // ")[0].partition(" = ")
        types = op.split(" : ")[-1].split(", ")
        if any(type_.startswith(("f16[", "bf16[")) for type_ in types):
            makers.add(op.split()[0])
    allowed = rounding._EXACT | rounding._LEFT_ALONE
    assert "stochastic_cast" in makers
    assert makers <= allowed, makers - allowed


@SIXTEEN_BIT
def test_only_rounding_gives_halves(dtype):
    opts = options()
    opts.Training.gradientAccumulation(2)
    model, _, _ = trained(dtype, opts, 1)
    check_makers(model)
    regions = [line for line in model.ir("lower").splitlines() if '["stochastic_cast"' in line]
    assert regions


@pytest.mark.parametrize("name", sorted(rounding._EXACT & {s.op for s in SAMPLES} - {"full"}))
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_rows_called_exact_round_nothing(name, dtype):
    """On 16-bit numbers their float32 kernels give 16-bit numbers: so does the 16-bit kernel."""
    for sample in (s for s in SAMPLES if s.op == name and not s.is_packed):
        if dtype not in sample.dtypes:
            continue
        operands = sample.operands(dtype)
        wide = [x.float() if x is not None and x.is_floating_point() else x for x in operands]
        for narrow, full in zip(evaluate(sample, operands, dtype), evaluate(sample, wide, "f32")):
            if narrow.is_floating_point():
                assert torch.equal(narrow.double().nan_to_num(), full.double().nan_to_num())


def test_lists_name_rows():
    assert (rounding._EXACT | rounding._LEFT_ALONE) <= set(ROWS)


def test_off_by_default():
    model, _, _ = trained(torch.float16, quiet_options(), 1)
    assert "stochastic_cast" not in model.ir("translate")


def test_float32_is_left_alone():
    model, _, _ = trained(torch.float32, options(), 1)
    assert "stochastic_cast" not in model.ir("translate")
    assert "rng" not in model.ir("translate")


@SIXTEEN_BIT
def test_same_seed_same_bits(dtype):
    results = []
    before = _C.isa()
    for level in _C.machine_isas():
        _C.set_isa(level)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            _, outs, weights = trained(dtype, options(deterministic=True))
            results.append((level, outs, weights))
    _C.set_isa(before)
    for level in _C.machine_isas():
        # Sums of float32 differ between instruction sets: the random bits do not.
        of_level = [r for r in results if r[0] == level]
        for (_, outs, weights) in of_level[1:]:
            for got, expected in zip(outs, of_level[0][1], strict=True):
                assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
            assert all(torch.equal(weights[k], of_level[0][2][k]) for k in weights)
    _, other, _ = trained(dtype, options(seed=8, deterministic=True))
    assert not torch.equal(other[0][0], results[0][1][0][0])


class Thirds(torch.nn.Module):
    """Rounds thirds to 16 bits."""

    def forward(self, x):
        return (x / 3).half()


def test_each_step_and_replica_rounds_anew():
    model = poptorch.inferenceModel(Thirds(), options(deviceIterations=2, replicationFactor=2))
    x = torch.full((4, 1000), 1 / 7)
    first, second = model(x), model(x)
    rows = [*first, *second]
    for i, row in enumerate(rows):
        assert row.unique().numel() == 2
        assert not any(torch.equal(row, other) for other in rows[:i])


class Dot(torch.nn.Module):
    """A weight of float32, whose gradient is the input."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(2000))

    def forward(self, x):
        return poptorch.identity_loss((self.w * x).sum(), "none")


@pytest.mark.parametrize("accumulation", [1, 2])
def test_each_update_rounds_anew(accumulation):
    """What is 16-bit is the velocity alone."""
    opts = options()
    opts.Training.gradientAccumulation(accumulation)
    net = Dot()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.0, momentum=1.0,
                                   velocity_accum_type=torch.float16)
    model = poptorch.trainingModel(net, opts, optimizer)
    model(torch.ones(accumulation, 2000))
    for _ in range(64):
        model(torch.full((accumulation, 2000), 2.0**-12))
    velocity = optimizer.state[net.w]["momentum_buffer"]
    # 64 times up by 2**-10 with a chance of 1 in 4.
    steps = (velocity.double() - 1) * 2**10
    assert steps.min() > 0 and abs(steps.mean() - 16) < 0.5 and 3 < steps.std() < 4


@pytest.mark.parametrize("iterations", [1, 3])
def test_each_micro_batch_rounds_anew(iterations):
    """What is 16-bit is the sum of gradients alone."""
    opts = options(deviceIterations=iterations)
    opts.Training.gradientAccumulation(65)
    opts.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    net = Dot()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=1.0, accum_type=torch.float16)
    model = poptorch.trainingModel(net, opts, optimizer)
    x = torch.full((iterations, 65, 2000), 2.0**-12)
    x[:, 0] = 1
    model(x.view(-1, 2000))
    steps = (-net.w.detach().double() - iterations) * 2**10
    assert steps.min() > 0 and abs(steps.mean() - 16 * iterations) < 0.5 * iterations
    assert 3 < steps.std() / iterations**0.5 < 4  # the iterations are independent of each other


def test_random_state_repeats_the_rounding():
    model = poptorch.inferenceModel(Thirds(), options())
    x = torch.full((1000,), 1 / 7)
    model(x)
    state = model.rng_state
    expected = model(x)
    assert not torch.equal(model(x), expected)
    model.rng_state = state
    assert torch.equal(model(x), expected)


def test_rounding_in_loops():
    class Sum(torch.nn.Module):
        def forward(self, x):
            return poptorch.for_loop(20, lambda total: [total + x], [torch.zeros_like(x)])[0]

    x = torch.full((4000,), 1 + 2.0**-10).half()
    total = poptorch.inferenceModel(Sum(), options())(x).double()
    exact = 20 * x[0].double()
    assert total.unique().numel() > 3
    assert abs(total.mean() - exact) <= 5 * total.std() / 4000**0.5


def test_opaque_operators_are_rounded_by_chance():
    class Opaque(torch.nn.Module):
        def forward(self, x):
            return torch.special.i0e(x)

    x = torch.full((100_000,), 0.7).half()
    model = poptorch.inferenceModel(Opaque(), options())
    got = model(x).double()
    exact = torch.special.i0e(x[:1].double())
    assert "aten::special_i0e" in model.ir("translate")
    assert got.unique().numel() == 2
    assert abs(got.mean() - exact) <= 5 * got.std() / 100_000**0.5


@pytest.mark.parametrize("make", [
    lambda params: torch.optim.SGD(params, 2.0**-14),
    lambda params: torch.optim.SGD(params, 2.0**-14, momentum=0.5),
    lambda params: torch.optim.Adam(params, 2.0**-13)], ids=["sgd", "momentum", "adam"])
@SIXTEEN_BIT
def test_small_updates_add_up(make, dtype):
    """To the nearest a step below half the distance of two numbers changes nothing, ever."""
    class Pull(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4000,), 1.5, dtype=dtype))

        def forward(self):
            return poptorch.identity_loss(self.weight.float().sum(), "none")

    def after(opts):
        net = Pull()
        model = poptorch.trainingModel(net, opts, make(net.parameters()))
        for _ in range(16):
            model()
        return net.weight.detach().double()

    exact = Pull().double()
    optimizer = make(exact.parameters())
    for _ in range(16):
        optimizer.zero_grad()
        exact.weight.sum().backward()
        optimizer.step()
    assert (after(quiet_options()) == 1.5).all()
    moved = after(options())
    expected = exact.weight.detach()[0] - 1.5
    error = (moved.mean() - 1.5 - expected).abs().item()
    assert error <= 5 * moved.std().item() / 4000**0.5 + 1e-3 * abs(expected.item())


class Squares(torch.nn.Module):
    """Returns the weight that it computes with, before the update."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(40, 40).half()

    def forward(self, x):
        y = self.layer(x)
        return self.layer.weight * 1.0, poptorch.identity_loss((y * y).float().mean(), "none")


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("same_counters", [True, False])
def test_replicas_round_updates_alike(accumulation, same_counters):
    opts = options(replicationFactor=2, broadcastBuffers=False)
    opts.Training.gradientAccumulation(accumulation)
    torch.manual_seed(3)
    net = Squares()
    model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), 0.01))
    x = torch.randn(4 * accumulation, 40).half()
    model(x)
    if not same_counters:
        seed, *_ = model.rng_state
        model.rng_state = [seed, 5, 9]
    model(x)
    weights = model(x)[0]
    assert torch.equal(weights[:40], weights[40:])


def _put(w, x):
    w.index_put_((torch.tensor([1]),), w[:1])


def _added(w, x):
    w.index_put_((torch.tensor([1]),), w[:1] / 3, accumulate=True)


CHANGES = {  # whether nothing is rounded
    "product": (lambda w, x: w.mul_(0.9), False),
    "cast": (lambda w, x: w.copy_(w.float() * 0.9), False),
    "in a branch": (lambda w, x: w.copy_(poptorch.cond(
        w[:1] > 0, lambda a: a / 3, [w], lambda a: a * 1, [w])[0]), False),
    "sum at places": (_added, False),
    "limits": (lambda w, x: w.clamp_(0.5, 2.0), True),
    "choice": (lambda w, x: w.copy_(torch.where(w > 1, w.neg(), w.flip(0)).max(0)[0].expand(2)),
               True),
    "places": (_put, True),
    "part": (lambda w, x: w[:1].copy_(w[1:]), True),
    "sum of all": (lambda w, x: w.copy_(poptorch.custom_op(
        [x], "ReplicatedAllReduceTP", "ai.graphcore", 1, [x])[0]), True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_replicas_that_would_round_a_shared_parameter(name):
    change, is_exact = CHANGES[name]

    class Changing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([0.25, 3.0]).half())

        def forward(self, x):
            change(self.w.detach(), x)
            return self.w * 1

    module = Changing()
    model = poptorch.inferenceModel(module, options(replicationFactor=2))
    x = torch.tensor([0.25, 1 / 3, 1 / 7, 0.5]).half()
    if is_exact:
        a, b = model(x).view(2, 2)
        model.copyWeightsToHost()
        assert torch.equal(a, b) and torch.equal(module.w.detach(), a)
        return
    with pytest.raises(poptorch.Error, match=r"(?s)parameter w in place by values that are rounded "
                                             r"by chance \(enableStochasticRounding\), and so "
                                             r"differ from replica to replica: 2 .*at .*_rounding"):
        model(x)
    poptorch.inferenceModel(Changing(), quiet_options(replicationFactor=2))(x)


def test_replicas_round_their_sum_alike():
    class Sum(torch.nn.Module):
        def forward(self, x):
            (total,) = poptorch.custom_op([x], "ReplicatedAllReduceTP", "ai.graphcore", 1, [x])
            return total, total / 3

    model = poptorch.inferenceModel(Sum(), options(replicationFactor=2))
    x = torch.randn(2, 4000).clamp(-3, 3).half()  # of sums below 8 a step is 2**-8
    total, third = model(x)
    exact = x.double().sum(0)
    assert torch.equal(total[0], total[1])
    assert not torch.equal(third[0], third[1])
    assert not torch.equal(total[0], exact.half())
    assert (total[0].double() - exact).abs().max() < 2.0**-8


HALF = {"accum_type": torch.float16}
MOMENTS = {"first_order_momentum_accum_type": torch.float16}
OPTIMIZERS = {
    "SGD": lambda params: poptorch.optim.SGD(
        params, 0.01, momentum=0.9, velocity_accum_type=torch.float16, **HALF),
    "combined SGD": lambda params: poptorch.optim.SGD(
        params, 0.01, momentum=0.9, use_combined_accum=True),
    "Adam": lambda params: poptorch.optim.Adam(params, 0.01, **HALF, **MOMENTS),
    "AdamW": lambda params: poptorch.optim.AdamW(params, 0.01, loss_scaling=128.0),
    "RMSprop": lambda params: poptorch.optim.RMSprop(params, 0.01, momentum=0.9),
    "LAMB": lambda params: poptorch.optim.LAMB(params, 0.01, weight_decay=0.1),
    "NAdam": lambda params: torch.optim.NAdam(params, 0.01),
    "Adafactor": lambda params: torch.optim.Adafactor(params, 0.01),
    "Muon": lambda params: torch.optim.Muon([p for p in params if p.dim() == 2], 0.01),
}


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_of_any_optimizer(name, replicas):
    """Each is rounded by chance, and alike in all replicas."""
    torch.manual_seed(3)
    opts = options(replicationFactor=replicas, broadcastBuffers=False)
    opts.Training.gradientAccumulation(2)
    net = Squares()
    model = poptorch.trainingModel(net, opts, OPTIMIZERS[name](net.parameters()))
    x = torch.randn(2 * replicas, 40).half()
    model(x)
    weights = model(x)[0].view(replicas, 40, 40)
    check_makers(model)
    assert weights.isfinite().all()
    assert not torch.equal(weights[0], Squares().layer.weight)
    assert all(torch.equal(weight, weights[0]) for weight in weights)


def test_files_keep_it(tmp_path):
    model = poptorch.inferenceModel(Thirds(), options())
    x = torch.full((1000,), 1 / 7)
    model.compile(x)
    path = str(tmp_path / "model.poptorch")
    model.save(path)
    loaded = poptorch.load(path)
    loaded.rng_state = model.rng_state
    assert torch.equal(loaded(x), model(x))
