"""Operations that need no library, against formulas of PyTorch's or NumPy's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch.errors import Error
from poptorch.ops import named
from tests.capture.common import Function
from tests.helpers import quiet_options

X = torch.tensor([[0.5, -1.25, 2.0], [0.75, 0.25, -0.5]])
POSITIVE = X.abs() + 1.0
SMALL = X / 4
OTHER = torch.tensor([2.0, 0.5, -1.5])
INTS = torch.tensor([[7, -7, 5], [-5, 1, 0]])
THREES = torch.tensor([3, 3, -3])
BOOLS = X > 0
IMAGES = torch.arange(36.0).reshape(1, 4, 3, 3)


def in_numpy(function):
    """The function of NumPy on tensors."""
    return lambda *arrays: torch.from_numpy(np.asarray(function(*(a.numpy() for a in arrays))))


# Name, version, inputs, attributes, what it must give.
CASES = [
    *((name, 9, [SMALL], {}, in_numpy(getattr(np, function))) for name, function in (
        ("Abs", "abs"), ("Acos", "arccos"), ("Asin", "arcsin"), ("Asinh", "arcsinh"),
        ("Atan", "arctan"), ("Atanh", "arctanh"), ("Ceil", "ceil"), ("Cos", "cos"),
        ("Cosh", "cosh"), ("Exp", "exp"), ("Floor", "floor"), ("Neg", "negative"),
        ("Reciprocal", "reciprocal"), ("Sign", "sign"), ("Sin", "sin"), ("Sinh", "sinh"),
        ("Tan", "tan"), ("Tanh", "tanh"), ("IsNaN", "isnan"))),
    *((name, 9, [POSITIVE], {}, in_numpy(getattr(np, function))) for name, function in (
        ("Acosh", "arccosh"), ("Log", "log"), ("Sqrt", "sqrt"))),
    ("Identity", 1, [X], {}, lambda x: x),
    ("Erf", 9, [X], {}, torch.special.erf),
    ("Not", 1, [BOOLS], {}, in_numpy(np.logical_not)),
    ("Relu", 6, [X], {}, in_numpy(lambda x: np.maximum(x, 0))),
    ("Round", 11, [X * 2], {}, in_numpy(np.round)),
    ("Sigmoid", 6, [X], {}, in_numpy(lambda x: 1 / (1 + np.exp(-x)))),
    ("Softplus", 1, [X], {}, in_numpy(lambda x: np.log(1 + np.exp(x)))),
    ("Softsign", 1, [X], {}, in_numpy(lambda x: x / (1 + np.abs(x)))),
    *((name, 7, [X, OTHER], {}, in_numpy(getattr(np, function))) for name, function in (
        ("Add", "add"), ("Div", "divide"), ("Mul", "multiply"), ("Sub", "subtract"),
        ("Greater", "greater"), ("Less", "less"), ("Equal", "equal"))),
    ("Pow", 7, [POSITIVE, OTHER], {}, in_numpy(np.power)),
    ("Div", 7, [INTS, THREES], {}, in_numpy(lambda a, b: np.trunc(a / b).astype(np.int32))),
    ("Mod", 10, [INTS, THREES], {}, in_numpy(lambda a, b: np.mod(a, b).astype(np.int32))),
    ("Mod", 10, [X, OTHER], {"fmod": 1}, in_numpy(np.fmod)),
    ("And", 7, [BOOLS, ~BOOLS], {}, in_numpy(np.logical_and)),
    ("Or", 7, [BOOLS, ~BOOLS], {}, in_numpy(np.logical_or)),
    ("Xor", 7, [BOOLS, BOOLS], {}, in_numpy(np.logical_xor)),
    ("MatMul", 9, [X, X.t()], {}, in_numpy(np.matmul)),
    ("Where", 9, [BOOLS, X, OTHER], {}, in_numpy(np.where)),
    ("LeakyRelu", 6, [X], {"alpha": 0.3}, in_numpy(lambda x: np.where(x < 0, 0.3 * x, x))),
    ("PRelu", 9, [X, OTHER], {}, in_numpy(lambda x, s: np.where(x < 0, s * x, x))),
    ("Elu", 6, [X], {"alpha": 2.0},
     in_numpy(lambda x: np.where(x < 0, 2 * (np.exp(x) - 1), x).astype(np.float32))),
    ("Selu", 6, [X], {}, F.selu),
    ("ThresholdedRelu", 10, [X], {"alpha": 0.6}, in_numpy(lambda x: np.where(x > 0.6, x, 0))),
    ("HardSigmoid", 6, [X], {}, in_numpy(lambda x: np.clip(0.2 * x + 0.5, 0, 1))),
    ("Clip", 6, [X], {"min": -0.4, "max": 1.0}, in_numpy(lambda x: np.clip(x, -0.4, 1.0))),
    ("Clip", 10, [X], {}, lambda x: x),
    ("Clip", 11, [X], {}, lambda x: x),
    ("Clip", 11, [X, torch.tensor(-0.4)], {}, lambda x, low: x.clamp(min=-0.4)),
    ("Max", 8, [X, OTHER, SMALL], {},
     in_numpy(lambda a, b, c: np.maximum(a, np.maximum(b, c)))),
    ("Min", 8, [X, OTHER], {}, in_numpy(np.minimum)),
    ("Sum", 8, [X, OTHER, SMALL], {}, in_numpy(lambda a, b, c: a + b + c)),
    ("Mean", 8, [X, OTHER], {}, in_numpy(lambda a, b: (a + b) / 2)),
    ("ReduceL1", 1, [X], {"axes": [1], "keepdims": 0}, in_numpy(lambda x: np.abs(x).sum(1))),
    ("ReduceL1", 11, [X], {"axes": (-2,)}, in_numpy(lambda x: np.abs(x).sum(0, keepdims=True))),
    ("ReduceL1", 1, [torch.tensor(-3.0)], {}, lambda x: torch.tensor(3.0)),
    ("ReduceL2", 1, [X], {}, in_numpy(lambda x: np.sqrt((x * x).sum(keepdims=True)))),
    ("ReduceLogSum", 1, [POSITIVE], {"axes": [0]},
     in_numpy(lambda x: np.log(x.sum(0, keepdims=True)))),
    ("ReduceLogSumExp", 1, [X], {"axes": [0], "keepdims": 0},
     in_numpy(lambda x: np.log(np.exp(x).sum(0)))),
    ("ReduceMax", 1, [X], {"axes": [1], "keepdims": 0}, in_numpy(lambda x: x.max(1))),
    ("ReduceMean", 1, [X], {"axes": [0, 1], "keepdims": 0}, in_numpy(np.mean)),
    ("ReduceMin", 1, [X], {"axes": [0]}, in_numpy(lambda x: x.min(0, keepdims=True))),
    ("ReduceProd", 1, [X], {}, in_numpy(lambda x: x.prod(keepdims=True))),
    ("ReduceProd", 1, [X], {"axes": [-1], "keepdims": 0}, in_numpy(lambda x: x.prod(-1))),
    ("ReduceSum", 1, [X], {"axes": [1]}, in_numpy(lambda x: x.sum(1, keepdims=True))),
    ("ReduceSumSquare", 1, [X], {"axes": [1], "keepdims": 0},
     in_numpy(lambda x: (x * x).sum(1))),
    ("ArgMax", 1, [X], {"axis": 1, "keepdims": 0},
     in_numpy(lambda x: x.argmax(1).astype(np.int32))),
    ("ArgMin", 1, [X], {}, in_numpy(lambda x: x.argmin(0)[None].astype(np.int32))),
    ("Softmax", 1, [IMAGES / 9], {},
     lambda x: torch.softmax(x.reshape(1, 36), 1).reshape(x.shape)),
    ("Softmax", 11, [IMAGES / 9], {"axis": -2},
     lambda x: torch.softmax(x.reshape(1, 4, 9), 2).reshape(x.shape)),
    ("LogSoftmax", 1, [X], {}, lambda x: torch.log_softmax(x, 1)),
    ("LogSoftmax", 11, [IMAGES], {"axis": -3},
     lambda x: torch.log_softmax(x.reshape(1, 36), 1).reshape(x.shape)),
    ("GlobalAveragePool", 1, [IMAGES], {}, in_numpy(lambda x: x.mean((2, 3), keepdims=True))),
    ("GlobalMaxPool", 1, [IMAGES], {}, in_numpy(lambda x: x.max((2, 3), keepdims=True))),
    ("Gemm", 7, [X, X, OTHER[:2]], {"alpha": 0.5, "beta": 2.0, "transB": 1},
     in_numpy(lambda a, b, c: 0.5 * (a @ b.T) + 2 * c)),
    ("Gemm", 11, [X, X], {"transA": 1}, in_numpy(lambda a, b: a.T @ b)),
    ("Concat", 4, [X, SMALL, X], {"axis": 1}, in_numpy(lambda *x: np.concatenate(x, 1))),
    ("Transpose", 1, [IMAGES], {}, in_numpy(np.transpose)),
    ("Transpose", 1, [IMAGES], {"perm": [0, 2, 1, 3]},
     in_numpy(lambda x: x.transpose(0, 2, 1, 3))),
    ("Flatten", 1, [IMAGES], {"axis": 2}, lambda x: x.reshape(4, 9)),
    ("Flatten", 1, [IMAGES], {"axis": 0}, lambda x: x.reshape(1, 36)),
    ("Squeeze", 1, [IMAGES], {}, lambda x: x[0]),
    ("Squeeze", 1, [IMAGES], {"axes": [0]}, lambda x: x[0]),
    ("Unsqueeze", 1, [X], {"axes": [0, 3]}, lambda x: x.reshape(1, 2, 3, 1)),
    ("Gather", 1, [X, torch.tensor([[2, 0]])], {"axis": 1}, lambda x, i: x[:, i]),
    ("Slice", 1, [IMAGES], {"starts": [1, -2], "ends": [9, 3], "axes": [1, -1]},
     lambda x: x[:, 1:, :, -2:3]),
    ("Slice", 1, [X], {"starts": [1], "ends": [2]}, lambda x: x[1:2]),
]
GRAPHCORE = [
    ("Atan2", 1, [X, OTHER], {}, in_numpy(np.arctan2)),
    ("Detach", 1, [X], {}, lambda x: x),
    ("Expm1", 1, [X], {}, in_numpy(np.expm1)),
    ("Fmod", 1, [X, OTHER], {}, in_numpy(np.fmod)),
    ("Log1p", 1, [POSITIVE], {}, in_numpy(np.log1p)),
    ("Remainder", 1, [X, OTHER], {}, in_numpy(np.mod)),
    ("Reverse", 1, [X], {"dimensions": [0, 1]}, in_numpy(lambda x: x[::-1, ::-1].copy())),
    ("Scale", 1, [X], {"scale": 3.0}, lambda x: 3 * x),
    ("ScaledAdd", 1, [X, OTHER], {"scale1": -0.5}, lambda a, b: a - 0.5 * b),
    # With one replica; test_replicated.py has several.
    ("ReplicatedAllGather", 1, [X], {}, lambda x: x[None]),
    ("ReplicatedAllReduceTP", 1, [X], {}, lambda x: x),
    ("ReplicatedAllToAll", 1, [X[:1]], {}, lambda x: x),
]
ALL = [("ai.onnx", *case) for case in CASES] + [("ai.graphcore", *case) for case in GRAPHCORE] + [
    ("poptorch.custom_ops", "FastGatherLastDim", 1, [X, torch.tensor([[2, 0], [1, 1]])],
     {"axis": 1}, lambda x, i: torch.gather(x, 1, i)),
    ("ai.onnx", "Split", 2, [X], {"axis": 1, "split": [1, 2]}, lambda x: x[:, :1]),
]


class Call(torch.nn.Module):
    """The first output of one operation."""

    def __init__(self, *given):
        super().__init__()
        self.domain, self.name, self.version, self.attributes, self.outputs = given

    def forward(self, *inputs):
        return poptorch.custom_op(list(inputs), self.name, self.domain, self.version,
                                  [torch.zeros(1)] * self.outputs, self.attributes)[0]


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case[1]}-{case[2]}")
def test_values(case):
    domain, name, version, inputs, attributes, formula = case
    net = Call(domain, name, version, attributes, 2 if name == "Split" else 1)
    expected = formula(*inputs)
    model = poptorch.inferenceModel(net, quiet_options())
    for found in (model(*inputs), net(*inputs)):
        torch.testing.assert_close(found, expected, check_dtype=expected.is_floating_point(),
                                   rtol=2e-5, atol=2e-6)
    model.destroy()


@pytest.mark.sampled
@pytest.mark.parametrize("case", [
    *ALL, *(("ai.onnx", name, 8, [X], {}, None) for name in ("Max", "Min", "Sum"))],
    ids=lambda case: f"{case[1]}-{case[2]}")
def test_results_are_copies(case):
    domain, name, version, inputs, attributes, _ = case
    outputs = 2 if name == "Split" else 1

    class Changed(torch.nn.Module):
        def forward(self, *inputs):
            first, *others = poptorch.custom_op(list(inputs), name, domain, version,
                                                [torch.zeros(1)] * outputs, attributes)
            first.zero_()
            return first, [x.clone() for x in others], [x.clone() for x in inputs]

    model = poptorch.inferenceModel(Changed(), quiet_options())
    expected = [x.int() if x.dtype is torch.int64 else x for x in inputs]
    for run in (model, Changed()):
        given = [x.clone() for x in inputs]
        first, others, seen = run(*given)
        assert not first.any() and all(x.any() for x in others)
        for x, y, z in zip(seen, given, expected, strict=True):
            assert torch.equal(x.to(z.dtype), z) and torch.equal(y.to(z.dtype), z)
    model.destroy()


def test_every_operation_has_a_case():
    known = {(domain, name) for domain, name, *_ in ALL}
    assert known == set(named.ROWS)
    for row in (row for rows in named.ROWS.values() for row in rows):
        assert any(row.first <= version <= row.last for domain, name, version, *_ in ALL
                   if (domain, name) == (row.domain, row.name))


def test_gradients_are_those_of_pytorch():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(X.clone())

        def forward(self, x):
            y = poptorch.custom_op([self.w * x], "ReduceL1", "ai.onnx", 1, [x],
                                   {"axes": [1], "keepdims": 0})[0]
            z = poptorch.custom_op([self.w], "Detach", "ai.graphcore", 1, [x])[0]
            return poptorch.identity_loss(y.sum() + (z * self.w).sum(), "none")

    net = Net()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))
    model(torch.tensor(2.0))
    torch.testing.assert_close(net.w.detach(), X - 0.1 * (2 * X.sign() + X))
    model.destroy()


def run(name, inputs, domain="ai.onnx", version=7, outputs=1, **attributes):
    """One operation outside of a model."""
    return Call(domain, name, version, attributes, outputs)(*inputs)


@pytest.mark.parametrize(("call", "words"), [
    (lambda: run("Add", [X]), r"\[ai.onnx::Add\] takes 2 inputs, got 1"),
    (lambda: run("Sum", [], version=8), r"\[ai.onnx::Sum\] takes 1 or more inputs, got 0"),
    (lambda: run("Clip", [X] * 4, version=11), "takes 1 to 3 inputs, got 4"),
    (lambda: run("Add", [X, X], version=6), "ai.onnx::Add has version 7 to 12, got version "
                                            "6"),
    (lambda: run("Elu", [X], beta=1.0), "has no attribute 'beta'. Its attributes: alpha"),
    (lambda: run("Add", [X, X], beta=1.0), "Its attributes: none"),
    (lambda: run("Elu", [X], alpha="x"), "attribute 'alpha' is 'x', it must be a float"),
    (lambda: run("ReduceL1", [X], axes=1), "attribute 'axes' is 1, it must be a list of ints"),
    (lambda: run("ReduceL1", [X], axes=[1.0]), "it must be a list of ints"),
    (lambda: run("Concat", [X]), "attribute 'axis' is missing. Give an int"),
    (lambda: run("Squeeze", [X], axes=[0]),
     r"dimension 0 of a tensor of sizes \[2, 3\] has size 2; only"),
    (lambda: run("Split", [X], split=[1, 1]), "has 2 outputs, example_outputs has 1"),
    (lambda: run("FastGatherLastDim", [X, INTS], "poptorch.custom_ops", 1, axis=0),
     "gathers along the last dimension, got axis 0"),
    (lambda: run("Elu", [X], "ai.graphcore", 1), "There is .*ai.onnx::Elu"),
])
def test_mistakes(call, words):
    with pytest.raises(Error, match=words):
        call()


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_an_example_of_other_sizes_is_told_of(is_wrapped, caplog):
    def reduced(m, x):
        return poptorch.custom_op([x], "ReduceL1", "ai.onnx", 1, [x], {"axes": [1], "keepdims": 0})

    module = Function(reduced)
    run = poptorch.inferenceModel(module, quiet_options()) if is_wrapped else module
    assert run(torch.ones(2, 3))[0].tolist() == [3, 3]
    assert caplog.text.count("[ai.onnx::ReduceL1] output 0 has the sizes [2], its example [2, 3]. "
                             "The operation decides: make the example") == 1
