"""What holds for every optimizer whose step() is captured: states, forms, errors."""

import collections
import copy
import io
import types

import numpy as np
import pytest
import torch

import poptorch
from poptorch.testing import wide
from tests.helpers import check_narrow
from tests.own_step import zoo
from tests.own_step.common import Beside, Net, options, train


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


def test_blocks_on_several_ipus():
    class Blocks(Net):
        def __init__(self):
            super().__init__()
            for number, part in enumerate((self.a, self.b)):
                poptorch.BeginBlock(part, f"block{number}", ipu_id=number)

    with wide():
        both = Beside(zoo.Adai, options(4, 2), net=Blocks())
        both.train(4)
        both.check()
        both.check_states()


def test_sharded_weights():
    with wide():
        opts = options(2, 2)
        location = poptorch.TensorLocationSettings().useReplicatedTensorSharding()
        location.minElementsForReplicatedTensorSharding(2)
        opts.TensorLocations.setWeightLocation(location)
        both = Beside(zoo.AdaBelief, opts)
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


def test_python_state_of_all_kinds():
    class Kinds(zoo.Own):
        def __init__(self, params, **defaults):
            super().__init__(params, **defaults)
            self.seen, self.rates, self.pair = set(), collections.deque(maxlen=3), ([1.0], [2.0])
            self.counter = types.SimpleNamespace(steps=0)

        def update(self, p, grad, state, group):
            self.counter.steps += 1
            self.seen.add(self.counter.steps)
            self.rates.append(group["lr"] / len(self.seen))
            self.pair[0][0] += 0.5
            p.sub_(grad, alpha=sum(self.rates) * self.pair[0][0])

    with wide():
        both = Beside(Kinds)
        both.train(4)
        both.check()
        assert both.optimizer.seen == both.reference.seen == set(range(1, 21))
        assert both.optimizer.counter.steps == 20 and both.optimizer.pair == both.reference.pair
        assert both.optimizer.rates == both.reference.rates


def test_a_tensor_in_a_tuple_is_refused():
    class Tuples(zoo.Own):
        def update(self, p, grad, state, group):
            before = state.get("pair", (grad, grad))
            state["pair"] = grad.clone(), grad.neg()
            p.sub_(before[0])

    net = Net()
    with pytest.raises(poptorch.Error, match="belongs neither to the model nor to the optimizer"):
        train(Tuples(net.parameters()), net)


def test_gradients_are_clipped_in_step():
    class Clipped(zoo.Yogi):
        def step(self, closure=None):
            torch.nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 0.1)
            return super().step(closure)

    with wide():
        both = Beside(Clipped, options(4, 2))
        both.train(4)
        both.check()
        both.check_states()


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
        both.train(3)  # the weights grow by hundreds in each update
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


def test_states_like_tensors_that_are_computed():
    class Scaled(zoo.Own):
        def update(self, p, grad, state, group):
            square = (grad * grad).sum()
            if not state:
                state["square"], state["parts"] = torch.zeros_like(square), torch.ones_like(grad)
            state["square"].lerp_(square, 0.1)
            if "later" not in state:
                state["later"] = torch.zeros_like(state["parts"])
            state["later"].add_(state["parts"], alpha=0.5)
            p.sub_(grad / (state["square"].sqrt() + state["later"]), alpha=group["lr"])

    with wide():
        both = Beside(Scaled, options(2, 2))
        both.train(4)
        both.check()
        both.check_states()
        assert len(both.model.programs()) == 1


def test_states_that_are_only_written():
    class Last(zoo.Own):
        def update(self, p, grad, state, group):
            if not state:
                state["last"] = torch.zeros_like(p)
            state["last"].copy_(grad * 2)
            p.sub_(state["last"] * group["lr"])

    with wide():
        both = Beside(Last, options(2, 2, iterations=2))
        both.train(3)
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


def test_learning_rates_of_other_kinds():
    with wide():
        both = Beside(zoo.Lion)
        for rate in (np.float64(0.01), torch.tensor(0.02), 1, np.float32(0.25)):
            for optimizer in (both.optimizer, both.reference):
                optimizer.param_groups[0]["lr"] = rate
            both.train()
            both.check()
