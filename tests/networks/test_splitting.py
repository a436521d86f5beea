"""Device iterations, gradient accumulation and replication: the same numbers as whole batches."""

import pytest
import torch

import poptorch
from tests.helpers import check_equal_bits
from tests.networks import harness
from tests.networks.zoo import NETWORKS, build

SPLITTING = [name for name in NETWORKS if build(name, 0).splits]

splitting_network = pytest.mark.parametrize("name", SPLITTING)
EVERYTHING = poptorch.OutputMode.All


@pytest.mark.sampled
@splitting_network
def test_two_replicas_with_half_the_batch(name, seed):
    network = build(name, seed)
    harness.check_training_wide(network, seed, outputMode=EVERYTHING, replicationFactor=2)


@pytest.mark.sampled
@splitting_network
def test_accumulation_of_four_quarters(name, seed):
    network = build(name, seed)
    harness.check_training_wide(network, seed, outputMode=EVERYTHING, gradientAccumulation=4)


@pytest.mark.parametrize("name", ["mlp", "gpt_decoder", "digits_convnet"])
def test_replicas_and_accumulation(name, seed):
    settings = {"replicationFactor": 2, "gradientAccumulation": 2}
    harness.check_training_wide(build(name, seed), seed, outputMode=EVERYTHING, **settings)


@pytest.mark.sampled
@splitting_network
def test_device_iterations_equal_calls(name, seed):
    network = build(name, seed)
    batches = network.batches(3, seed)
    calls = harness.train(network, batches)
    joined = harness.concatenate(batches)
    together = harness.train(network, [joined], deviceIterations=3, outputMode=EVERYTHING)
    check_equal_bits(together["state"], calls["state"])
    check_equal_bits(together["loss"][0], torch.stack(calls["loss"]))
    check_equal_bits(together["outputs"][0], harness.concatenate(calls["outputs"]))


def test_splitting_networks_are_found():
    assert len(SPLITTING) >= 15
