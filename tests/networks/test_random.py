"""Networks with dropout or noise: reproducible, and different from step to step."""

from dataclasses import replace

import pytest
import torch

from tests.helpers import check_equal_bits
from tests.networks import harness
from tests.networks.zoo import NETWORKS, build

RANDOM = {name: options for name in NETWORKS if (options := build(name, 0).random)}

random_network = pytest.mark.parametrize("name", RANDOM)


def _train(name, seed, random_seed, steps=3):
    """Trains on one batch again and again, so that only the drawn numbers and weights change."""
    network = build(name, seed, **RANDOM[name])
    batch = network.batches(1, seed)[0]
    return harness.train(network, [batch] * steps, randomSeed=random_seed)


@random_network
def test_a_seed_gives_the_same_bits_again(name, seed):
    torch.manual_seed(1)
    first = _train(name, seed, random_seed=7)
    torch.manual_seed(2)
    check_equal_bits(_train(name, seed, random_seed=7), first)


@pytest.mark.sampled
@random_network
def test_another_seed_gives_other_numbers(name, seed):
    first, second = _train(name, seed, 7, steps=1), _train(name, seed, 8, steps=1)
    assert not torch.equal(first["loss"][0], second["loss"][0])


@pytest.mark.sampled
@random_network
def test_each_step_draws_anew(name, seed):
    network = build(name, seed, **RANDOM[name])
    network = replace(network, make_optimizer=lambda ps: torch.optim.SGD(ps, lr=0.0))
    batch = network.batches(1, seed)[0]
    losses = harness.train(network, [batch] * 3, randomSeed=7)["loss"]
    assert len({loss.item() for loss in losses}) == 3
    assert all(torch.isfinite(loss) for loss in losses)


@pytest.mark.sampled
@random_network
def test_poisoned_memory_changes_nothing(name, seed, monkeypatch):
    clean = _train(name, seed, random_seed=7)
    monkeypatch.setenv("POPTORCH_POISON", "1")
    check_equal_bits(_train(name, seed, random_seed=7), clean)


@pytest.mark.sampled
@random_network
def test_backward_uses_the_mask_of_forward(name, seed, monkeypatch):
    """Without rewrites the backward pass finds the same random numbers as with them."""
    usual = _train(name, seed, random_seed=7, steps=1)
    monkeypatch.setenv("POPTORCH_PASS_LIMIT", "0")
    plain = _train(name, seed, random_seed=7, steps=1)
    torch.testing.assert_close(plain["loss"], usual["loss"])
    torch.testing.assert_close(plain["state"], usual["state"])
