"""What ``torch.func`` transforms: whole layers, and a ``torch.autograd.Function`` of the user's."""

import copy
import functools

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import quiet_options

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


class Sine(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin(), F.softplus(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx, sine, other):
        x, = ctx.saved_tensors
        return sine * x.cos() + other * x.sigmoid()

    @staticmethod
    def jvp(ctx, tangent):
        x, = ctx.saved_tensors
        return tangent * x.cos(), tangent * x.sigmoid()


def total(x):
    first, second = Sine.apply(x)
    return (first * second).sum()


TRANSFORMS = {
    "vmap": lambda w: torch.vmap(Sine.apply)(w)[0],
    "grad": torch.func.grad(total),
    "vmap of grad": torch.vmap(torch.func.grad(total)),
    "jacrev": lambda w: torch.func.jacrev(total)(w[0]),
    "jacfwd": lambda w: torch.func.jacfwd(total)(w[0]),
    "hessian": lambda w: torch.func.hessian(total)(w[0]),
}


class Net(torch.nn.Module):
    def __init__(self, transformed, weight=None):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(2, 3) if weight is None else weight)
        self.transformed = transformed

    def forward(self, x):
        out = self.transformed(self.w)
        return out, poptorch.identity_loss((out * x).square().sum(), "none")


def check(net):
    """Compares a step of training with one in eager."""
    x = torch.ones(())
    eager = copy.deepcopy(net)
    out, loss = eager(x)
    loss.backward()
    torch.optim.SGD(eager.parameters(), 0.1).step()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 0.1))
    torch.testing.assert_close(model(x)[0], out.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.w, eager.w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transformed", TRANSFORMS.values(), ids=TRANSFORMS)
def test_functions_of_the_user(transformed):
    check(Net(transformed))


def along(function):
    """Of two functions of a parameter: its gradient, and how it changes forward."""
    def scalar(w):
        return function(w).square().sum()

    return {"gradient": torch.func.grad(scalar),
            "forward": lambda w: torch.func.jvp(scalar, (w,), (w.cos(),))[1]}


def layer(kind, *sizes, **settings):
    torch.manual_seed(0)
    found = kind(*sizes, **settings)
    parameters = {name: p.detach() for name, p in found.named_parameters()}

    def call(w):
        out = torch.func.functional_call(found, {**parameters, "weight_ih_l0": w}, (INPUT,))
        return out[0]

    return call


INPUT, MEAN, VAR = torch.randn(4, 2, 3), torch.rand(3), torch.rand(3) + 0.5
LAYERS = {
    "batch norm": lambda w: F.batch_norm(w.sin(), None, None, training=True),
    "batch norm of inference": lambda w: F.batch_norm(w, MEAN, VAR, w[0], w[1]),
    "instance norm": lambda w: F.instance_norm(w.sin().unsqueeze(0), eps=0.1),
    "attention": lambda w: F.scaled_dot_product_attention(w, w.sin(), w, is_causal=True),
    "RReLU": lambda w: F.rrelu(w, 0.25, 0.25, training=True),
    "no dropout": lambda w: F.dropout(w, 0.0),
}
RECURRENT = {"LSTM": (torch.nn.LSTM, 8), "GRU": (torch.nn.GRU, 6), "RNN": (torch.nn.RNN, 2)}


@pytest.mark.parametrize("way", ["gradient", "forward"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, way):
    check(Net(along(LAYERS[name])[way], torch.randn(4, 3)))


@pytest.mark.parametrize("name, way", [
    ("LSTM", "gradient"), ("GRU", "gradient"), ("GRU", "forward"), ("RNN", "forward")])
def test_recurrent_layers(name, way):
    kind, rows = RECURRENT[name]
    check(Net(along(layer(kind, 3, 2))[way], torch.randn(rows, 3)))


class Ensemble(torch.nn.Module):
    """Applies a function to each of several sequences: by vmap or, in eager, one by one."""

    def __init__(self, net, function):
        super().__init__()
        self.net, self.function = net, function

    def forward(self, sequences):
        return torch.vmap(functools.partial(self.function, self.net))(sequences)

    def one_by_one(self, sequences):
        return torch.stack([self.function(self.net, x) for x in sequences])


def output(net, x):
    return net(x)[0]


def gradient_of_input(net, x):
    return torch.func.grad(lambda x: net(x)[0].sin().sum())(x)


def gradient_of_weight(net, x):
    weights = {name: p.detach() for name, p in net.named_parameters()}

    def loss(weights):
        return torch.func.functional_call(net, weights, (x,))[0].sin().sum()

    gradients = torch.func.grad(loss)(weights)
    return torch.cat([gradient.flatten() for gradient in gradients.values()])


class Transformer(torch.nn.TransformerEncoderLayer):
    """A layer, with results as those of recurrent ones."""

    def __init__(self):
        super().__init__(3, 1, 8, 0.0)

    def forward(self, x):
        return super().forward(x), None


NETS = {
    "transformer": Transformer,
    "LSTM": lambda: torch.nn.LSTM(3, 2),
    "projected LSTM": lambda: torch.nn.LSTM(3, 4, proj_size=2),
    "GRU of two layers both ways": lambda: torch.nn.GRU(3, 2, 2, bidirectional=True, dropout=0.5),
    "RNN": lambda: torch.nn.RNN(3, 2, batch_first=True, bias=False),
    "RNN of relu": lambda: torch.nn.RNN(3, 2, nonlinearity="relu"),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("function", [output, gradient_of_input, gradient_of_weight])
@pytest.mark.parametrize("name", NETS)
def test_layers_of_several_sequences(name, function):
    """Eager has no rule for vmap of recurrent layers, or a slow one."""
    ensemble = Ensemble(NETS[name]().eval(), function)
    sequences = torch.randn(2, 4, 1, 3)
    found = poptorch.inferenceModel(ensemble, quiet_options())(sequences)
    expected = ensemble.one_by_one(sequences).detach()
    # Norms of three numbers have roundings as large as what they divide by is small.
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


VIEWS = {"transpose": lambda x: x.t() * 2, "part": lambda x: x[1].sin(),
         "parts": lambda x: x.unbind(1)[0].exp(), "product": lambda x: x @ x.t()}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_tangents_that_lie_elsewhere_in_memory(view):
    """Forward, twice in a program: a view of a part of a tensor, with another part as tangent."""
    class Tangents(torch.nn.Module):
        def forward(self, x):
            return [torch.func.jvp(view, (x[i],), (x[1 - i],))[1] for i in (0, 1)]

    x = torch.randn(2, 3, 3)
    found = poptorch.inferenceModel(Tangents(), quiet_options())(x)
    torch.testing.assert_close(found, Tangents()(x), rtol=1e-4, atol=1e-6)


LOSSES = {
    "MSE": lambda x: F.mse_loss(x, INPUT[0]),
    "MSE of gradients": torch.func.grad(lambda x: F.mse_loss(x, INPUT[0])),
    "smooth L1": torch.func.grad(lambda x: F.smooth_l1_loss(x, INPUT[0])),
    "Huber": torch.func.grad(lambda x: F.huber_loss(x, INPUT[0], delta=0.5)),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_losses_beside_one_target(loss):
    ensemble = Ensemble(None, lambda net, x: loss(x))
    x = torch.randn(3, 2, 3)
    found = poptorch.inferenceModel(ensemble, quiet_options())(x)
    torch.testing.assert_close(found, ensemble.one_by_one(x))


def test_jacobian_of_a_loss():
    class Jacobian(torch.nn.Module):
        def forward(self, x):
            return torch.func.jacrev(lambda x: F.cross_entropy(x, torch.tensor([0, 2])).square())(x)

    x = torch.randn(2, 3)
    found = poptorch.inferenceModel(Jacobian(), quiet_options())(x)
    torch.testing.assert_close(found, Jacobian()(x))


HESSIANS = {"determinant": lambda x: torch.linalg.det(x @ x.mT + torch.eye(3)),
            "solution": lambda x: torch.linalg.solve(x @ x.mT + torch.eye(3), x).pow(2).sum(),
            "SiLU": lambda x: F.silu(x).sum()}


@pytest.mark.parametrize("function", HESSIANS.values(), ids=HESSIANS)
def test_second_derivatives_in_inference(function):
    """Where gradient mode is off, eager's formulas for the first are not to be differentiated."""
    class Hessian(torch.nn.Module):
        def forward(self, x):
            return torch.func.hessian(function)(x)

    x = torch.randn(3, 2)
    found = poptorch.inferenceModel(Hessian(), quiet_options())(x)
    torch.testing.assert_close(found, Hessian()(x), rtol=1e-3, atol=1e-3)


def pulled_back(w):
    with torch.no_grad():
        found = torch.vmap(lambda v: torch.func.vjp(torch.sin, v)[1](v)[0])(w)
    return w * found


def test_gradients_without_gradient_mode_are_constants_in_training():
    check(Net(pulled_back))


def test_one_mask_of_dropout():
    """The gradient is that of the elements that were kept."""
    def kept(w):
        out = F.dropout(w, 0.5)
        return out.sum(), out

    net = Net(lambda w: torch.stack(torch.func.grad(kept, has_aux=True)(w)), torch.ones(8, 8))
    (gradient, out), _ = poptorch.trainingModel(net, quiet_options())(torch.ones(()))
    assert torch.equal(gradient, out) and set(out.flatten().tolist()) == {0.0, 2.0}


def test_ours_have_no_forward_differentiation():
    """Their results would have no tangents, without a word."""
    def product(w):
        return poptorch.serializedMatMul(
            w, w, poptorch.MatMulSerializationMode.InputChannels, 2).sum()

    net = Net(lambda w: torch.func.jvp(product, (w,), (w,))[1], torch.randn(4, 4))
    with pytest.raises(poptorch.Error, match=r"\[serialized_matmul\] it is not differentiated "
                                             r"forward"):
        poptorch.trainingModel(net, quiet_options())(torch.ones(()))
