"""Random numbers: each operation has a salt of its own, and is functional."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function, nodes

RANDOM = {
    "rand": lambda x: torch.rand(3),
    "rand_like": lambda x: torch.rand_like(x),
    "randn": lambda x: torch.randn(2, 3),
    "randn_like": lambda x: torch.randn_like(x),
    "normal": lambda x: torch.normal(0.0, 2.0, (3,)),
    "normal_of_tensors": lambda x: torch.normal(x, x.abs()),
    "normal_of_mean": lambda x: torch.normal(x, 2.0),
    "normal_of_deviation": lambda x: torch.normal(1.0, x.abs()),
    "randint": lambda x: torch.randint(5, (3,)),
    "randint_low": lambda x: torch.randint(2, 5, (3,)),
    "randperm": lambda x: torch.randperm(4),
    "bernoulli": lambda x: torch.bernoulli(x.abs().clamp(max=1)),
    "multinomial": lambda x: torch.multinomial(x.abs(), 1),
    "uniform_": lambda x: torch.empty(3).uniform_(-1, 2),
    "normal_": lambda x: x.clone().normal_(1, 2),
    "random_": lambda x: torch.empty(3).random_(0, 5),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.3),
    "bernoulli_default": lambda x: x.clone().bernoulli_(),
    "exponential_": lambda x: torch.empty(3).exponential_(2.0),
    "part": lambda x: x.clone()[1:].uniform_(),
    "distribution": lambda x: torch.distributions.Normal(x, x.abs() + 1).rsample(),
    "gumbel": lambda x: torch.nn.functional.gumbel_softmax(x[None]),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_operations(name):
    captured = capture(Function(lambda m, x: (RANDOM[name](x), RANDOM[name](x))),
                       (torch.ones(3),), training=False)
    salted = [n for n in nodes(captured) if "salt" in n.meta
              and torch.Tag.nondeterministic_seeded in n.target.tags]
    assert len(salted) == 2
    assert salted[0].meta["salt"] != salted[1].meta["salt"]
    for node in salted:
        assert isinstance(node.meta["salt"], int) and 0 <= node.meta["salt"] < 2**31


def test_a_recomputed_region_draws_the_same_numbers():
    def part(x, layer):
        return (layer(x) * torch.rand_like(x) + torch.nn.functional.dropout(x, 0.5)).sin().exp()

    def forward(m, x):
        x = checkpoint(part, x * m.w, m.a, use_reentrant=False)
        x = checkpoint(part, x, m.b, use_reentrant=False)
        return poptorch.identity_loss(x, "sum")

    module = Function(forward, {"w": torch.ones(3)})
    module.a, module.b = nn.Linear(3, 3), nn.Linear(3, 3)
    captured = capture(module, (torch.randn(2, 3),), training=True)
    drawn = {}
    for node in nodes(captured, torch.ops.aten.rand_like.default):
        drawn.setdefault(node.meta["recompute"], []).append(node.meta["salt"])
    assert len(drawn[0]) == 2 and drawn[1] == [drawn[0][1]] and drawn[2] == [drawn[0][0]]


def test_seeding_inside_forward_is_harmless():
    def forward(m, x):
        torch.manual_seed(3)
        return torch.rand(3), torch.rand(3)

    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    captured = capture(Function(forward), (torch.ones(1),), training=False)
    salts = [n.meta["salt"] for n in nodes(captured)]
    assert len(set(salts)) == 2
    assert torch.equal(torch.rand(1), expected)


def test_a_generator_chooses_which_numbers_are_equal(caplog):
    def forward(m, x):
        generator = torch.Generator().manual_seed(1)
        first = torch.rand(3, generator=generator), torch.rand(3, generator=generator)
        return *first, torch.rand(3, generator=generator.manual_seed(1))

    with caplog.at_level("WARNING", logger="poptorch"):
        captured = capture(Function(forward), (torch.ones(1),), training=False)
    drawn = [n for n in nodes(captured) if "salt" in n.meta]
    assert not any(isinstance(a, torch.Generator) for n in drawn for a in n.kwargs.values())
    first, second, again = (n.meta["salt"] for n in drawn)
    assert first == again != second
    assert len(caplog.records) == 2, "one for each line"
    assert "[rand] generator= is a torch.Generator" in caplog.text
    assert "test_random.py:" in caplog.text


@pytest.mark.parametrize("seed", [0, 1, 42])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_seed_in_forward_gives_no_numbers_that_were_drawn_before(seed):
    def forward(m, x):
        before = [torch.rand(3) for _ in range(4)]
        own = torch.rand(3, generator=torch.Generator().manual_seed(seed))
        torch.manual_seed(seed)
        return *before, own, torch.rand(3)

    captured = capture(Function(forward), (torch.ones(1),), training=False)
    *before, own, after = (n.meta["salt"] for n in nodes(captured) if "salt" in n.meta)
    assert own == after, "as in eager"
    assert len({*before, own}) == 5
