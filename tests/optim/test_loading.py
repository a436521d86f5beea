"""What is loaded into an optimizer of poptorch.optim, and what happens before a program has it."""

import copy
import pickle

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

X = torch.tensor([1.0, 0.5, 0.25])
PACKAGES = {"poptorch": poptorch.optim, "torch": torch.optim}
KINDS = {"momentum": ("SGD", {"lr": 0.5, "momentum": 0.5}),
         "adam": ("Adam", {"lr": 0.25, "betas": (0.5, 0.75)})}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3))
        self.v = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return poptorch.identity_loss((self.w * x + self.v).square().sum(), "none")


class Outer(torch.nn.Module):
    """Calls the parameters of a module by other names; with ``swaps`` by each other's."""

    def __init__(self, net, swaps=False):
        super().__init__()
        if swaps:
            self.v, self.w = net.w, net.v
        else:
            self.net = net
        self._swaps = swaps

    def forward(self, x):
        if self._swaps:
            return poptorch.identity_loss((self.v * x + self.w).square().sum(), "none")
        return self.net(x)


class History:
    """One optimizer after the other trains a net, on the device or on the host alone."""

    def __init__(self, package, kind, on_device):
        name, self._settings = KINDS[kind]
        self._class, self._on_device = getattr(PACKAGES[package], name), on_device
        self.net = Net()
        self.optimizer = self._new()
        self._model, self._wrap = None, lambda net: net
        self._saved = None

    def _new(self):
        return self._class(self.net.parameters(), **self._settings)

    def _step(self, without=()):
        self.optimizer.zero_grad()
        self.net(X).backward()
        for name in without:
            self.net.get_parameter(name).grad = None
        self.optimizer.step()
        self.optimizer.zero_grad()

    def run(self, steps):
        """Steps in turn; the parameters and the state after them."""
        for step in steps.split():
            getattr(self, step)()
        state = self.optimizer.state_dict()["state"]
        values = [p.detach().clone() for p in self.net.parameters()]
        return values + [torch.as_tensor(value) for number in sorted(state)
                         for _, value in sorted(state[number].items())]

    def dev(self):
        if not self._on_device:
            self._step()
            return
        if self._model is None:
            self._model = poptorch.trainingModel(self._wrap(self.net), quiet_options(),
                                                 self.optimizer)
        self._model(X)

    def host(self, without=()):
        self._step(without)
        if self._model is not None and self._model.isCompiled():
            self._model.copyWeightsToDevice()

    def part(self):
        self.host(without=["v"])

    def compile(self):
        if self._on_device:
            self._model = poptorch.trainingModel(self._wrap(self.net), quiet_options(),
                                                 self.optimizer)
            self._model.compile(X)

    def destroy(self):
        if self._model is not None:
            self._model.destroy()
        self._model = None

    def outer(self):
        self._wrap = Outer

    def swapped(self):
        self._wrap = lambda net: Outer(net, swaps=True)

    def direct(self):
        self._wrap = lambda net: net

    def clear(self):
        self.optimizer.state.clear()

    def drop(self):
        self.optimizer.state.pop(self.net.w)

    def save(self):
        self._saved = copy.deepcopy(self.optimizer.state_dict())

    def load(self):
        self.optimizer.load_state_dict(copy.deepcopy(self._saved))

    def reload(self):
        self.save()
        self.load()

    def new(self):
        self.save()
        self.optimizer = self._new()
        self.load()

    def copied(self):
        self.net, self.optimizer = copy.deepcopy((self.net, self.optimizer))

    def pickled(self):
        self.net, self.optimizer = pickle.loads(pickle.dumps((self.net, self.optimizer)))


HISTORIES = [
    "dev destroy new host dev",
    "dev clear reload host dev",
    "dev destroy clear new host dev",
    "dev destroy clear new part dev",
    "compile destroy new host dev",
    "dev destroy drop new host dev",
    "dev destroy new clear host dev",
    "dev destroy new clear dev",
    "dev destroy new part dev dev",
    "dev destroy new host new dev",
    "dev destroy new part new part dev",
    "dev destroy new host copied dev",
    "dev destroy new copied host dev",
    "dev destroy clear new pickled host dev",
    "dev destroy new host compile reload host dev",
    "dev dev save destroy outer dev load dev",
    "dev dev save destroy outer new dev load dev destroy direct dev",
    "dev destroy new outer dev destroy direct dev",
    "dev destroy outer new dev host dev destroy direct dev",
    "dev part destroy swapped new dev dev",
    "dev part destroy new copied swapped dev dev",
    "dev part destroy swapped new dev destroy direct dev",
    "dev part save destroy swapped dev load dev dev",
    "dev destroy outer new clear compile reload destroy direct dev dev",
]


@pytest.mark.sampled
@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", HISTORIES)
def test_as_on_the_host_alone(steps, kind, package):
    found, expected = (History(package, kind, on_device).run(steps) for on_device in (True, False))
    torch.testing.assert_close(found, expected)


def test_the_state_of_an_equal_name_in_another_executor():
    """PyTorch's part of what was loaded says that the parameter has made no update."""
    nets = [Net(), Net()]
    eager = copy.deepcopy(nets)

    def optimizer_of(package, both):
        return package.SGD([p for net in both for p in net.parameters()], lr=0.5, momentum=0.5)

    def eager_step(number):
        reference.zero_grad()
        eager[number](X).backward()
        reference.step()

    def wrapped(number):
        return poptorch.trainingModel(nets[number], quiet_options(), optimizer)

    optimizer, reference = optimizer_of(poptorch.optim, nets), optimizer_of(torch.optim, eager)
    model = wrapped(0)
    model(X)
    eager_step(0)
    state = copy.deepcopy(optimizer.state_dict())
    model.destroy()
    optimizer = optimizer_of(poptorch.optim, nets)
    optimizer.load_state_dict(state)
    for number in (1, 0):
        wrapped(number)(X)
        eager_step(number)
    for ours, theirs in zip(nets, eager):
        torch.testing.assert_close(dict(ours.named_parameters()), dict(theirs.named_parameters()))


def test_velocities_of_no_update():
    """A velocity without a count is overwritten by the first update of a device, and used by the
    first one of the host, after which the device goes on with it."""
    results = []
    for package, on_device in ((poptorch.optim, True), (torch.optim, False)):
        net = Net()
        optimizer = package.SGD(net.parameters(), lr=0.5, momentum=0.5)
        if on_device:
            names = {f"Accl1___{name}": torch.ones(3) for name in ("w", "v")}
            model = poptorch.trainingModel(net, quiet_options(), optimizer)
            model.compile(X)
            optimizer.load_state_dict({**optimizer.state_dict(), "ipu_state": names})
        else:
            for parameter in net.parameters():
                optimizer.state[parameter]["momentum_buffer"] = torch.ones(3)
        for step in range(2):
            if step and on_device:
                model.copyWeightsToDevice()
                model(X)
                continue
            optimizer.zero_grad()
            net(X).backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append([p.detach().clone() for p in net.parameters()])
    torch.testing.assert_close(*results)


def test_names_of_several_programs():
    """Three programs call the parameters differently: a state is loaded by its own names."""
    name, settings = KINDS["momentum"]
    ours, eager = Net(), Net()

    def step(module, optimizer, x):
        poptorch.trainingModel(module, quiet_options(), optimizer)(x)
        eager(x).backward()
        eager_optimizer.step()
        eager_optimizer.zero_grad()

    eager_optimizer = torch.optim.SGD(eager.parameters(), **settings)
    first, second, third = (getattr(poptorch.optim, name)(ours.parameters(), **settings)
                            for _ in range(3))
    step(Outer(ours), first, X)
    second.load_state_dict(first.state_dict())
    poptorch.trainingModel(ours, quiet_options(), second).compile(X)
    state = second.state_dict()
    assert {key for key in state["ipu_state"] if key.startswith("Accl1")} \
        == {"Accl1___w", "Accl1___v"}
    third.load_state_dict(state)
    step(Outer(ours, swaps=True), third, X.flip(0))
    torch.testing.assert_close(dict(ours.named_parameters()), dict(eager.named_parameters()))


def without_names(optimizer):
    """A saved state as a user may write it: no program named the parameters."""
    state = copy.deepcopy(optimizer.state_dict())
    for group in state["param_groups"]:
        del group["ipu_names"]
    return {**state, "state": {}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_without_names_waits_for_a_program(kind):
    name, settings = KINDS[kind]
    ours, eager = Net(), Net()
    optimizer = getattr(poptorch.optim, name)(ours.parameters(), **settings)
    reference = getattr(torch.optim, name)(eager.parameters(), **settings)
    for step in range(2):
        if step:
            state = without_names(optimizer)
            optimizer = getattr(poptorch.optim, name)(ours.parameters(), **settings)
            optimizer.load_state_dict(state)
            assert optimizer.state_dict()["ipu_state"].keys() == state["ipu_state"].keys()
            ours, optimizer = copy.deepcopy((ours, optimizer))
        poptorch.trainingModel(ours, quiet_options(), optimizer)(X)
        eager(X).backward()
        reference.step()
        reference.zero_grad()
    torch.testing.assert_close(dict(ours.named_parameters()), dict(eager.named_parameters()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_on_the_host_with_a_state_without_names(kind):
    """The step would begin without what was loaded, which would undo it later."""
    name, settings = KINDS[kind]
    optimizers, nets = [], (Net(), Net())
    for net in nets:
        optimizers.append(getattr(poptorch.optim, name)(net.parameters(), **settings))
    poptorch.trainingModel(nets[0], quiet_options(), optimizers[0])(X)
    optimizer = optimizers[1]
    optimizer.load_state_dict(without_names(optimizers[0]))
    nets[1](X).backward()
    before = [p.detach().clone() for p in nets[1].parameters()]
    for stepped in (optimizer, copy.deepcopy(optimizer)):
        with pytest.raises(poptorch.Error, match=r"\[step\] Accl1___w was loaded from a state "
                                                 r"without the names .* Compile the model"):
            stepped.step()
    torch.testing.assert_close([p.detach() for p in nets[1].parameters()], before)
    poptorch.trainingModel(nets[1], quiet_options(), optimizer).compile(X)
    optimizer.step()


class Part(torch.nn.Module):
    """One of the parameters, by the name of the other one."""

    def __init__(self, net):
        super().__init__()
        self.w = net.v

    def forward(self, x):
        return poptorch.identity_loss((self.w + x).square().sum(), "none")


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_without_names_after_one_that_waits(kind):
    """Two programs call different parameters the same, so that states have no names: what an
    optimizer in between was loaded with, and no program took, is older."""
    name, settings = KINDS[kind]
    ours, eager = Net(), Net()
    optimizers = [getattr(poptorch.optim, name)(ours.parameters(), **settings) for _ in range(3)]
    eager_optimizer = getattr(torch.optim, name)(eager.parameters(), **settings)
    modules = ours, Part(ours)
    models = [poptorch.trainingModel(module, quiet_options(), optimizers[0]) for module in modules]
    states = []

    def step(number):
        models[number](X)
        (eager, Part(eager))[number](X).backward()
        eager_optimizer.step()
        eager_optimizer.zero_grad()

    for number in (0, 1):
        step(number)
        states.append(copy.deepcopy(optimizers[0].state_dict()))
    assert states[0]["ipu_state"] and not states[1]["ipu_state"]
    for optimizer, state in zip(optimizers[1:], states):
        optimizer.load_state_dict(state)
        for model in models:
            model.setOptimizer(optimizer)
    for number in (0, 1):
        step(number)
    torch.testing.assert_close(dict(ours.named_parameters()), dict(eager.named_parameters()))


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_one_of_two_programs(kind):
    """A state has names of one program, the other one had a step on the host; it is loaded where
    the other one has given these names to its own parameters."""
    name, settings = KINDS[kind]
    nets = [Net(), Net()]
    eager = copy.deepcopy(nets)

    def new_pair():
        return [getattr(package, name)([p for net in both for p in net.parameters()], **settings)
                for package, both in ((poptorch.optim, nets), (torch.optim, eager))]

    def step(number, x=X):
        model = poptorch.trainingModel(nets[number], quiet_options(), optimizer)
        model(x)
        model.destroy()
        eager_step(number, x)

    def eager_step(number, x, parts=eager):
        parts[number](x).backward()
        used = reference if parts is eager else optimizer
        used.step()
        used.zero_grad()

    optimizer, reference = new_pair()
    for parts in (nets, eager):
        eager_step(0, X, parts)
    step(1, X.flip(0))
    states = [copy.deepcopy(used.state_dict()) for used in (optimizer, reference)]
    assert len(states[0]["state"]) == 4
    assert {name.partition("___")[2] for name in states[0]["ipu_state"]} == {"w", "v"}
    optimizer, reference = new_pair()
    step(0)
    for used, state in zip((optimizer, reference), states):
        used.load_state_dict(state)
    for number in (0, 1):
        step(number)
    for ours, theirs in zip(nets, eager):
        torch.testing.assert_close(dict(ours.named_parameters()), dict(theirs.named_parameters()))
