"""Which parameters an optimizer updates: others, none, and those that come later."""

import collections
import copy

import pytest
import torch

import poptorch
from poptorch._optimizer.link import OptimizerLink
from tests.helpers import quiet_options
from tests.optimizer.test_live_states import (  # noqa: F401  (wide is a fixture)
    DTYPE,
    Pair,
    check_states,
    make,
    wide,
)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 3)
        self.second = torch.nn.Linear(3, 2)

    def forward(self, x):
        return poptorch.identity_loss(self.second(torch.tanh(self.first(x))).square(), "mean")


def x():
    return torch.randn(5, 4, dtype=DTYPE)


@pytest.mark.parametrize("package", ["torch", "poptorch"])
def test_an_optimizer_of_another_module_is_refused(package):
    words = (r"\[trainingModel\] none of the 4 parameters of the optimizer SGD is one of the 4 "
             r"parameters of the wrapped Net")
    with pytest.raises(poptorch.Error, match=words):
        poptorch.trainingModel(Net(), quiet_options(), make(package, "momentum",
                                                            Net().parameters()))
    net = Net()
    model = poptorch.trainingModel(net, quiet_options(), make(package, "sgd", net.parameters()))
    with pytest.raises(poptorch.Error, match=r"\[setOptimizer\] none of the 4 parameters"):
        model.setOptimizer(make(package, "sgd", Net().parameters()))


def test_one_that_holds_others_too_is_warned_of_once(capsys):
    net, other = Net(), Net()
    optimizer = torch.optim.SGD([*net.parameters(), *other.parameters()], lr=0.1)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    for _ in range(2):
        model(x().float())
        model.setOptimizer(optimizer)
    words = "4 of the 8 parameters of the optimizer SGD do not belong to the model Net"
    assert capsys.readouterr().err.count(words) == 1


class Pairs(Pair):
    """Of the net above, the optimizer of a part of it."""

    def __init__(self, kind="adam"):
        super().__init__("torch", kind, Net())
        self.model.destroy()
        self.optimizer = make("torch", kind, self.net.first.parameters())
        self.reference = make("torch", kind, self.eager.first.parameters())
        self.wrap()

    def train(self, steps=1):
        for _ in range(steps):
            given = x()
            self.model(given)
            self.reference.zero_grad()
            self.eager(given).backward()
            self.reference.step()

    def add(self):
        for optimizer, net in ((self.optimizer, self.net), (self.reference, self.eager)):
            optimizer.add_param_group({"params": list(net.second.parameters()), "lr": 0.03})


@pytest.mark.parametrize("calls_set", [False, True])
def test_a_group_that_comes_later_is_taken_up(calls_set):
    pair = Pairs()
    pair.train(2)
    pair.check()
    pair.add()
    if calls_set:
        pair.model.setOptimizer(pair.optimizer)
    pair.train(2)
    pair.check()
    assert pair.optimizer.state[pair.net.second.bias]["step"] == 2


def test_a_parameter_that_comes_later_is_taken_up():
    pair = Pairs()
    pair.train(2)
    for optimizer, net in ((pair.optimizer, pair.net), (pair.reference, pair.eager)):
        optimizer.param_groups[0]["params"].append(net.second.weight)
    pair.train(2)  # one group, whose parameters have different step counts
    pair.check()
    for optimizer in (pair.optimizer, pair.reference):
        del optimizer.state[optimizer.param_groups[0]["params"].pop(0)]
    pair.train(2)
    pair.check()


def test_a_group_that_comes_later_leaves_the_random_state():
    class Drops(Net):
        def forward(self, x):
            return torch.nn.functional.dropout(x), super().forward(x)

    results = []
    for grows in (False, True):
        torch.manual_seed(0)
        net = Drops()
        optimizer = torch.optim.SGD(net.first.parameters(), lr=0.0)
        model = poptorch.trainingModel(net, quiet_options(randomSeed=7), optimizer)
        model(torch.ones(5, 4))
        if grows:
            optimizer.add_param_group({"params": list(net.second.parameters())})
        results.append(model(torch.ones(5, 4))[0])
    assert torch.equal(*results)


def test_another_optimizer_with_more_is_refused():
    net = Net()
    model = poptorch.trainingModel(net, quiet_options(),
                                   torch.optim.SGD(net.first.parameters(), lr=0.1))
    model(x().float())
    with pytest.raises(ValueError, match="parameter group 0 without second.weight is already "
                                         "compiled"):
        model.setOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
    more = torch.optim.SGD(net.first.parameters(), lr=0.1)
    more.add_param_group({"params": list(net.second.parameters())})
    with pytest.raises(ValueError, match="a number of 1 parameter groups is already compiled, "
                                         "got 2"):
        model.setOptimizer(more)


def test_steps_of_parameters_that_differ():
    """Such states come from training parts of a model on the CPU."""
    pair = Pair("torch", "adam")
    for optimizer, net in ((pair.optimizer, pair.net), (pair.reference, pair.eager)):
        for parameter in (net.fc.weight, net.conv.bias):
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
    pair.train(2)
    pair.check()
    pair.net.fc.bias.grad, pair.eager.fc.bias.grad = (torch.ones(2, dtype=DTYPE) for _ in "ab")
    for optimizer in (pair.optimizer, pair.reference):
        optimizer.step()  # now on a compiled model
    pair.model.copyWeightsToDevice()
    pair.train()
    pair.check()


@pytest.mark.parametrize("package", ["torch", "poptorch"])
@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_one_optimizer_on_two_executors(package, kind):
    class Single(torch.nn.Linear):
        def forward(self, x):
            return poptorch.identity_loss(super().forward(x).square(), "mean")

    nets = torch.nn.ModuleList([Single(4, 4), Single(4, 4)]).double()
    eager = torch.nn.ModuleList([Single(4, 4), Single(4, 4)]).double()
    eager.load_state_dict(nets.state_dict())
    optimizer = make(package, kind, nets.parameters())
    reference = make("torch", kind, eager.parameters())
    models = [poptorch.trainingModel(net, quiet_options(), optimizer) for net in nets]
    for which in (0, 1, 1, 0, 0):
        given = x()
        models[which](given)
        reference.zero_grad()
        eager[which](given).backward()
        reference.step()
    check_states(optimizer, reference)
    models[0].destroy()
    check_states(optimizer, reference)
    given = x()
    models[1](given)
    reference.zero_grad()
    eager[1](given).backward()
    reference.step()
    check_states(optimizer, reference)


def test_a_new_optimizer_goes_on_with_the_state_and_the_old_one_keeps_its_own():
    pair = Pair("torch", "adam")
    pair.train(2)
    old, kept = pair.optimizer, pair.reference.state_dict()
    pair.optimizer = make("torch", "adam", pair.net.parameters())
    pair.model.setOptimizer(pair.optimizer)
    pair.check()
    old_reference = make("torch", "adam", pair.eager.parameters())
    old_reference.load_state_dict(copy.deepcopy(kept))
    pair.train(2)
    pair.check()
    check_states(old, old_reference)


def test_a_new_optimizer_shares_no_memory_with_the_old_one():
    pair = Pair("torch", "adam")
    pair.train()
    old = pair.optimizer
    kept = copy.deepcopy(old.state_dict())
    pair.optimizer = make("torch", "adam", pair.net.parameters())
    pair.model.setOptimizer(pair.optimizer)
    pair.cpu_step()
    pair.check()
    for number, entry in old.state_dict()["state"].items():
        assert torch.equal(entry["exp_avg"], kept["state"][number]["exp_avg"])


def test_a_new_optimizer_after_the_state_was_replaced():
    pair = Pair("torch", "adam")
    pair.train(2)
    pair.optimizer.state = collections.defaultdict(dict)
    pair.optimizer = make("torch", "adam", pair.net.parameters())
    pair.reference.state.clear()
    pair.model.setOptimizer(pair.optimizer)
    pair.train()
    pair.check()


def test_a_new_optimizer_with_a_state_brings_it():
    pair = Pair("torch", "adam")
    pair.train(2)
    state = pair.reference.state_dict()
    pair.train()
    for name, net in (("optimizer", pair.net), ("reference", pair.eager)):
        other = make("torch", "adam", net.parameters())
        other.load_state_dict(copy.deepcopy(state))
        setattr(pair, name, other)
    pair.model.setOptimizer(pair.optimizer)
    pair.train()
    pair.check()


def test_equal_names_in_two_executors():
    """State of poptorch.optim is loaded into the right parameters, whatever was compiled last."""
    class Single(torch.nn.Linear):
        def forward(self, x):
            return poptorch.identity_loss(super().forward(x).square(), "mean")

    nets = torch.nn.ModuleList([Single(4, 4), Single(4, 4)]).double()
    optimizer = make("poptorch", "adam", nets.parameters())
    models = [poptorch.trainingModel(net, quiet_options(), optimizer) for net in nets]
    for number in (1, 0, 0):
        models[number](x())
    state = copy.deepcopy(optimizer.state_dict())
    assert not state["ipu_state"]
    kept = {number: entry["exp_avg"] for number, entry in state["state"].items()}
    models[1].destroy()
    models[1].compile(x())
    for target in (optimizer, make("poptorch", "adam", nets.parameters())):
        target.load_state_dict(state)
        found = target.state_dict()["state"]
        assert all(torch.equal(found[number]["exp_avg"], value) for number, value in kept.items())


def test_ipu_state_of_some_parameters():
    """It is laid over PyTorch's part of the state, which has all parameters."""
    pair = Pair("poptorch", "adam")
    pair.train(2)
    state = pair.optimizer.state_dict()
    state["ipu_state"] = {"Accl1___fc.bias": torch.ones(2, dtype=DTYPE)}
    other = make("poptorch", "adam", pair.net.parameters())
    other.load_state_dict(state)
    pair.reference.state[pair.eager.fc.bias]["exp_avg"].fill_(1.0)
    check_states(other, pair.reference)


def test_an_optimizer_of_layers_that_were_replaced_after_wrapping():
    net = Net()
    model = poptorch.trainingModel(net, quiet_options(), make("torch", "sgd", net.parameters()))
    net.first, net.second = Net().first.to(DTYPE), Net().second.to(DTYPE)
    with pytest.raises(poptorch.Error, match="none of the 4 parameters of the optimizer SGD is"):
        model(x())
    model.setOptimizer(make("torch", "sgd", net.parameters()))
    assert model(x()) > 0


@pytest.mark.parametrize("members", [list, lambda: list(Net().parameters())],
                         ids=["none", "others"])
def test_an_optimizer_that_loses_its_parameters(members):
    net = Net()
    optimizer = make("torch", "sgd", net.parameters())
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model(x())
    optimizer.param_groups[0]["params"] = members()
    with pytest.raises(poptorch.Error, match="is one of the 4 parameters of the wrapped Net"):
        model(x())


def test_hooks_of_step_are_told_of_once(capsys):
    net = Net()
    optimizer = make("torch", "sgd", net.parameters())
    optimizer.register_step_post_hook(lambda *_: None)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model.setOptimizer(optimizer)
    assert capsys.readouterr().err.count("SGD has hooks of step()") == 1


class Totals(torch.nn.Module):
    """Has a buffer that runs change."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.ones(())) for _ in range(2))
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.total += x.sum()
        loss = (self.first * self.second * x).sum()
        return self.total.clone(), poptorch.identity_loss(loss, "sum")


@pytest.mark.parametrize("happens", ["nothing", "detached", "written"])
def test_buffers_of_each_replica_go_on_when_parameters_come(happens):
    net = Totals()
    optimizer = torch.optim.SGD([net.first], lr=0.1)
    model = poptorch.trainingModel(net, quiet_options(replicationFactor=2, broadcastBuffers=False),
                                   optimizer)
    x, expected = torch.tensor([9.0, 2.0]), [18.0, 4.0]
    model(x)
    optimizer.add_param_group({"params": [net.second]})
    if happens == "detached":
        model.detachFromDevice()
    if happens == "written":
        net.total.fill_(100)
        model.copyWeightsToDevice()
        expected = [109.0, 102.0]
    assert model(x)[0].tolist() == expected
    assert net.second.item() != 1 and net.total.item() == expected[0]


def test_which_program_of_an_executor_fits_the_optimizer():
    """Two executors have the programs; a link has both, as that of one executor would."""
    net, other = Net(), Net()
    other.first, other.second = net.first, net.second
    optimizer = torch.optim.SGD(net.first.parameters(), lr=0.1)
    link, programs = OptimizerLink(net, optimizer), []
    for module in (net, other):
        model = poptorch.trainingModel(module, quiet_options(), optimizer)
        model.compile(x().float())
        compiled = model._programs.require("test")
        programs.append(compiled.program)
        link.compiled(compiled.program, compiled.executable, can_run=True)
        if module is net:
            assert link.recompile_reason() is None
            optimizer.add_param_group({"params": net.second.parameters()})
            assert "parameters or groups were added" in link.recompile_reason()
    first, second = programs
    link.set(torch.optim.SGD([{"params": part.parameters()} for part in (net.first, net.second)],
                             lr=0.1))
    assert "parameters or groups were added" in link.recompile_reason(first)
    assert link.recompile_reason() is link.recompile_reason(second) is None
    link.set(torch.optim.SGD([{"params": part.parameters(), "lr": 0.1}
                              for part in (net.first, net.second)]))
    assert link.recompile_reason(second) is None
    link.optimizer.param_groups.pop()
    link.select(first)
    assert link.recompile_reason() is None
    link.optimizer.param_groups[0]["momentum"] = 0.5
    link.select(second)
    assert "update without momentum of parameter group 0 is already compiled" \
        in link.recompile_reason(first)
    link.forget()
