"""Layers that stay one operation in graphs of torch.compile: results and gradients."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from tests.helpers import check_equal_bits
from tests.torch_compile.common import compiled


def count_programs():
    programs = []
    poptorch.registerPostCompileHook(lambda: programs.append(1))
    return programs


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("layer", [
    lambda: nn.LSTM(3, 4, num_layers=2, batch_first=True), lambda: nn.GRU(3, 4),
    lambda: nn.RNN(3, 4, nonlinearity="relu", bidirectional=True),
    lambda: nn.LSTM(3, 4, proj_size=2)], ids=["lstm", "gru", "rnn", "projected"])
def test_recurrent_layers(layer):
    net = layer()
    eager, x = copy.deepcopy(net), torch.randn(5, 2, 3, requires_grad=True)
    programs = count_programs()
    y, state = compiled(net)(x)
    expected, expected_state = eager(x)
    torch.testing.assert_close((y, state), (expected, expected_state))
    ours = torch.autograd.grad(y.square().sum(), [x, *net.parameters()])
    wanted = torch.autograd.grad(expected.square().sum(), [x, *eager.parameters()])
    torch.testing.assert_close(ours, wanted)
    assert len(programs) == 2  # forward, backward


def test_dropout_of_a_call_before_the_last():
    def function(x):
        y = F.dropout1d(F.dropout(x, 0.5), 0.5)
        return F.dropout(y.transpose(0, 1).contiguous(), 0.5)  # of elements in another order

    run = compiled(function)
    xs = [torch.ones(64, 8, 4, requires_grad=True) for _ in range(2)]
    ys = [run(x) for x in xs]
    for x, y in zip(xs, ys):
        (gradient,) = torch.autograd.grad(y.sum(), x)
        check_equal_bits(gradient, y.detach().transpose(0, 1).contiguous())
    assert not torch.equal(*ys)


def test_dropout_of_attention():
    run = compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5))
    q, k = torch.randn(2, 2, 3, 9, 4)
    v = torch.rand(2, 3, 9, 4, requires_grad=True)
    ys = [run(q, k, v) for _ in range(2)]
    for y in ys:  # linear in v: forward and backward drop the same weights
        (gradient,) = torch.autograd.grad(y.sum(), v)
        torch.testing.assert_close((gradient * v).sum(), y.sum())
    assert not torch.equal(*ys)


@pytest.mark.parametrize("arguments", [
    {}, {"reduction": "sum"}, {"reduction": "none"}, {"ignore_index": 1},
    {"label_smoothing": 0.1}, {"weight": torch.tensor([1.0, 2.0, 3.0])}], ids=str)
def test_cross_entropy(arguments):
    target = torch.tensor([0, 2, 1, 2])
    run = compiled(lambda x: F.cross_entropy(x, target, **arguments))
    x = torch.randn(4, 3, requires_grad=True)
    ours, expected = run(x), F.cross_entropy(x, target, **arguments)
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(torch.autograd.grad(ours.sum(), x),
                               torch.autograd.grad(expected.sum(), x))


def test_multi_head_attention():
    net = nn.MultiheadAttention(8, 2, batch_first=True)
    eager, x = copy.deepcopy(net), torch.randn(2, 5, 8)
    run = compiled(net)
    for rows in (2, 1):
        ours, expected = run(x[:rows], x[:rows], x[:rows]), eager(x[:rows], x[:rows], x[:rows])
        torch.testing.assert_close(ours, expected)


def test_batch_norm_with_dynamic_sizes():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    eager, run = copy.deepcopy(net), compiled(net)
    for rows in (4, 3, 2):
        x = torch.randn(rows, 3, 8, 8)
        ours, expected = run(x), eager(x)
        torch.testing.assert_close(ours, expected)
        ours.square().sum().backward(), expected.square().sum().backward()
        for a, b in zip(net.parameters(), eager.parameters()):
            torch.testing.assert_close(a.grad, b.grad, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(net.state_dict(), eager.state_dict())
