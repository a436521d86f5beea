"""detachFromDevice, attachToDevice: what a program keeps, and what it gives back."""

import copy
import threading

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import RunningTotal, quiet_options

X = torch.linspace(-1, 1, 12).reshape(4, 3)


class Net(nn.Module):
    """Draws random numbers, and has a buffer that runs change."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.drop = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.25)

    def forward(self, x):
        y = self.drop(self.norm(self.fc(x)))
        return y, poptorch.identity_loss((y * y).mean(), "none")


def trained(seed=7, optimizer=torch.optim.Adam, **options):
    torch.manual_seed(seed)
    net = Net()
    own = optimizer(net.parameters(), lr=0.1)
    return net, own, poptorch.trainingModel(net, quiet_options(randomSeed=seed, **options), own)


def values(net):
    return [tensor.detach().clone() for tensor in net.state_dict().values()]


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("how", ["call", "attach", "read", "twice"])
def test_training_goes_on_bit_for_bit(how):
    (net, _, model), (plain, _, other) = trained(), trained()
    for step in range(6):
        assert same(model(X), other(X))
        if step % 2:
            continue
        model.detachFromDevice()
        assert model.isCompiled() and not model.isAttachedToDevice() and not model._is_attached
        assert model._executable, "it was compiled, and is"
        if how == "read":
            assert same(values(net), values(plain))
        if how in ("attach", "twice"):
            model.attachToDevice()
            assert model.isAttachedToDevice() and model._is_attached
        if how == "twice":
            model.detachFromDevice()
            model.attachToDevice()
    assert model.isAttachedToDevice() and same(values(net), values(plain))


def test_what_is_not_possible():
    _, _, model = trained()
    with pytest.raises(poptorch.Error, match="Model has not been compiled or has been destroyed"):
        model.attachToDevice()
    with pytest.raises(poptorch.Error, match=r"^\[detachFromDevice\] Device is not attached"):
        model.detachFromDevice()
    model(X)
    with pytest.raises(poptorch.Error, match=r"^\[attachToDevice\] Device is already attached"):
        model.attachToDevice()
    model.detachFromDevice()
    with pytest.raises(poptorch.Error, match=r"^\[detachFromDevice\] Device is not attached"):
        model.detachFromDevice()
    model.destroy()
    with pytest.raises(poptorch.Error, match="Model has not been compiled or has been destroyed"):
        model.attachToDevice()
    never = poptorch.inferenceModel(Net(), quiet_options(
        connectionType=poptorch.ConnectionType.Never))
    never.compile(X)
    with pytest.raises(AssertionError, match="Trying to run a model on an offline device"):
        never.attachToDevice()
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        never.detachFromDevice()


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((1024, 4096), 1e-3))

    def forward(self, x):
        return poptorch.identity_loss(torch.tanh(x @ self.weight).mean(), "none")


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_memory_is_given_back(training):
    net, x = Wide(), torch.ones(2048, 1024)
    if training:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        model = poptorch.trainingModel(net, quiet_options(), optimizer)
    else:
        model = poptorch.inferenceModel(net, quiet_options())
    first = model(x)
    arena = model._executable.memory_report()["arena"]
    assert arena > 32e6 and model._executable.has_memory
    model.copyWeightsToHost()
    before = resident_bytes()
    model.detachFromDevice()
    # For inference at least the product: the weight's pages are those of the module.
    gone = arena if training else 2048 * 4096 * 4
    assert resident_bytes() < before - 0.9 * gone and not model._executable.has_memory
    second = model(x)
    assert (second < first) if training else torch.equal(second, first)


def test_the_state_of_the_optimizer_is_kept_and_can_be_read():
    (_, optimizer, model), (_, others, other) = trained(), trained()
    model(X), other(X), model.detachFromDevice()
    found, expected = optimizer.state_dict()["state"], others.state_dict()["state"]
    assert same(found[0].values(), expected[0].values()) and found[0]["exp_avg"].any()
    optimizer.load_state_dict(optimizer.state_dict())
    assert same(model(X), other(X))


def test_random_state_while_detached():
    (_, _, model), (_, _, other) = trained(), trained()
    model(X), other(X), model.detachFromDevice()
    assert model.rng_state == other.rng_state
    state, first = model.rng_state, model(X)[0]
    model.detachFromDevice()
    model.rng_state = state
    model.attachToDevice()
    assert model.rng_state == state and torch.equal(model(X)[0] == 0, first == 0)


def test_saved_while_detached(tmp_path):
    (_, _, model), (_, _, other) = trained(), trained()
    model(X), other(X), model.detachFromDevice()
    again = poptorch.load(model.save(tmp_path / "net.poptorch"))
    expected = other(X)
    assert same(again(X), expected)
    again.detachFromDevice()
    assert same(again(X), other(X)) and same(model(X), expected)


def test_executors_that_share_weights():
    net, _, model = trained(optimizer=torch.optim.SGD)
    model(X)
    inference = poptorch.inferenceModel(net.eval(), quiet_options())
    inference(X)
    for _ in range(2):
        model(X), model.detachFromDevice()
        torch.testing.assert_close(inference(X)[0], net(X)[0], rtol=1e-5, atol=1e-6)
        inference.detachFromDevice()
    model(X)
    torch.testing.assert_close(inference(X)[0], net(X)[0], rtol=1e-5, atol=1e-6)


def test_writes_of_the_host_while_detached():
    """No program has a copy: what the host has is what counts."""
    net = nn.Linear(3, 2)
    model = poptorch.inferenceModel(net, quiet_options())
    model(X), model.detachFromDevice()
    with torch.no_grad():
        net.weight.zero_(), net.bias.fill_(3)
    assert torch.equal(model(X), torch.full((4, 2), 3.0))


def test_writes_of_the_host_that_another_executor_does_not_see():
    net, _, other = trained()
    model = poptorch.inferenceModel(net.fc, quiet_options())
    other(X), model(X), model.detachFromDevice()
    before = net.fc.bias.detach().clone()
    with torch.no_grad():
        net.fc.weight.zero_(), net.fc.bias.fill_(3)
    torch.testing.assert_close(model(torch.zeros(4, 3)), before.expand(4, 4))
    model.detachFromDevice()
    model.copyWeightsToDevice()
    assert torch.equal(model(X), torch.full((4, 4), 3.0))


def test_copies_while_detached():
    net, _, model = trained()
    model(X), model.detachFromDevice()
    before = values(net)
    model.copyWeightsToHost()
    assert same(values(net), before) and model.copyWeightsToHostIfNeeded() is False
    with torch.no_grad():
        net.fc.bias.add_(1)
    model.copyWeightsToDevice()
    assert not model.isAttachedToDevice()
    model.attachToDevice()
    model.copyWeightsToHost()
    assert torch.equal(net.fc.bias, before[1] + 1)


def test_a_copy_to_the_device_while_another_executor_has_trained():
    """The host was not written: what was trained holds, not the older value of the host."""
    net, _, model = trained(optimizer=torch.optim.SGD)
    inference = poptorch.inferenceModel(copy.copy(net).eval(), quiet_options())
    inference(X), inference.detachFromDevice()
    model(X)
    inference.copyWeightsToDevice()
    torch.testing.assert_close(inference(X)[0], net.eval()(X)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_written", [False, True], ids=["kept", "written"])
def test_buffers_of_each_replica(is_written):
    net = RunningTotal()
    model = poptorch.inferenceModel(net, quiet_options(replicationFactor=2,
                                                       broadcastBuffers=False))
    x = torch.tensor([9.0, 2.0])
    assert model(x).tolist() == [9.0, 2.0]
    model.copyWeightsToHost(), model.detachFromDevice()
    if is_written:
        net.total.fill_(100)
    assert model(x).tolist() == ([109.0, 102.0] if is_written else [18.0, 4.0])


def test_weights_of_each_replica():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor([[1.0], [10.0]]))

        def forward(self, x):
            return poptorch.identity_loss((x * self.scale).sum(), "none")

    def run(detaches):
        net = Scale()
        model = poptorch.trainingModel(net, quiet_options(replicationFactor=2),
                                       torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.5))
        model.scale.replicaGrouping(poptorch.CommGroupType.NoGrouping, 0,
                                    poptorch.VariableRetrievalMode.OnePerGroup)
        for _ in range(3):
            model(torch.tensor([[1.0], [2.0]]))
            if detaches:
                model.detachFromDevice()
        return net.scale.detach().clone()

    assert torch.equal(run(True), run(False))


def test_a_module_that_changes_while_its_executor_is_detached():
    net, _, model = trained()
    model(X), model.detachFromDevice()
    weight, net.fc.weight = net.fc.weight, nn.Parameter(torch.ones(4, 3))
    model.attachToDevice(), model(X)
    assert model.programs()[-1].reason.startswith("self.fc.weight changed from a float32[4, 3] ")
    net.fc.weight = weight
    model.detachFromDevice(), model(X)
    assert len(model.programs()) == 3, "Adam has made other numbers of steps for the weight"


def test_attaching_that_fails_changes_nothing():
    """Two weights in one memory, both changed by runs: no program can have them."""
    (net, _, model), (_, _, other) = trained(), trained()
    model(X), other(X), model.detachFromDevice()
    data = net.norm.weight.data
    net.norm.weight.data = net.norm.bias.data
    with pytest.raises(poptorch.Error, match="lie in the same memory"):
        model.attachToDevice()
    assert not model.isAttachedToDevice() and not model._executable.has_memory
    net.norm.weight.data = data
    assert same(model(X), other(X)) and same(model(X), other(X))


def test_a_system_without_memory(monkeypatch):
    model = poptorch.inferenceModel(nn.ReLU(), quiet_options())
    model(X), model.detachFromDevice()
    fails = type("Full", (), {"has_state": lambda *_: False, "states": lambda _: [],
                              "ipus": 1,
                              "restore": lambda _: (_ for _ in ()).throw(MemoryError())})()
    with monkeypatch.context() as patch:
        patch.setitem(vars(model._programs.current), "executable", fails)
        with pytest.raises(MemoryError):
            model(X)
    assert not model.isAttachedToDevice()
    assert torch.equal(model(X), X.relu())


def test_calls_in_other_threads():
    """A call that has begun is waited for; one that begins meanwhile attaches again."""
    model = poptorch.inferenceModel(nn.Linear(3, 2), quiet_options())
    expected, found, is_over = model(X), [], threading.Event()

    def call():
        while not is_over.is_set():
            found.append(torch.equal(model(X), expected))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    detached = 0
    while detached < 30:
        if model.isAttachedToDevice():
            try:
                model.detachFromDevice()
                detached += 1
            except poptorch.Error as error:  # a call had not attached it again
                assert "Device is not attached" in str(error)
    is_over.set()
    for thread in threads:
        thread.join()
    assert found and all(found)


def test_a_forgotten_executor_that_is_detached():
    net, optimizer, model = trained()
    model(X), model.detachFromDevice()
    before = values(net)
    del model
    assert same(values(net), before) and optimizer.state[net.fc.weight]["exp_avg"].any()


def test_an_optimizer_that_goes_to_another_executor():
    (net, optimizer, model), (_, _, other) = trained(), trained()
    model(X), other(X), model.detachFromDevice()
    net.destroy()
    again = poptorch.trainingModel(net, quiet_options(randomSeed=7), optimizer)
    again.compile(X)
    again.rng_state = other.rng_state
    assert same(again(X), other(X))
