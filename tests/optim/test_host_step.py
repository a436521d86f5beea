"""RMSprop and LAMB as optimizers of the CPU: ``step()``, and what they share with PyTorch's."""

import copy
import pickle

import pytest
import torch

import poptorch
from tests.helpers import quiet_options
from tests.optim.test_recorded import Recorded, begin, check, recorded

HERE = ["rmsprop_all", "tf", "tf_all", "lamb", "lamb_biased", "lamb_limited"]


@pytest.mark.parametrize("kind", HERE)
def test_steps_on_the_cpu(kind):
    net, optimizer, references = begin(kind)
    for _ in range(50):
        gradients = [g[0] for g in recorded(net, 1)]
        for p, g in zip(net.parameters(), gradients):
            p.grad = g
        optimizer.step()
        for reference in references:
            reference.step(gradients)
    check(net, optimizer, references)


@pytest.mark.parametrize("kind", HERE)
def test_the_device_goes_on_from_the_cpu(kind):
    net, optimizer, references = begin(kind)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    for step in range(12):
        gradients = recorded(net, 1)
        for p, g in zip(net.parameters(), gradients):
            p.grad = g[0]
        if step % 2:
            optimizer.step()
            model.copyWeightsToDevice()
        else:
            model(*gradients)
        for reference in references:
            reference.step([g[0] for g in gradients])
    check(net, optimizer, references)


def test_without_the_variant_the_step_is_that_of_torch():
    net, other = Recorded(), Recorded()
    other.load_state_dict(net.state_dict())
    calls = []
    steps = [cls(module.parameters(), lr=0.1, momentum=0.5) for cls, module in
             ((torch.optim.RMSprop, other), (poptorch.optim.RMSprop, net))]
    for optimizer in steps:
        optimizer.register_step_pre_hook(lambda *_: calls.append(1))
    for _ in range(3):
        for p, twin, g in zip(net.parameters(), other.parameters(), recorded(net, 1)):
            p.grad = twin.grad = g[0]
        for optimizer in steps:
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters()))
    assert len(calls) == 6  # once for each step


@pytest.mark.parametrize("kind", ["tf", "lamb"])
def test_a_closure_is_called_with_gradients(kind):
    net, optimizer, _ = begin(kind)
    gradients = recorded(net, 1)

    def closure():
        optimizer.zero_grad()
        loss = net(*gradients)
        loss.backward()
        return loss

    before, loss = net.matrix.detach().clone(), net(*gradients)
    assert torch.equal(optimizer.step(closure), loss)
    assert not torch.equal(net.matrix, before)


@pytest.mark.parametrize("kind", ["tf", "lamb"])
def test_sparse_gradients_are_refused(kind):
    net, optimizer, _ = begin(kind)
    net.vector.grad = torch.zeros(6).to_sparse()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        optimizer.step()


@pytest.mark.parametrize("settings, words", [
    ({"lr": -1.0}, "lr must be at least 0, got -1.0"),
    ({"max_weight_norm": -1.0}, "max_weight_norm must be at least 0"),
    ({"betas": (0.9, 1.0)}, r"betas must be at least 0 and below 1, got \(0.9, 1.0\)"),
])
def test_settings_out_of_range(settings, words):
    with pytest.raises(ValueError, match=words):
        poptorch.optim.LAMB(Recorded().parameters(), **settings)


def test_the_variant_stays_what_it_is():
    net = Recorded()
    variant = poptorch.optim.RMSprop(net.parameters(), lr=0.1, use_tf_variant=True)
    plain = torch.optim.RMSprop(net.parameters(), lr=0.2)
    variant.load_state_dict({"ipu_state": None, "ipu_param": None, **plain.state_dict()})
    for optimizer in (variant, copy.deepcopy(variant), pickle.loads(pickle.dumps(variant))):
        group = optimizer.param_groups[0]
        assert group["use_tf_variant"] is True and group["lr"] == 0.2
        assert optimizer.use_tf_variant
    assert poptorch.optim.RMSprop(net.parameters()).param_groups[0]["use_tf_variant"] is False


def test_groups_have_limits_of_their_own():
    net = Recorded()
    optimizer = poptorch.optim.LAMB(
        [{"params": [net.matrix], "max_weight_norm": 0.5}, {"params": [net.images]}], lr=0.25)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    before = [p.detach().clone() for p in (net.matrix, net.images)]
    model(*recorded(net, 1))
    steps = [(p - old).norm().item() for p, old in zip((net.matrix, net.images), before)]
    assert steps[0] == pytest.approx(0.25 * 0.5, rel=1e-5)
    assert steps[1] == pytest.approx(0.25 * before[1].norm().item(), rel=1e-5)
