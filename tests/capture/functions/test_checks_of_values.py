"""What eager refuses for its values, in distributions and losses, a program refuses, too."""

import random

import pytest
import torch
import torch.distributions as dist
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.capture.common import Function, check_training
from tests.fuzz.judge import budget
from tests.helpers import quiet_options

DRAW = {
    "real": lambda: torch.randn(4),
    "positive": lambda: torch.rand(4) + 0.1,
    "unit": lambda: torch.rand(4) * 0.8 + 0.1,
    "bool": lambda: torch.randint(0, 2, (4,)).float(),
    "count": lambda: torch.randint(0, 5, (4,)).float(),
    "simplex": lambda: torch.rand(4).softmax(-1),
    "one_hot": lambda: F.one_hot(torch.randint(0, 4, ()), 4).float(),
    "matrix": lambda: torch.eye(4) * (torch.rand(1) + 0.5),
    "class": lambda: torch.randint(0, 4, (4,)).float(),
}
ROWS = {
    "Normal": (lambda a, b, v: dist.Normal(a, b).log_prob(v), "real positive real"),
    "validated": (lambda a, b, v: dist.Normal(a, b, validate_args=True).log_prob(v),
                  "real positive real"),
    "not validated": (lambda a, b, v: dist.Normal(a, b, validate_args=False).log_prob(v),
                      "real positive real"),
    "LogNormal": (lambda a, b, v: dist.LogNormal(a, b).log_prob(v), "real positive positive"),
    "Independent": (lambda a, b, v: dist.Independent(dist.Laplace(a, b), 1).log_prob(v),
                    "real positive real"),
    "kl": (lambda a, b, v: dist.kl_divergence(dist.Normal(a, b), dist.Normal(0.0, v)),
           "real positive positive"),
    "Bernoulli": (lambda p, v: dist.Bernoulli(p).log_prob(v), "unit bool"),
    "Bernoulli by logits": (lambda p, v: dist.Bernoulli(logits=p).log_prob(v), "real bool"),
    "Geometric": (lambda p, v: dist.Geometric(p).log_prob(v), "unit count"),
    "ContinuousBernoulli": (lambda p, v: dist.ContinuousBernoulli(
        p, validate_args=True).log_prob(v), "unit unit"),
    "Binomial": (lambda p, v: dist.Binomial(4, p).log_prob(v), "unit count"),
    "Poisson": (lambda r, v: dist.Poisson(r).log_prob(v), "positive count"),
    "Beta": (lambda a, b, v: dist.Beta(a, b).log_prob(v), "positive positive unit"),
    "Gamma": (lambda a, b, v: dist.Gamma(a, b).log_prob(v), "positive positive positive"),
    "Exponential": (lambda r, v: dist.Exponential(r).log_prob(v), "positive positive"),
    "Uniform": (lambda a, v: dist.Uniform(-a, a + 1).log_prob(v), "positive unit"),
    "Dirichlet": (lambda a, v: dist.Dirichlet(a).log_prob(v), "positive simplex"),
    "Categorical": (lambda p, v: dist.Categorical(p).log_prob(v.sum() * 0), "simplex count"),
    "OneHotCategorical": (lambda p, v: dist.OneHotCategorical(p).log_prob(v), "simplex one_hot"),
    "MultivariateNormal": (lambda a, c: dist.MultivariateNormal(a, c).log_prob(a),
                           "real matrix"),
    "binary_cross_entropy": (F.binary_cross_entropy, "unit bool"),
    "gaussian_nll_loss": (F.gaussian_nll_loss, "real real positive"),
    "cross_entropy": (lambda x, y: F.cross_entropy(x[:, None].expand(4, 4), y.long()),
                      "real class"),
    "multi_margin_loss": (lambda x, y: F.multi_margin_loss(x[:, None].expand(4, 4), y.long()),
                          "real class"),
    "cov": (lambda x, f, a: torch.cov(torch.stack((x, x * x)), correction=0, fweights=f.long(),
                                      aweights=a), "real count positive"),
    "_assert_async": (lambda x, y: (torch._assert_async((y > 0).all(), "not so"), x + y)[1],
                      "real positive"),
}
WRONG = [-1.0, 0.0, 0.5, 2.0, 9.0, float("nan")]


@pytest.fixture(autouse=True)
def validated(monkeypatch):
    """The default of torch: torch.compile turns the checks off for the rest of the process."""
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)



def spoilt(rng: random.Random, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies in which one element differs."""
    copies = [t.clone() for t in tensors]
    rng.choice(copies).view(-1)[rng.randrange(4)] = rng.choice(WRONG)
    return copies


@pytest.mark.parametrize("name", ROWS)
@given(seed=st.integers(0, 2**32))
@budget(1)
def test_values_that_eager_refuses(name, seed):
    rng, (function, kinds) = random.Random(seed), ROWS[name]
    good = [DRAW[kind]() for kind in kinds.split()]
    calls = [good, *(spoilt(rng, good) for _ in range(4)), good]
    model = poptorch.inferenceModel(Function(lambda m, *args: function(*args)), quiet_options())
    for tensors in calls:
        try:
            expected = function(*tensors)
        except (ValueError, RuntimeError, IndexError):
            with pytest.raises(poptorch.Error):
                model(*tensors)
            continue
        torch.testing.assert_close(model(*tensors), expected, equal_nan=True, atol=1e-4, rtol=1e-4)
    model.destroy()


@pytest.mark.parametrize("names", ["f", "a", "fa"])
@pytest.mark.parametrize("correction", [0, 1])
def test_cov(names, correction):
    def forward(m, x, f, a):
        found = torch.cov(x * m.w, correction=correction, fweights=f if "f" in names else None,
                          aweights=a if "a" in names else None)
        return found, poptorch.identity_loss(found * found, "sum")

    check_training(Function(forward, {"w": torch.tensor([[1.5]], dtype=torch.float64)}),
                   torch.randn(3, 5, dtype=torch.float64), torch.randint(1, 4, (5,)),
                   torch.rand(5, dtype=torch.float64))


WORDS = {
    "Normal": ([0.0, -1.0, 0.0], r"\[Normal\] the parameter scale has an element that is not "
               r"valid: expected GreaterThan\(lower_bound=0\.0\)\. Pass valid values, or vali"),
    "Bernoulli": ([0.5, 0.5], r"\[Bernoulli\] the value has an element that is not valid: expect"),
    "Geometric": ([2.0, 1.0], r"\[Geometric\] the parameter probs has an element that"),
    "Uniform": ([1.0, 9.0], r"\[Uniform\] the value has an .* expected Interval\. Pass"),
    "MultivariateNormal": ([[0.0] * 4, torch.triu(torch.ones(4, 4))],
                           r"\[distributions\] a value has an element .* expected PositiveDef"),
    "gaussian_nll_loss": ([0.0, 0.0, -1.0], r"\[gaussian_nll_loss\] var has a negative element"),
    "binary_cross_entropy": ([0.5, 2.0], r"\[binary_cross_entropy\] an element of the target is "),
    "cov": ([0.0, -1.0, 1.0], r"\[cov\] fweights has a negative element. Pass positive weights"),
    "_assert_async": ([0.0, 0.0], "^not so"),
}


@pytest.mark.parametrize("name", WORDS)
def test_words_and_place(name):
    values, words = WORDS[name]
    model = poptorch.inferenceModel(Function(lambda m, *a: ROWS[name][0](*a)), quiet_options())
    with pytest.raises(poptorch.Error, match=rf"(?s){words}.*test_checks_of_values\.py:\d+"):
        model(*(torch.as_tensor(v).expand(4).clone() if isinstance(v, float) else
                torch.as_tensor(v) for v in values))
    model.destroy()


def test_constants_are_checked_when_the_model_is_compiled():
    def forward(m, x):
        return dist.Normal(torch.zeros(2), torch.tensor([1.0, -1.0])).log_prob(x)

    model = poptorch.inferenceModel(Function(forward), quiet_options())
    with pytest.raises(ValueError, match="Expected parameter scale"):
        model(torch.ones(2))
    target = torch.full((2,), 2.0)
    model = poptorch.inferenceModel(
        Function(lambda m, x: F.binary_cross_entropy(x, target)), quiet_options())
    with pytest.raises(poptorch.Error, match="an element of the target is not from 0 to 1"):
        model(torch.full((2,), 0.5))


@pytest.mark.parametrize("transformed", (
    lambda m, x: poptorch.for_loop(2, lambda y: [dist.Normal(y, y).log_prob(y)], [x])[0],
    lambda m, x: torch.vmap(lambda y: dist.Normal(y, y).log_prob(y))(x)))
def test_checks_that_are_not_made_are_told_of(transformed, capsys):
    model = poptorch.inferenceModel(Function(transformed), quiet_options())
    model(torch.ones(2))
    told = " ".join(capsys.readouterr().err.split())
    assert "[Normal] the parameter scale has an element that is not valid" in told
    assert "This is not checked in the body of a loop or a branch, and in functions" in told
    model.destroy()


def test_training_in_pipelined_blocks():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        def forward(self, x, y):
            with poptorch.Block("first", ipu_id=0):
                scale = self.first(x).exp() * y
                at = dist.Normal(x, scale).rsample()
            with poptorch.Block("second", ipu_id=1):
                loss = -dist.Normal(self.second(at), 1.0).log_prob(x).mean()
                return at, poptorch.identity_loss(loss, "none")

    options = quiet_options().deviceIterations(2)
    options.Training.gradientAccumulation(4)
    net = Net()
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.1))
    x, y = torch.randn(8, 2), torch.ones(8, 2)
    assert model(x, y)[1].isfinite().all()
    y[5] = -1
    with pytest.raises(poptorch.Error, match=r"\[Normal\] the parameter scale"):
        model(x, y)
    model.destroy()
