"""The zoo itself, in eager PyTorch only: float32 must be good enough for the numeric rule."""

import pytest
import torch

from tests.helpers import check_equal_bits, eager_errors
from tests.networks import harness
from tests.networks.zoo import NETWORKS, build

LARGEST_ERROR = 1e-3
LARGEST_COARSE_ERROR = 5e-2


@pytest.mark.sampled
@pytest.mark.parametrize("name", NETWORKS)
def test_eager_float32_is_near_float64(name, seed):
    network = build(name, seed)
    wide = network.to(torch.float64)
    limit = LARGEST_COARSE_ERROR if network.coarse else LARGEST_ERROR
    five, one = (harness.away_from_kinks(network, count, seed) for count in (harness.STEPS, 1))
    for function, narrow_data, wide_data in [
        (harness.train_eager, *five),
        (harness.gradients_eager, *(steps[0] for steps in one)),
    ]:
        narrow = harness.eager_variants(function, network, narrow_data)
        errors = eager_errors(narrow, function(wide, wide_data))
        worst = max(errors, key=errors.get)
        assert errors[worst] <= limit, f"{worst}: {errors[worst]:.1e}"


@pytest.mark.parametrize("name", NETWORKS)
def test_building_again_gives_the_same_network(name, seed):
    first, second = build(name, seed), build(name, seed)
    check_equal_bits(harness.state_of(first.module), harness.state_of(second.module))
    check_equal_bits(first.batches(2, seed), second.batches(2, seed))


def test_there_are_enough_networks():
    assert len(NETWORKS) >= 17
