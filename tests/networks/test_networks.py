"""Every network of the zoo through poptorch, by the numeric rule of ``tests.helpers``."""

import pytest
import torch

import poptorch
from tests.helpers import check_equal_bits, check_wide
from tests.networks import harness
from tests.networks.zoo import NETWORKS, build

every_network = pytest.mark.parametrize("name", NETWORKS)


@every_network
def test_training_in_float64(name, seed):
    harness.check_training_wide(build(name, seed), seed)


@pytest.mark.sampled
@every_network
def test_five_steps_in_float32(name, seed):
    harness.check_training_narrow(build(name, seed), seed)


@every_network
def test_gradients_in_float32(name, seed):
    harness.check_gradients_narrow(build(name, seed), seed)


@pytest.mark.sampled
@every_network
def test_inference_in_float32(name, seed):
    harness.check_inference_narrow(build(name, seed), seed)


@pytest.mark.sampled
@every_network
def test_inference_in_float64(name, seed):
    network = build(name, seed).to(torch.float64)
    batches = network.batches(3, seed, torch.float64)
    with poptorch.testing.wide():
        ours = harness.infer(network, batches)
    check_wide(ours, harness.infer_eager(network, batches))


@pytest.mark.sampled
@every_network
def test_parsed_text_goes_on_with_equal_bits(name, seed, monkeypatch):
    network = build(name, seed)
    batches = network.batches(2, seed)
    direct = harness.train(network, batches)
    monkeypatch.setenv("POPTORCH_RELOAD_IR", "1")
    check_equal_bits(harness.train(network, batches), direct)


@pytest.mark.sampled
@every_network
def test_poisoned_memory_changes_nothing(name, seed, monkeypatch):
    network = build(name, seed)
    batches = network.batches(3, seed)
    clean = harness.train(network, batches), harness.infer(network, batches)
    monkeypatch.setenv("POPTORCH_POISON", "1")
    check_equal_bits((harness.train(network, batches), harness.infer(network, batches)), clean)


@pytest.mark.sampled
@every_network
def test_without_rewrite_passes(name, seed, monkeypatch):
    monkeypatch.setenv("POPTORCH_PASS_LIMIT", "0")
    network = build(name, seed)
    harness.check_training_wide(network, seed, steps=2)
    harness.check_gradients_narrow(network, seed)
