"""Gradients in forward, and gradients of them: of whole layers, by inputs and by weights."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from tests.helpers import quiet_options

LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), (5, 4)),
    "convolution": (lambda: nn.Conv2d(2, 3, 2), (2, 2, 4, 4)),
    "batch norm": (lambda: nn.BatchNorm1d(4), (5, 4)),
    "batch norm of images": (lambda: nn.BatchNorm2d(2), (3, 2, 2, 2)),
    "batch norm without weights": (lambda: nn.BatchNorm1d(2, affine=False), (3, 2, 4)),
    "batch norm of inference": (lambda: trained_norm().eval(), (5, 4)),
    "instance norm": (lambda: nn.InstanceNorm1d(2, affine=True), (2, 2, 5)),
    "layer norm": (lambda: nn.LayerNorm(4), (5, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "LSTM": (lambda: nn.LSTM(4, 3), (5, 2, 4)),
    "LSTM both ways": (lambda: nn.LSTM(4, 3, 2, bidirectional=True), (3, 2, 4)),
    "GRU": (lambda: nn.GRU(4, 3), (5, 2, 4)),
    "RNN": (lambda: nn.RNN(4, 3), (5, 2, 4)),
    "RNN with relu": (lambda: nn.RNN(4, 3, nonlinearity="relu", bias=False), (5, 2, 4)),
    "max pool": (lambda: nn.MaxPool2d(2), (1, 2, 4, 4)),
}
PLAIN = ("batch norm without weights", "max pool")  # they have no weights


def trained_norm():
    norm = nn.BatchNorm1d(4)
    norm.running_mean.uniform_()
    norm.running_var.uniform_(0.5, 2)
    return norm


def scaled(q, k, v, **settings):
    """Attention of one head as PyTorch's flash kernel has no gradient of its gradient."""
    return F.scaled_dot_product_attention(q[0], k[0], v[0], **settings)


MASK = torch.tensor([[True, False, True], [True, True, False], [False, False, False]])
FUNCTIONS = {
    "attention": lambda x: scaled(x, x * 2, x.sin()),
    "causal attention": lambda x: scaled(x, x * 2, x.sin(), is_causal=True),
    "masked attention": lambda x: scaled(x, x * 2, x.sin(), attn_mask=MASK),
    "attention with added numbers": lambda x: scaled(x, x, x, attn_mask=MASK[0] * 2.0),
    "softmax": lambda x: x.softmax(-1),
    "mean squared error": lambda x: F.mse_loss(x.pow(2), x.sin()),
    "smooth absolute error": lambda x: F.smooth_l1_loss(x.pow(2), x.sin(), reduction="sum"),
    "Huber loss": lambda x: F.huber_loss(x.pow(2), x.sin(), delta=0.1),
    "printed": lambda x: poptorch.ipu_print_tensor(x.pow(3), "x", False, 0, 0),
    "serialized product": lambda x: poptorch.serializedMatMul(
        x[0], x[0], poptorch.MatMulSerializationMode.InputChannels, 3),
    "dynamic slice": lambda x: poptorch.dynamic_slice(x.pow(3), 1, torch.tensor(1), 1, 1),
    "dynamic update": lambda x: poptorch.dynamic_update(
        x.pow(3), x[:, :1].sin(), 1, torch.tensor(1), 1),
    "distances": lambda x: torch.linalg.vector_norm(x[:, :1] - x[:, 1:], dim=-1),
    "determinant": lambda x: torch.linalg.det(x @ x.mT + torch.eye(3)),
    "determinant of a transposed matrix": lambda x: torch.linalg.det(x.mT.tanh() + torch.eye(3)),
    "system of a transposed matrix": lambda x: torch.linalg.solve(x.mT.tanh() + torch.eye(3), x),
    "logarithm of a determinant": lambda x: torch.linalg.slogdet(x.mT.sin() + torch.eye(3))[1],
}


class Penalized(nn.Module):
    """A loss with the square of the gradient by the input, or by a weight."""

    def __init__(self, layer, by_weight: bool = False):
        super().__init__()
        self.layer, self.by_weight = layer, by_weight
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        x = x * self.scale
        with torch.enable_grad():
            out = self.layer(x)
            out = out[0] if isinstance(out, tuple) else out
            by = next(self.layer.parameters()) if self.by_weight else x
            gradient, = torch.autograd.grad(out.sin().sum(), by, create_graph=True)
        loss = (out + 1).pow(2).mean() + gradient.pow(2).sum()
        return gradient.detach(), poptorch.identity_loss(loss, "none")


def check(net, x):
    """One update by SGD is eager's."""
    eager = copy.deepcopy(net)
    expected, loss = eager(x.clone())
    loss.backward()
    torch.optim.SGD(eager.parameters(), 0.1).step()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 0.1))
    gradient, ours = model(x)
    model.copyWeightsToHost()
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours, loss.detach(), rtol=1e-4, atol=1e-5)
    for name, weight in net.state_dict().items():
        torch.testing.assert_close(weight, eager.state_dict()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "by_weight"), [
    *((name, False) for name in LAYERS), *((name, True) for name in LAYERS if name not in PLAIN)])
def test_penalties_of_layers(name, by_weight):
    make, shape = LAYERS[name]
    torch.manual_seed(7)
    check(Penalized(make(), by_weight), torch.rand(shape) + 0.1)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_penalties_of_functions(function):
    class Layer(nn.Module):
        def forward(self, x):
            return function(x)

    torch.manual_seed(8)
    check(Penalized(Layer()), torch.rand(1, 3, 3) + 0.1)


def test_dropout_of_attention_drops_the_same():
    """The gradient that can be differentiated is that of the same forward pass."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.rand(2, 3, 4, 5))

        def forward(self, x):
            out = F.scaled_dot_product_attention(self.w, self.w * x, self.w, dropout_p=0.5)
            loss = out.pow(2).sum()
            found = [torch.autograd.grad(loss, self.w, retain_graph=True, create_graph=again)[0]
                     for again in (False, True)]
            return *found, poptorch.identity_loss(loss + found[1].sum(), "none")

    plain, again, _ = poptorch.trainingModel(Net(), quiet_options())(torch.ones(1))
    torch.testing.assert_close(plain, again, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "function"), [
    ("ctc_loss", lambda w: F.ctc_loss(w.log_softmax(-1), torch.ones(4, 1, dtype=torch.int64),
                                      torch.full((4,), 4), torch.ones(4, dtype=torch.int64))),
    ("embedding_bag", lambda w: F.embedding_bag(torch.tensor([[0, 1]]), w[0]).pow(2).sum()),
    ("CPU", lambda w: poptorch.CPU(lambda a: a.sin(), "host")(w).pow(2).sum())])
def test_no_gradient_of_a_gradient(name, function):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.rand(4, 4, 4))

        def forward(self, x):
            gradient, = torch.autograd.grad(function(self.w * x), self.w, create_graph=True)
            return poptorch.identity_loss(gradient.pow(2).sum(), "none")

    model = poptorch.trainingModel(Net(), quiet_options())
    with pytest.raises(poptorch.Error, match=rf"\[{name}\] there is no gradient of its gradient. "
                                             r"Call torch.autograd.grad without create_graph"):
        model(torch.ones(1))


def test_penalties_where_the_bias_alone_is_trained():
    layer = nn.BatchNorm1d(4)
    layer.weight.requires_grad_(False)
    nn.init.constant_(layer.bias, 0.5)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            loss = self.layer(x).pow(3).sum()
            gradient, = torch.autograd.grad(loss, self.layer.bias, create_graph=True)
            return gradient.detach(), poptorch.identity_loss(gradient.pow(2).sum(), "none")

    check(Net(), torch.rand(5, 4))


def test_hooks_of_weights_in_inference():
    net = Force("weight")
    net.layer[0].weight.register_hook(lambda gradient: gradient * 2)
    x = torch.rand(5, 3)
    torch.testing.assert_close(poptorch.inferenceModel(net, quiet_options())(x), net(x))


def test_hooks_of_weights_that_are_frozen_after():
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1), nn.Flatten(0))
    net[0].weight.register_hook(lambda gradient: gradient * 2)
    net[0].weight.requires_grad_(False)
    x = torch.rand(1, 3)
    model = poptorch.inferenceModel(net, quiet_options())
    torch.testing.assert_close(model(x), net(x).detach())


class Force(nn.Module):
    """A gradient in inference, as of an energy by positions."""

    def __init__(self, by):
        super().__init__()
        self.layer, self.by = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), by

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            energy = self.layer(x).sum()
            by = x if self.by == "input" else self.layer[0].weight
            return torch.autograd.grad(energy, by)[0]


@pytest.mark.parametrize("by", ["input", "weight"])
def test_gradients_in_inference(by):
    net, x = Force(by), torch.rand(5, 3)
    torch.testing.assert_close(poptorch.inferenceModel(net, quiet_options())(x), net(x))


@pytest.mark.parametrize("body", [
    lambda a: [a * a.sin()],
    lambda a: [a - 0.1 * torch.autograd.grad(a.requires_grad_().pow(3).sum(), a)[0]]])
def test_loops_in_inference(body):
    """The gradient of a loop, and a loop over gradients."""
    class Net(nn.Module):
        def forward(self, x):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                y, = poptorch.for_loop(3, body, [x])
                return torch.autograd.grad(y.sum(), x)[0] if y.requires_grad else y

    x = torch.rand(4)
    torch.testing.assert_close(poptorch.inferenceModel(Net(), quiet_options())(x), Net()(x))
