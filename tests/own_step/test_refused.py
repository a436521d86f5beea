"""What a captured step() cannot do: errors that name the place and what to do."""

import copy

import pytest
import torch

import poptorch
from tests.own_step import zoo
from tests.own_step.common import Net, options, train


class Reads(zoo.Own):
    def update(self, p, grad, state, group):
        if grad.abs().sum() > 1:
            p.sub_(grad)


class Items(zoo.Own):
    def update(self, p, grad, state, group):
        p.sub_(grad, alpha=grad.norm().item())


class Floats(zoo.Own):
    def update(self, p, grad, state, group):
        p.sub_(grad * float(p.sum()))


class Arrays(zoo.Own):
    def update(self, p, grad, state, group):
        p.sub_(torch.as_tensor(grad.detach().numpy() * 0.5))


class Noisy(zoo.Own):
    def update(self, p, grad, state, group):
        p.sub_(grad + torch.randn_like(p), alpha=group["lr"])


class Foreign(zoo.Own):
    table = torch.ones(6, 5)

    def update(self, p, grad, state, group):
        p.sub_(grad * self.table.sum(), alpha=group["lr"])
        if p.dim() == 2 and len(p) == 6:
            p.sub_(grad * type(self).table)


class Growing(zoo.Own):
    def update(self, p, grad, state, group):
        state["all"] = torch.cat([state["all"], grad.flatten()]) if state else grad.flatten()


class Bypassing(zoo.Own):
    def update(self, p, grad, state, group):
        with torch._C.DisableTorchFunction():
            p.sub_(grad, alpha=group["lr"])


class Clipped(zoo.Own):
    def update(self, p, grad, state, group):
        with torch._C.DisableTorchFunction():
            grad.clamp_(-0.1, 0.1)
        p.sub_(grad)


@pytest.mark.parametrize("kind, text", [
    (Bypassing, "Bypassing calls sub_.Tensor, which is not captured"),
    (Clipped, "Clipped calls clamp_.default, which is not captured"),
    (Reads, "Reads reads the value of a tensor"), (Items, "Items reads the value of a tensor"),
    (Floats, "Floats reads the value of a tensor"),
    (Arrays, r"Arrays reads the value of a tensor \(numpy\)"),
    (Noisy, r"Noisy draws random numbers \(randn_like\)"),
    (Foreign, r"Foreign uses a tensor of the shape \(6, 5\) that belongs neither to the model"),
    (Growing, r"Growing changes state.scale.all from \(1,\) of torch.float32 to \(2,\)")])
def test_what_cannot_be_captured(kind, text):
    net = Net()
    before = copy.deepcopy(net.state_dict())
    optimizer = kind(net.parameters())
    with pytest.raises(poptorch.Error, match=f"(?s)step.*{text}.*optimizerOnHost") as error:
        train(optimizer, net)
    if kind is not Growing:
        assert "test_refused.py:" in str(error.value)
    assert not optimizer.state
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    other = Net()
    train(kind(other.parameters()), other, on_host=True)


@pytest.mark.parametrize("on_host", [False, True])
def test_a_step_that_needs_a_closure(on_host):
    class Closed(zoo.Own):
        def step(self, closure):
            return closure()

    net = Net()
    with pytest.raises(poptorch.Error, match=r"\[optimizer\] expected that step\(\) of Closed "
                                             r"needs no arguments, .* missing a required argument"):
        train(Closed(net.parameters()), net, on_host=on_host)


def test_an_exception_of_the_program_comes_through():
    class Fails(zoo.Own):
        def update(self, p, grad, state, group):
            raise ZeroDivisionError("by chance")

    net = Net()
    with pytest.raises(ZeroDivisionError, match="by chance"):
        train(Fails(net.parameters()), net)


def test_a_state_of_another_shape():
    net = Net()
    optimizer = zoo.Yogi(net.parameters())
    model = poptorch.trainingModel(net, options(), optimizer)
    x, target = torch.randn(2, 5), torch.randn(2, 1)
    model(x, target)
    optimizer.state[net.a.weight]["m"] = torch.zeros(2)
    with pytest.raises(poptorch.Error, match=r"state.a.weight.m has the shape \(2,\), the model "
                                             r"needs \(6, 5\). Load"):
        model(x, target)


def test_automatic_loss_scaling_is_refused():
    net = Net()
    opts = options()
    opts.Training.setAutomaticLossScaling(True)
    model = poptorch.trainingModel(net, opts, zoo.Lion(net.parameters()))
    with pytest.raises(poptorch.Error, match=r"step\(\) of Lion is captured, and automatic loss"):
        model(torch.randn(2, 5), torch.randn(2, 1))


def test_a_value_for_each_replica_is_refused():
    net = Net()
    opts = options(replicas=2)
    model = poptorch.trainingModel(net, opts, zoo.Lion(net.parameters()))
    net.a.weight.data = net.a.weight.data.expand(2, 6, 5).clone()
    model.per_replica_params  # noqa: B018
    net.a.weight.replicaGrouping(poptorch.CommGroupType.NoGrouping, 0,
                                 poptorch.VariableRetrievalMode.OnePerGroup)
    with pytest.raises(poptorch.Error, match="captured for one value of each parameter, but a.w"):
        model(torch.randn(4, 5), torch.randn(4, 1))


def test_a_file_of_another_optimizer_is_refused(tmp_path):
    net, other = Net(), Net()
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.1))
    model(torch.randn(2, 5), torch.randn(2, 1))
    path = model.save(str(tmp_path / "net.poptorch"), export_model=False)
    model = poptorch.trainingModel(other, options(), zoo.Lion(other.parameters()))
    with pytest.raises(poptorch.Error, match=r"that the device updates, got Lion with its own"):
        model.loadExecutable(path)
