"""Every random function of torch in a program: its distribution, and what a draw depends on."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import poptorch
from tests.helpers import quiet_options

N = 4096  # numbers of one draw
ITERATIONS = REPLICAS = 2


class Formula(nn.Module):
    """A module that is one function, of an argument of N ones."""

    def __init__(self, formula):
        super().__init__()
        self.formula = formula

    def forward(self, x):
        return self.formula(x)


def moments(mean, deviation, low=-math.inf, high=math.inf, kurtosis=9.0):
    """Mean and standard deviation within five sigma of what they are for so many numbers."""

    def check(values):
        values, root = values.double().flatten(), math.sqrt(values.numel())
        assert abs(values.mean() - mean) < 5 * deviation / root
        square = ((values - mean) ** 2).mean()
        assert abs(square - deviation**2) < 5 * math.sqrt(kurtosis) * deviation**2 / root
        assert low <= values.min() and values.max() <= high

    return check


def frequencies(*shares):
    """The numbers 0, 1, ... come in these shares."""

    def check(values):
        counts = torch.bincount(values.flatten().long(), minlength=len(shares))
        assert len(counts) == len(shares)
        for count, share in zip(counts.tolist(), shares, strict=True):
            deviation = math.sqrt(share * (1 - share) * values.numel())
            assert abs(count - share * values.numel()) <= 5 * deviation

    return check


def dropped(rate):
    """Of ones, what is kept is scaled."""

    def check(values):
        kept = values != 0
        torch.testing.assert_close(values[kept], torch.full_like(values[kept], 1 / (1 - rate)))
        frequencies(rate, 1 - rate)(kept)

    return check


def whole_channels(values):
    """All of a channel is kept, or nothing."""
    channels = values.reshape(-1, 4)
    assert torch.equal(channels, channels[:, :1].expand_as(channels))
    dropped(0.5)(channels[:, 0])


def permutations(values):
    """Each draw has each number once, and no number stays at its place more often than another."""
    for row in values.reshape(-1, N):
        assert torch.equal(row.sort().values, torch.arange(N, dtype=row.dtype))
        assert abs(torch.corrcoef(torch.stack([row.double(), torch.arange(N).double()]))[0, 1]) \
            < 5 / math.sqrt(N)


def distinct(values):
    """Three of ten without replacement, each as often as the others."""
    rows = values.reshape(-1, 3)
    assert all(len(set(row)) == 3 for row in rows.tolist())
    frequencies(*[0.1] * 10)(rows)


def softened(values):
    """Rows of gumbel_softmax: shares that add up to 1, the largest anywhere."""
    rows = values.reshape(-1, 4)
    torch.testing.assert_close(rows.sum(1), torch.ones(len(rows)))
    frequencies(*[0.25] * 4)(rows.argmax(1))


def _weights(x):
    return torch.tensor([1.0, 3.0, 4.0]).expand(N // 4, 3)


UNIFORM = moments(0.5, 1 / math.sqrt(12), 0, 1)
NORMAL = moments(0, 1)
FUNCTIONS = {
    "rand": (lambda x: torch.rand(N), UNIFORM),
    "rand_like": (torch.rand_like, UNIFORM),
    "randn": (lambda x: torch.randn(N // 2, 2).flatten(), NORMAL),
    "randn_like": (torch.randn_like, NORMAL),
    "normal of numbers": (lambda x: torch.normal(3.0, 2.0, (N,)), moments(3, 2)),
    "normal of tensors": (lambda x: torch.normal(3 * x, 2 * x), moments(3, 2)),
    "normal of a mean": (lambda x: torch.normal(x, 2.0), moments(1, 2)),
    "normal of a deviation": (lambda x: torch.normal(1.0, 2 * x), moments(1, 2)),
    "normal_": (lambda x: x.clone().normal_(1, 2), moments(1, 2)),
    "uniform_": (lambda x: torch.empty(N).uniform_(-1, 2), moments(0.5, 3 / math.sqrt(12), -1, 2)),
    "exponential_": (lambda x: torch.empty(N).exponential_(2.0), moments(0.5, 0.5, 0)),
    "random_": (lambda x: torch.empty(N).random_(0, 5), frequencies(*[0.2] * 5)),
    "randint": (lambda x: torch.randint(4, (N,)), frequencies(*[0.25] * 4)),
    "randint from": (lambda x: torch.randint(2, 5, (N,)) - 2, frequencies(*[1 / 3] * 3)),
    "randint_like": (lambda x: torch.randint_like(x, 4), frequencies(*[0.25] * 4)),
    "bernoulli": (lambda x: torch.bernoulli(0.3 * x), frequencies(0.7, 0.3)),
    "bernoulli_": (lambda x: x.clone().bernoulli_(0.3), frequencies(0.7, 0.3)),
    "randperm": (lambda x: torch.randperm(N), permutations),
    "multinomial": (lambda x: torch.multinomial(_weights(x), 1), frequencies(1/8, 3/8, 1/2)),
    "multinomial again": (lambda x: torch.multinomial(_weights(x), 4, replacement=True),
                          frequencies(1/8, 3/8, 1/2)),
    "multinomial, each once": (lambda x: torch.multinomial(torch.ones(N // 4, 10), 3), distinct),
    "dropout": (lambda x: functional.dropout(x, 0.3), dropped(0.3)),
    "native_dropout": (lambda x: torch.native_dropout(x, 0.3, True)[0], dropped(0.3)),
    "native_dropout's mask": (lambda x: torch.native_dropout(x, 0.3, True)[1],
                              frequencies(0.3, 0.7)),
    "dropout1d": (lambda x: functional.dropout1d(x.reshape(2, -1, 4), 0.5), whole_channels),
    "dropout2d": (lambda x: functional.dropout2d(x.reshape(2, -1, 2, 2), 0.5), whole_channels),
    "dropout3d": (lambda x: functional.dropout3d(x.reshape(2, -1, 1, 2, 2), 0.5), whole_channels),
    "alpha_dropout": (lambda x: functional.alpha_dropout(torch.randn(N), 0.2, True), NORMAL),
    "rrelu": (lambda x: functional.rrelu(-x, 0.1, 0.3, True),
              moments(-0.2, 0.2 / math.sqrt(12), -0.3, -0.1)),
    "gumbel_softmax": (lambda x: functional.gumbel_softmax(torch.zeros(N // 4, 4)), softened),
    "Normal": (lambda x: torch.distributions.Normal(x, 2 * x).rsample(), moments(1, 2)),
    "Uniform": (lambda x: torch.distributions.Uniform(-x, 2 * x).sample(),
                moments(0.5, 3 / math.sqrt(12), -1, 2)),
    "Bernoulli": (lambda x: torch.distributions.Bernoulli(0.3 * x).sample(),
                  frequencies(0.7, 0.3)),
    "Exponential": (lambda x: torch.distributions.Exponential(2 * x).rsample(),
                    moments(0.5, 0.5, 0)),
    "geometric_": (lambda x: x.clone().geometric_(0.3), moments(1 / 0.3, math.sqrt(0.7) / 0.3, 1)),
    "log_normal_": (lambda x: x.clone().log_normal_(1, 2).log(), moments(1, 2)),
    "cauchy_": (lambda x: x.clone().cauchy_().atan() / math.pi + 0.5, UNIFORM),
    "poisson": (lambda x: torch.poisson(3 * x), moments(3, math.sqrt(3), 0)),
    "binomial": (lambda x: torch.binomial(10 * x, 0.5 * x), moments(5, math.sqrt(2.5), 0, 10)),
    "Gamma": (lambda x: torch.distributions.Gamma(2 * x, x).rsample(), moments(2, math.sqrt(2), 0)),
    "Beta": (lambda x: torch.distributions.Beta(2 * x, x).rsample(),
             moments(2 / 3, math.sqrt(1 / 18), 0, 1)),
    "Laplace": (lambda x: torch.distributions.Laplace(x, x).rsample(), moments(1, math.sqrt(2))),
    "Gumbel": (lambda x: torch.distributions.Gumbel(x, x).rsample(),
               moments(1.577216, math.pi / math.sqrt(6))),
    "Categorical": (lambda x: torch.distributions.Categorical(logits=x.reshape(-1, 4)).sample(),
                    frequencies(*[0.25] * 4)),
    "of halves": (lambda x: torch.randn(N, dtype=torch.float16), NORMAL),
    "attention": (lambda x: functional.scaled_dot_product_attention(
        torch.zeros(1, 64, 1, 8), torch.zeros(1, 64, 64, 8), torch.eye(64).expand(1, 64, 64, 64),
        dropout_p=0.5).flatten() * 64, lambda values: dropped(0.5)(values.round())),
}


def executor(formula, **settings):
    settings = {"deviceIterations": ITERATIONS, "replicationFactor": REPLICAS, **settings}
    return poptorch.inferenceModel(Formula(formula), quiet_options(**settings))


def arguments():
    return torch.ones(ITERATIONS * REPLICAS * N)


@pytest.mark.sampled
@pytest.mark.parametrize("name", FUNCTIONS)
def test_distribution_and_what_a_draw_depends_on(name, seed):
    formula, check = FUNCTIONS[name]
    model = executor(formula, randomSeed=seed)
    first = model(arguments())
    check(first)
    draws = first.reshape(ITERATIONS * REPLICAS, -1)
    pairs = [(i, j) for i in range(len(draws)) for j in range(i)]
    assert not any(torch.equal(draws[i], draws[j]) for i, j in pairs)
    state = model.rng_state
    second = model(arguments())
    check(second)
    assert not torch.equal(first, second)
    model.rng_state = state
    assert torch.equal(model(arguments()), second)
    assert torch.equal(executor(formula, randomSeed=seed)(arguments()), first)
    assert not torch.equal(executor(formula, randomSeed=seed + 1)(arguments()), first)


def correlation(a, b):
    return torch.corrcoef(torch.stack([a.double().flatten(), b.double().flatten()]))[0, 1].item()


def test_draws_are_independent(seed):
    """Of neighbours, of two calls in one program, of steps, of replicas, of runs."""
    model = executor(lambda x: (torch.rand(N), torch.rand(N)), randomSeed=seed)
    a, b = (x.reshape(ITERATIONS, REPLICAS, N) for x in model(arguments()))
    again, _ = (x.reshape(ITERATIONS, REPLICAS, N) for x in model(arguments()))
    pairs = {"neighbours": (a[..., 1:], a[..., :-1]), "calls": (a, b), "steps": (a[0], a[1]),
             "replicas": (a[:, 0], a[:, 1]), "runs": (a, again)}
    for name, (first, second) in pairs.items():
        assert abs(correlation(first, second)) < 5 / math.sqrt(first.numel()), name


class Masked(nn.Module):
    """Returns ``w`` under a mask; the gradient of ``w`` is the sum of the masks."""

    def __init__(self, part):
        super().__init__()
        self.w = nn.Parameter(torch.ones(N))
        self.part = part

    def forward(self, x):
        y = self.part(self.w * x)
        return y, poptorch.identity_loss(y.sum(), "none")


def _twice_sin(x):
    return functional.dropout(x, 0.5)


def _checkpointed(x):
    return checkpoint(_twice_sin, x, use_reentrant=False)


def _marked(x):
    return poptorch.recomputationCheckpoint(functional.dropout(x, 0.5)) * 1


def _recomputed(x):
    """The mask lies before the mark, and is made again in the backward pass."""
    return poptorch.recomputationCheckpoint(functional.dropout(x * 2, 0.5) / 2)


PARTS = {"plain": _twice_sin, "checkpoint": _checkpointed, "marked": _marked,
         "recomputed": _recomputed,
         "noise": lambda x: x * torch.rand_like(x),
         "bernoulli": lambda x: x * torch.bernoulli(torch.full_like(x, 0.5).detach()),
         "checkpointed noise": lambda x: checkpoint(lambda x: x * torch.rand_like(x), x,
                                                    use_reentrant=False)}


@pytest.mark.parametrize("part", PARTS)
def test_backward_has_the_mask_of_forward(part, seed):
    """In each micro-batch of each replica, and different in each."""
    options = quiet_options(Training__gradientAccumulation=2, replicationFactor=2,
                            deviceIterations=2, outputMode=poptorch.OutputMode.All,
                            randomSeed=seed,
                            Training__accumulationAndReplicationReductionType=(
                                poptorch.ReductionType.Sum))
    net = Masked(PARTS[part])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    with poptorch.testing.keep_gradients():
        model = poptorch.trainingModel(net, options, optimizer)
        y, _ = model(torch.ones(8 * N))
    draws = y.reshape(8, N)  # device iteration, replica, micro-batch
    assert len({tuple(draw.tolist()) for draw in draws}) == 8
    torch.testing.assert_close(poptorch.testing.gradients(model)["w"], draws[4:].sum(0))
    before = y
    y, _ = model(torch.ones(8 * N))
    assert not torch.equal(y, before)


def test_the_seed_is_that_of_torch_without_the_option():
    """As ``torch.manual_seed`` left it when the model was compiled."""
    def first(seed):
        torch.manual_seed(seed)
        return executor(lambda x: torch.rand(N))(arguments())

    assert torch.equal(first(3), first(3)) and not torch.equal(first(3), first(4))


def test_a_loop_draws_anew_in_each_iteration(seed):
    def forward(x):
        return poptorch.for_loop(3, lambda y: [torch.cat([y[N:], torch.rand(N)])], [x])[0]

    class Loop(nn.Module):
        def forward(self, x):
            return forward(x.repeat(3))

    model = poptorch.inferenceModel(Loop(), quiet_options(randomSeed=seed))
    draws = model(torch.ones(N)).reshape(3, N)
    UNIFORM(draws)
    assert not torch.equal(draws[0], draws[1]) and not torch.equal(draws[1], draws[2])
