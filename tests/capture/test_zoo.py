"""All networks of the zoo: what is captured computes what eager computes, in float64."""

import copy

import pytest
import torch

from poptorch._capture import capture
from tests.capture.common import check_inference, clone, tensors_of
from tests.capture.reference import evaluate
from tests.helpers import check_wide
from tests.networks import harness
from tests.networks.zoo import NETWORKS, build


@pytest.mark.sampled
@pytest.mark.parametrize("name", NETWORKS)
def test_training_step(name, seed):
    network = build(name, seed).to(torch.float64)
    (inputs,) = network.batches(1, seed, torch.float64)
    module = copy.deepcopy(network.module).train()
    captured = capture(module, inputs, training=True)
    result, others = evaluate(captured, tensors_of(inputs))
    expected = harness.gradients_eager(network, inputs)
    check_wide(tensors_of(result), tensors_of((expected["outputs"], expected["loss"])))
    gradients = dict(sorted(expected["gradients"].items()))
    check_wide(dict(sorted(others["grad"].items())), gradients)
    eager = copy.deepcopy(network.module).train()
    eager(*clone(inputs))
    state = dict(eager.named_buffers())
    check_wide({n: others.get("buffer_update", {}).get(n, b) for n, b in module.named_buffers()},
               state)


@pytest.mark.sampled
@pytest.mark.parametrize("name", NETWORKS)
def test_inference(name, seed):
    network = build(name, seed).to(torch.float64)
    check_inference(network.module.eval(), *network.batches(1, seed, torch.float64)[0])


@pytest.mark.parametrize("name", [name for name in NETWORKS if build(name, 0).random])
def test_training_with_noise_is_captured_too(name, seed):
    network = build(name, seed, **build(name, seed).random)
    (inputs,) = network.batches(1, seed)
    captured = capture(network.module.train(), inputs, training=True)
    first, _ = evaluate(captured, tensors_of(inputs))
    again, _ = evaluate(captured, tensors_of(inputs))
    check_wide(tensors_of(first), tensors_of(again))
