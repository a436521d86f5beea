"""Ops of C++ libraries in wrapped models and outside, against PyTorch."""

import numpy as np
import pytest
import torch

import poptorch
from poptorch import _C
from tests.helpers import Applied, Cases, quiet_options

EXAMPLE = "com.example"


def call(name, inputs, outputs=1, domain=EXAMPLE, **attributes):
    """The outputs of a custom op."""
    return poptorch.custom_op(inputs, name, domain, 1, example_outputs=[inputs[0]] * outputs,
                              attributes=attributes)


class Both(torch.nn.Module):
    """A loss of a function of parameters and of the input."""

    def __init__(self, function, sizes, dtype):
        super().__init__()
        torch.manual_seed(1)
        self.w = torch.nn.ParameterList(torch.randn(size).to(dtype) for size in sizes)
        self.function = function

    def forward(self, x):
        y = self.function(*(w * x for w in self.w))
        return y, poptorch.identity_loss(y * y, "sum")


# name: (custom, plain, sizes of the inputs)
FUNCTIONS = {
    "cube": (lambda x: call("Cube", [x])[0], lambda x: x * x * x, [(3, 5)]),
    "cube of cube": (lambda x: call("Cube", call("Cube", [x]))[0], lambda x: (x ** 3) ** 3,
                     [(3, 5)]),
    "leaky relu": (lambda x: call("LeakyRelu", [x], alpha=0.2)[0],
                   lambda x: torch.nn.functional.leaky_relu(x, 0.2), [(40, 30)]),
    "default": (lambda x: call("LeakyRelu", [x])[0], torch.nn.functional.leaky_relu, [(7,)]),
    "strided": (lambda x: call("Cube", [x.t()])[0], lambda x: x.t() ** 3, [(3, 5)]),
    "add scalar": (lambda x: call("AddScalar", [x], value=1.5)[0], lambda x: x + 1.5, [(4, 1, 2)]),
    "an int for a float": (lambda x: call("AddScalar", [x], value=2)[0], lambda x: x + 2, [(4,)]),
    "sum of two": (lambda a, b: call("Reduce", [a, b])[0], lambda a, b: a.sum() + b.sum(),
                   [(3, 2), (5,)]),
    "mean of three": (lambda *x: call("Reduce", list(x), reduction="mean")[0],
                      lambda *x: torch.cat([part.flatten() for part in x]).mean(),
                      [(3, 2), (1, 2), ()]),
    "reads outputs": (lambda x: call("Root", [x * x + 1], domain="trial")[0],
                      lambda x: torch.sqrt(x * x + 1), [(6,)]),
    "second output is int": (lambda x: call("Square", [x], 2, "trial")[0], lambda x: x * x,
                             [(6,)]),
    "second output is used": (
        lambda x: torch.mul(*call("Square", [x], 2, "trial")), lambda x: x * x * torch.sign(x),
        [(6,)]),
}
TOLERANCES = {torch.float32: (1e-5, 1e-6), torch.float16: (4e-3, 2e-3),
              torch.bfloat16: (3e-2, 2e-2)}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name, dtype):
    custom, plain, sizes = FUNCTIONS[name]
    net, reference = Both(custom, sizes, dtype), Both(plain, sizes, dtype)
    x = torch.tensor(0.75, dtype=dtype)
    expected, loss = reference(x)
    loss.backward()
    rtol, atol = TOLERANCES[dtype]
    inference = poptorch.inferenceModel(net, quiet_options())
    torch.testing.assert_close(inference(x)[0], expected.detach(), rtol=rtol, atol=atol)
    inference.destroy()
    before = [w.detach().clone() for w in net.w]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    training = poptorch.trainingModel(net, quiet_options(), optimizer)
    out, _ = training(x)
    torch.testing.assert_close(out, expected.detach(), rtol=rtol, atol=atol)
    for w, was, other in zip(net.w, before, reference.w):
        wanted = (was.float() - 0.01 * other.grad.float()).to(dtype)
        torch.testing.assert_close(w.detach(), wanted, rtol=rtol, atol=atol)
    training.destroy()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_outside_of_a_model(name):
    custom, plain, sizes = FUNCTIONS[name]
    net, reference = Both(custom, sizes, torch.float32), Both(plain, sizes, torch.float32)
    results = []
    for module in (net, reference):
        out, loss = module(torch.tensor(0.75))
        loss.backward()
        results.append([out.detach(), *(w.grad for w in module.w)])
    torch.testing.assert_close(*results)


def compiled(function, *inputs):
    """What a wrapped model gives for a function, after the same was computed without one."""
    model = poptorch.inferenceModel(Applied(function), quiet_options())
    out = model(*inputs)
    model.destroy()
    return out


def test_integers_are_narrowed():
    x = torch.tensor([1, 2, -3])
    for run in (compiled, lambda function, x: function(x)):
        out = run(lambda x: call("AddScalar", [x], value=4.0)[0], x)
        assert out.dtype is torch.int32 and out.tolist() == [5, 6, 1]


def test_the_shape_is_the_ops_own():
    def reduced(x):
        return poptorch.custom_op([x], "Reduce", EXAMPLE, 1, [torch.zeros(9, 9)])[0]

    assert compiled(reduced, torch.ones(2, 3)).tolist() == 6.0


TEXT = "quotes ' \" backslash \\ line\nfeed\ttab \x01\x7f null\0 ü € end"
SETTINGS = {"number": -2.25, "count": 2 ** 20, "text": TEXT, "floats": [0.5, -1.0],
            "ints": (3, -4), "texts": ["", "a\0b", '"']}


def shown(number=0.5, count=7, text="", floats=(1.5,), ints=(), texts=()):
    """What the op Shown says of its attributes."""
    flat = [letter for part in texts for letter in [*part.encode(), -1]]
    return [number, count, *text.encode(), *floats, *ints, *flat]


@pytest.mark.parametrize("given", [
    {}, SETTINGS, dict(reversed(SETTINGS.items())), {"floats": []}, {"ints": [1]}, {"count": True},
    {"number": float("inf")}, {"number": -0.0}, {"floats": [1, 2.5][1:]}, {"text": "%0"},
])
def test_attributes_arrive(given):
    x = torch.zeros(1)
    assert compiled(lambda x: call("Shown", [x], domain="trial", **given)[0], x).tolist() == \
        shown(**given)


def test_equal_calls_stay_two_and_constants_are_not_folded():
    def twice(x):
        part = call("Cube", [torch.ones(3)])[0]
        return call("Cube", [x])[0] + call("Cube", [x])[0] + part

    model = poptorch.inferenceModel(Applied(twice), quiet_options())
    assert model(torch.ones(3)).tolist() == [3.0] * 3
    assert model.op_report()["forward"]["com.example::Cube"] == 3
    model.destroy()


def test_kernels_may_take_halves_themselves():
    for dtype in (torch.float16, torch.bfloat16):
        out = compiled(lambda x: call("IsHalf", [x], domain="trial")[0], torch.zeros(3).to(dtype))
        assert out.dtype is dtype and out.tolist() == [1.0] * 3


def test_the_cost_says_how_small_parts_are():
    x = np.zeros(4096, np.float32)
    with Cases() as cases:
        for op, parts in (("CheapParts", 1), ("DearParts", 4), ("Parts", 1)):
            with cases.case(op):
                attrs = {"domain": "trial", "op": op, "version": 1}
                (out,) = _C.evaluate("custom", [x], attrs, threads=4)
                assert len(set(out.tolist())) == parts


def test_with_device_iterations_and_accumulation():
    def make(function):
        torch.manual_seed(3)
        return Both(function, [(4,)], torch.float32)

    opts = quiet_options(deviceIterations=2)
    opts.Training.gradientAccumulation(2)
    opts.outputMode(poptorch.OutputMode.All)
    x = torch.arange(1.0, 5.0).reshape(4, 1)
    results = []
    for function in FUNCTIONS["cube"][:2]:
        net = make(function)
        model = poptorch.trainingModel(net, opts.clone(), torch.optim.SGD(net.parameters(), 1e-5))
        results.append([model(x)[0], net.w[0].detach().clone()])
        model.destroy()
    torch.testing.assert_close(*results)


class Blocks(torch.nn.Module):
    """Two blocks with a custom op in each."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        with poptorch.Block("first", ipu_id=0):
            x = call("LeakyRelu", [self.first(x)], alpha=0.3)[0]
        with poptorch.Block("second", ipu_id=1):
            x = call("Cube", [self.second(x)])[0]
            return x, poptorch.identity_loss(x, "mean")


def test_on_several_ipus_and_replicas():
    x, results = torch.randn(8, 4), []
    for replicas in (1, 2):
        opts = quiet_options(outputMode=poptorch.OutputMode.All, replicationFactor=replicas)
        opts.setExecutionStrategy(poptorch.ShardedExecution())
        net = Blocks()
        model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), lr=0.1))
        outs = [model(x)[0] for _ in range(2)]
        results.append([*outs, *(w.detach().clone() for w in net.parameters())])
        model.destroy()
    torch.testing.assert_close(*results)


def test_second_gradients():
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(call("Cube", [x])[0].sum(), x, create_graph=True)
    with pytest.raises(poptorch.Error, match="com.example::CubeGradient.* has no gradient op"):
        gradient.sum().backward()


def test_no_elements():
    for run in (compiled, lambda function, x: function(x)):
        assert run(lambda x: call("Cube", [x])[0], torch.ones(0, 3)).shape == (0, 3)
