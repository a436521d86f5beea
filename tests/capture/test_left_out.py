"""Arguments that torch's functions leave out when they tell a mode of their call."""

import ast
import inspect

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.capture.common import Function, check_inference, check_training

KNOWN = {("torch.nn.functional", "l1_loss", "weight"), ("torch.functional", "chain_matmul", "out"),
         ("torch._tensor", "dim_order", "ambiguity_check")}  # the last one gives no tensor


def left_out(module):
    for function in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(function, ast.FunctionDef):
            continue
        arguments = function.args
        names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) \
                    and call.func.id == "handle_torch_function":
                told = [*call.args[2:], *(keyword.value for keyword in call.keywords)]
                used = {n.id for value in told for n in ast.walk(value) if isinstance(n, ast.Name)}
                for name in names - used - {"_stacklevel", "f", "self"}:
                    yield module.__name__, function.name, name


def test_no_others_are_left_out():
    found = {row for module in (F, torch.functional, torch._tensor) for row in left_out(module)
             if row[1] != "__dlpack__"}  # of real tensors only
    assert found == KNOWN


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_the_weight_of_l1_loss(reduction):
    x, target, weight = torch.randn(3, 4), torch.randn(3, 4), torch.rand(3, 4)

    def forward(m, x, target, weight):
        loss = F.l1_loss(x * m.p, target, reduction=reduction, weight=weight)
        return x, poptorch.identity_loss(loss, "sum")

    module = Function(forward, {"p": torch.ones(4, dtype=torch.float64)})
    check_training(module, x.double(), target.double(), weight.double())
    check_inference(module, x.double(), target.double(), weight.double())


@pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated")
def test_the_out_of_chain_matmul():
    a, b, c = torch.randn(2, 3), torch.randn(3, 4), torch.randn(4, 5)

    def forward(m, a, b, c, out):
        return torch.chain_matmul(a, b, c, out=out), out

    check_inference(Function(forward), *(t.double() for t in (a, b, c, torch.zeros(2, 5))))
