"""What holds for every optimizer whose step() is captured: states, forms, errors."""

import copy
import io
import random

import numpy as np
import pytest
import torch

import poptorch
from poptorch.testing import wide
from tests.helpers import check_narrow
from tests.own_step import zoo
from tests.own_step.common import Beside, Net, options


class Outer(torch.nn.Module):
    """A module whose program has other names of the same parameters."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, target):
        return self.net(x, target)


def written(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


def train(optimizer, net, **settings):
    model = poptorch.trainingModel(net, options(**settings), optimizer)
    return model(torch.randn(2, 5), torch.randn(2, 1))


# -- several updates in a call, states ------------------------------------------------------------


def test_several_updates_in_a_call():
    with wide():
        both = Beside(zoo.AdaBelief, options(2, 2, iterations=3))
        both.train(4)
        both.check()
        both.check_states()
        assert len(both.model.programs()) == 1


@pytest.mark.parametrize("kind", ["QHAdam", "MADGRAD", "Adan"])
def test_a_saved_state_continues(kind):
    with wide():
        both = Beside(zoo.ALL[kind], options(2))
        both.train(7)
        state = written(both.optimizer.state_dict())
        net = copy.deepcopy(both.net)
        both.net, both.optimizer = net, zoo.ALL[kind](net.parameters())
        both.optimizer.load_state_dict(state)
        both.model = poptorch.trainingModel(net, both.opts, both.optimizer)
        both.train(5)
        both.check()
        both.check_states()


def test_a_state_is_loaded_between_calls():
    with wide():
        both = Beside(zoo.AdaBelief)
        both.train(3)
        states = [copy.deepcopy(one.state_dict()) for one in (both.optimizer, both.reference)]
        both.train(3)
        for optimizer, state in zip((both.optimizer, both.reference), states):
            optimizer.load_state_dict(state)
        both.train(3)
        both.check()
        both.check_states()


def test_the_program_changes_a_state_between_calls():
    with wide():
        both = Beside(zoo.Yogi)
        both.train(2)
        for net, optimizer in ((both.net, both.optimizer), (both.eager, both.reference)):
            optimizer.state[net.a.weight]["m"].zero_()
            optimizer.state[net.scale]["v"] = torch.tensor(0.25, dtype=torch.float64)
            optimizer.state[net.b.weight]["step"] = 10
            del optimizer.state[net.b.bias]
        both.train(3)
        both.check()
        both.check_states()


def test_steps_on_the_host_between_calls():
    with wide():
        both = Beside(zoo.Lion)
        both.train(2)
        x, target = torch.randn(4, 5).double(), torch.randn(4, 1).double()
        for net, optimizer in ((both.net, both.optimizer), (both.eager, both.reference)):
            optimizer.zero_grad()
            net(x, target)[1].backward()
            optimizer.step()
        both.model.copyWeightsToDevice()
        both.train(3)
        both.check()
        both.check_states()


def test_destroy_leaves_the_state_to_the_optimizer():
    with wide():
        both = Beside(zoo.QHAdam)
        both.train(2)
        both.model.destroy()
        both.check_states()
        both.train(2)
        both.check()


def test_two_executors_of_one_optimizer():
    with wide():
        both = Beside(zoo.SGDW)
        first = both.model
        both.train(2)
        first.detachFromDevice()
        second = both.model = poptorch.trainingModel(Outer(both.net), both.opts, both.optimizer)
        both.train(2)
        second.detachFromDevice()
        both.model = first
        both.train(2)
        both.check()
        both.check_states()


def test_a_group_is_added():
    class Rest(Net):
        pass

    with wide():
        both = Beside(lambda params: zoo.Lion(list(params)[:3]), net=Rest())
        both.train(2)
        for net, optimizer in ((both.net, both.optimizer), (both.eager, both.reference)):
            optimizer.add_param_group({"params": [net.b.bias], "lr": 0.1})
        both.train(2)
        both.check()
        both.check_states()


def test_another_optimizer_is_set():
    with wide():
        both = Beside(zoo.Lion)
        both.train(2)
        both.optimizer, both.reference = (
            zoo.Yogi(net.parameters()) for net in (both.net, both.eager))
        both.model.setOptimizer(both.optimizer)
        both.train(2)
        both.check()
        with pytest.raises(ValueError, match=r"has a step\(\) that is captured, SGD is updated"):
            both.model.setOptimizer(torch.optim.SGD(both.net.parameters(), lr=0.1))


def test_a_captured_step_does_not_follow_a_row():
    net = Net()
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.1))
    with pytest.raises(ValueError, match=r"by an operation of the device, Lion has a step\(\)"):
        model.setOptimizer(zoo.Lion(net.parameters()))


def test_a_subclass_with_a_step_of_its_own():
    class Halved(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.mul_(0.5)
            return super().step(closure)

    with wide():
        both = Beside(lambda params: Halved(params, lr=0.1, momentum=0.9))
        both.train(4)
        both.check()
        both.check_states()


# -- forms ----------------------------------------------------------------------------------------


def test_a_late_form_compiles_again():
    with wide():
        both = Beside(lambda params: zoo.SwitchingToSGD(params, switch=15))
        both.train(20)
        both.check()
        both.check_states()


def test_hyper_parameters_that_were_equal_become_different():
    with wide():
        both = Beside(lambda params: zoo.Lion(params, betas=(0.5, 0.5), weight_decay=0.5))
        both.train(2)
        for optimizer in (both.optimizer, both.reference):
            optimizer.param_groups[0]["betas"] = (0.75, 0.5)
            optimizer.param_groups[0]["weight_decay"] = 0.125
        both.train(2)
        both.check()
        assert len(both.model.programs()) == 1


def test_numbers_that_are_compiled_in_at_the_limit():
    class Powers(zoo.Own):
        def update(self, p, grad, state, group):
            state["step"] = state.get("step", 0) + 1
            p.sub_(grad.abs() ** (1 + 0.01 * state["step"]), alpha=group["lr"])

    net = Net()
    with pytest.raises(poptorch.Error, match=r"(?s)taken 10 different forms.*pow.*"
                                             r"optimizerOnHost\(True\).*test_captured.py:\d+"):
        train(Powers(net.parameters()), net)


def test_parts_of_tensors_are_written():
    class Parts(zoo.Own):
        def update(self, p, grad, state, group):
            if not state:
                state["m"] = p.new_zeros((2, *p.shape))
            state["m"][0] = grad
            state["m"][1, ...] += 0.5 * grad
            state["m"][1].masked_fill_(grad > 0, 0.25)
            p.view(-1)[:1] -= state["m"].flatten()[0] * group["lr"]
            p.copy_(torch.where(grad > 0, p, state["m"].sum(0)))

    with wide():
        both = Beside(Parts, options(2))
        both.train(6)
        both.check()
        both.check_states()


def test_operators_are_captured():
    class Operators(zoo.Own):
        def update(self, p, grad, state, group):
            torch.ops.aten.sub_.Tensor(p, grad, alpha=group["lr"])
            torch.ops.aten.clamp_(p, -1.0 - group["lr"], 1.0)

    with wide():
        both = Beside(Operators)
        both.train(3)
        for optimizer in (both.optimizer, both.reference):
            optimizer.param_groups[0]["lr"] = 0.2
        both.train(3)
        both.check()


def test_states_that_are_copies_of_parameters():
    class Anchored(zoo.Own):
        def update(self, p, grad, state, group):
            if not state:
                state["start"] = p.data.clone()
            p.add_(grad + group["weight_decay"] * (p - state["start"]), alpha=-group["lr"])

    for iterations in (1, 2):
        with wide():
            both = Beside(lambda params: Anchored(params, weight_decay=2.0),
                          options(2, iterations=iterations))
            both.train(6)
            both.check()
            both.check_states()


# -- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    class Half(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 40).to(dtype))

        def forward(self, x):
            return poptorch.identity_loss((self.weight * x).float().square(), "mean")

    net, x = Half(), torch.randn(40).to(dtype)
    eager, exact = copy.deepcopy(net), copy.deepcopy(net).double()
    make = zoo.AdaBelief
    model = poptorch.trainingModel(net, options(), make(net.parameters(), eps=1e-3))
    others = [(eager, make(eager.parameters(), eps=1e-3), x),
              (exact, make(exact.parameters(), eps=1e-3), x.double())]
    model(x)
    for other, optimizer, given in others:
        other(given).backward()
        optimizer.step()
    check_narrow({"w": net.weight}, [{"w": eager.weight}], {"w": exact.weight})


# -- errors ---------------------------------------------------------------------------------------


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
        assert "test_captured.py:" in str(error.value)
    assert not optimizer.state
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    other = Net()
    train(kind(other.parameters()), other, on_host=True)


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


def test_saving_to_a_file_is_refused(tmp_path):
    net = Net()
    model = poptorch.trainingModel(net, options(), zoo.Lion(net.parameters()))
    model(torch.randn(2, 5), torch.randn(2, 1))
    with pytest.raises(poptorch.Error, match=r"the update is step\(\) of Lion"):
        model.save(str(tmp_path / "net.poptorch"))


# -- random optimizers ----------------------------------------------------------------------------


class Random(zoo.Own):
    """Operations in a random order, which depends on ``seed``."""

    def __init__(self, params, seed, **defaults):
        super().__init__(params, **defaults)
        self.seed = seed

    def update(self, p, grad, state, group):
        draw = random.Random(self.seed)
        if not state:
            state.update(step=0, one=torch.zeros_like(p), two=torch.full_like(p, 0.5))
        state["step"] += 1
        beta, rate = group["betas"][0], group["lr"] / (1 + 0.1 * state["step"])
        values = [grad, state["one"], state["two"], p.detach().clone()]
        operations = [
            lambda x, y: x.mul_(beta).add_(y, alpha=1 - beta),
            lambda x, y: x.addcmul_(y, y, value=rate),
            lambda x, y: x.lerp_(y, beta),
            lambda x, y: x.copy_(torch.where(y > rate, x, y * 0.5)),
            lambda x, y: x.clamp_(-1.0, beta),
            lambda x, y: x.sub_(y / (x.abs() + 1), alpha=rate),
            lambda x, y: x.div_(1 + beta * state["step"]).add_(y.mean()),
            lambda x, y: x.copy_(1.0 - beta * x),
            lambda x, y: x.copy_(y.where(y > rate, beta)),
            lambda x, y: x.mul_(torch.tensor(beta)).pow_(2),
            lambda x, y: torch._foreach_add_([x, x], [y, grad], alpha=rate),
            lambda x, y: x.copy_(rate / (1.5 + torch.maximum(x, y).abs())),
        ]
        for _ in range(6):
            draw.choice(operations)(draw.choice(values[1:]), draw.choice(values))
        if state["step"] % draw.choice([2, 3, 100]) == 0:
            state["two"].mul_(0.5)
        p.add_(state["one"] + state["two"] + grad, alpha=-rate)


@pytest.mark.parametrize("number", range(3))
def test_random_optimizers(number, seed):
    with wide():
        both = Beside(lambda params: Random(params, seed + number), options(2, 2))
        both.train(10)
        both.check()
        both.check_states()


def test_learning_rates_of_other_kinds():
    with wide():
        both = Beside(zoo.Lion)
        for rate in (np.float64(0.01), torch.tensor(0.02), 1, np.float32(0.25)):
            for optimizer in (both.optimizer, both.reference):
                optimizer.param_groups[0]["lr"] = rate
            both.train()
            both.check()
