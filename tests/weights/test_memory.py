"""Tensors that share memory: eager's result, or an error that names both."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from poptorch import Error
from tests.helpers import quiet_options

X = torch.tensor([[1.0, -2.0], [0.5, 3.0]])


class Net(nn.Module):
    """Two layers and a buffer; ``share`` puts some of it into one memory."""

    def __init__(self, share, changes=False):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.register_buffer("seen", torch.zeros(2))
        self.changes = changes
        share(self)

    def forward(self, x):
        if self.changes:
            self.seen.add_(1.0)
        y = self.b(self.a(x)) + self.seen
        return y, poptorch.identity_loss((y * y).mean(), "none")


def by_data(net):
    net.b.weight.data = net.a.weight.data


def by_parameter(net):
    net.b.weight = nn.Parameter(net.a.weight.data)


def by_view(net):
    net.seen = net.a.weight.data[0]


def by_transposed_view(net):
    net.b.weight.data = net.a.weight.data.T


SHARES = {"data": (by_data, "a.weight and b.weight"),
          "parameter": (by_parameter, "a.weight and b.weight"),
          "view": (by_view, "a.weight and seen"),
          "transposed": (by_transposed_view, "a.weight and b.weight")}


def training(net):
    return poptorch.trainingModel(net, quiet_options(),
                                  torch.optim.SGD(net.parameters(), lr=0.1))


def inference(net):
    return poptorch.inferenceModel(net, quiet_options())


def check_names(error, names):
    first, _, second = names.partition(" and ")
    assert first in error.message and second in error.message
    assert "lie in the same memory" in error.message and "clone()" in error.message


@pytest.mark.parametrize("share", SHARES)
def test_inference_reads_both(share):
    net = Net(SHARES[share][0])
    model = inference(net)
    torch.testing.assert_close(model(X)[0], net(X)[0].detach())
    with torch.no_grad():
        net.a.weight.mul_(-2.0)
    model.copyWeightsToDevice()
    torch.testing.assert_close(model(X)[0], net(X)[0].detach())


@pytest.mark.parametrize("share", SHARES)
def test_training_changes_one_of_both(share):
    share, names = SHARES[share]
    model = training(Net(share))
    for _ in range(2):
        with pytest.raises(Error) as caught:
            model(X)
        check_names(caught.value, names)
        assert not model.isCompiled()


def test_forward_changes_a_view_of_a_parameter():
    model = inference(Net(by_view, changes=True))
    with pytest.raises(Error) as caught:
        model(X)
    check_names(caught.value, "seen and a.weight")


def test_parts_of_one_memory():
    def share(net):
        flat = torch.randn(16)
        net.a.weight.data, net.b.weight.data = flat[:4].view(2, 2), flat[4:8].view(2, 2)
        net.a.bias.data, net.b.bias.data = flat[8:12:2], flat[9:12:2]

    net = Net(share)
    eager = copy.deepcopy(net)
    model, validated = training(net), inference(net)
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    for _ in range(3):
        torch.testing.assert_close(model(X)[1], eager(X)[1].detach())
        optimizer.zero_grad()
        eager(X)[1].backward()
        optimizer.step()
        torch.testing.assert_close(validated(X)[0], eager(X)[0].detach())
    for ours, theirs in zip(net.parameters(), eager.parameters()):
        torch.testing.assert_close(ours, theirs)


class Part(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        y = x @ self.weight
        return y, poptorch.identity_loss((y * y).mean(), "none")


@pytest.mark.parametrize("view", [lambda w: w, lambda w: w.T, lambda w: w[:, :1]],
                         ids=["all", "transposed", "a column"])
def test_executors_of_different_tensors_of_one_memory(view):
    weight = torch.randn(2, 2)
    trained, other = Part(weight), Part(view(weight))
    model, validated = training(trained), inference(other)
    for _ in range(2):
        torch.testing.assert_close(validated(X)[0], (X @ view(trained.weight)).detach())
        model(X)
    with torch.no_grad():
        trained.weight.zero_()
    expected = validated(X)[0]
    assert expected.any(), "a pending write"
    third = inference(other)
    assert torch.equal(third(X)[0], expected)
    model.copyWeightsToDevice()
    assert not validated(X)[0].any() and not third(X)[0].any()


def test_other_memory_after_compilation():
    net = Net(lambda net: None)
    model, other = inference(net), inference(net.a)
    model(X), other(X)
    torch.nn.utils.vector_to_parameters(torch.arange(12.0), net.parameters())
    torch.testing.assert_close(other(X), net.a(X).detach())  # which has one of the two layers
    third = inference(net)
    torch.testing.assert_close(model(X)[0], net(X)[0].detach())
    torch.testing.assert_close(third(X)[0], net(X)[0].detach())
    torch.testing.assert_close(other(X), net.a(X).detach())


def test_one_memory_after_compilation():
    net = Net(lambda net: None)
    model = training(net)
    model(X)
    net.b.weight.data = net.a.weight.data
    for call in (lambda: model(X), model.copyWeightsToDevice):
        with pytest.raises(Error) as caught:
            call()
        assert "b.weight was given the memory of a.weight" in caught.value.message
    net.b.weight.data = net.b.weight.data.clone()
    model.copyWeightsToDevice()
    expected = net(X)[0].detach()  # before the step
    torch.testing.assert_close(model(X)[0], expected)


class InPlace(nn.Module):
    def forward(self, x, y):
        x.add_(1)
        return x * y


def test_one_argument_twice():
    x = torch.ones(2)
    model = inference(InPlace())
    with pytest.raises(Error, match="changes x in place, and y shares memory with x; "):
        model(x, x)
    assert torch.equal(x, torch.ones(2))
    halves = torch.ones(4)
    assert torch.equal(model(halves[:2], halves[2:]), torch.full((2,), 2.0))


PLAIN = torch.ones(2)


class BesidePlain(nn.Module):
    """Changes its argument, or a plain tensor."""

    def __init__(self, change):
        super().__init__()
        self.held, self.change = torch.ones(4), change

    def forward(self, x):
        self.change(self, x)
        return x * self.held[:2] * PLAIN


@pytest.mark.parametrize("change, give, words", [
    (lambda net, x: x.add_(1), lambda net: net.held[1:3], "changes x in place, and x shares "
                                                          "memory with self.held, which is "),
    (lambda net, x: x.add_(1), lambda net: PLAIN, r"memory with a tensor of the sizes \[2\]"),
    (lambda net, x: net.held.add_(1), lambda net: net.held[:2],
     r"changes a tensor of the sizes \[4\] in place, and x shares memory with")])
def test_a_plain_tensor_as_an_argument(change, give, words):
    net = BesidePlain(change)
    model = inference(net)
    with pytest.raises(Error, match=words + r".* Pass x.clone\(\)"):
        model(give(net))
    assert torch.equal(net.held, torch.ones(4)) and torch.equal(PLAIN, torch.ones(2))
    assert torch.equal(model(torch.ones(2)), torch.full((2,), 2.0))
    unchanged = BesidePlain(lambda net, x: None)
    assert torch.equal(inference(unchanged)(unchanged.held[2:]), torch.ones(2))


class Counting(nn.Module):
    """Changes a buffer, or its argument."""

    def __init__(self, of_argument):
        super().__init__()
        self.of_argument = of_argument
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x):
        (x if self.of_argument else self.count).add_(1)
        return x * self.weight + self.count


@pytest.mark.parametrize("give", [lambda t: t, lambda t: t.detach(), lambda t: t.view(1, 2)[0]],
                         ids=["itself", "detached", "view"])
def test_a_buffer_that_forward_changes_as_an_argument(give):
    net = Counting(of_argument=False)
    model = inference(net)
    with pytest.raises(Error, match=r"changes count in place, and x shares memory with count; "
                                    r".* Pass x.clone\(\)"):
        model(give(net.count))
    torch.testing.assert_close(model(give(net.count).clone()), torch.ones(2))
    weight = net.weight.detach()
    torch.testing.assert_close(model(weight), weight + 2)


def test_a_parameter_as_an_argument_that_forward_changes():
    net = Counting(of_argument=True)
    model = inference(net)
    with pytest.raises(Error, match=r"changes x in place, and x shares memory with weight"):
        model(net.weight.detach())
    torch.testing.assert_close(net.weight.detach(), torch.ones(2))
    torch.testing.assert_close(model(torch.ones(2)), torch.full((2,), 2.0))


def test_tied_weights_train_as_one():
    def share(net):
        net.b.weight = net.a.weight

    net = Net(share)
    eager = copy.deepcopy(net)
    model = training(net)
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    for _ in range(2):
        model(X)
        optimizer.zero_grad()
        eager(X)[1].backward()
        optimizer.step()
    torch.testing.assert_close(net.b.weight, eager.b.weight)
    assert net.b.weight is net.a.weight


@pytest.mark.parametrize("is_written", [False, True], ids=["read", "written"])
def test_a_named_buffer_in_the_memory_of_a_trained_parameter(is_written):
    class Shared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            memory = torch.ones(4)
            self.w = torch.nn.Parameter(memory[:2])
            self.register_buffer("b", memory[2:])

        def forward(self, x):
            return self.w * 1, poptorch.identity_loss((self.w * self.b * x).sum(), "sum")

    net = Shared()
    model = poptorch.trainingModel(net, quiet_options(updatableNamedBuffers=(["b"],)),
                                   torch.optim.SGD(net.parameters(), lr=0.125))
    x, by_numpy = torch.ones(1), net.b.numpy()
    model(x)
    if is_written:
        by_numpy[:] = 4
    model.copyNamedBuffersToDevice()
    assert model(x)[0].tolist() == [0.875, 0.875]
    assert net.w.tolist() == [0.375, 0.375] if is_written else [0.75, 0.75]
