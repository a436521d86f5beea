"""Graphs as one function of autograd: what PyTorch promises of a backward pass."""

import pytest
import torch

import poptorch
from poptorch._torch_compile.passes import Passes
from tests.helpers import quiet_options


@pytest.fixture
def direct(monkeypatch):
    """Whether each compiled graph runs without AOTAutograd's call, in their order."""
    found, make = [], Passes.direct

    def noted(passes, arguments):
        function = make(passes, arguments)
        found.append(function is not None)
        return function

    monkeypatch.setattr(Passes, "direct", noted)
    return found


def compiled(function):
    return poptorch.compile(function, quiet_options())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_gradients_of_some_results(direct):
    def function(x, y):
        return x.detach() * 2, x * y.exp(), y.argmax()

    run = compiled(function)
    x = torch.randn(3, requires_grad=True) * 1.5  # not a leaf
    y = torch.randn(3, requires_grad=True)
    constant, product, place = run(x, y)
    assert not constant.requires_grad and not place.requires_grad and product.requires_grad
    for _ in range(2):
        gradients = torch.autograd.grad(product.sum(), (x, y), retain_graph=True)
        torch.testing.assert_close(gradients, (y.exp(), x * y.exp()))
    product.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        product.sum().backward()
    with torch.no_grad():
        assert not any(result.requires_grad for result in run(x, y))
    assert direct == [True, True]


def test_second_derivatives(direct):
    x = torch.randn(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(lambda x: x.sin())(x).sum(), x, create_graph=True)
    torch.testing.assert_close(gradient, x.cos())
    with pytest.raises(poptorch.Error, match=r"\[compile\] second derivatives are not supported: .*"
                                             "Leave create_graph out"):
        gradient.sum().backward()
    assert direct == [True]


def test_saved_tensors(direct):
    x, factor, seen = torch.randn(3, requires_grad=True), torch.ones(3), []
    run = compiled(lambda x, factor: x.sin() * factor)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        run(x, factor).sum().backward()
    assert seen
    torch.testing.assert_close(x.grad, x.detach().cos())
    y = run(x, factor)
    factor.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    assert direct == [True]


def test_what_aot_autograd_handles(direct):
    def function(x):
        x.add_(1)
        return x.view(-1), x * 2

    view, double = compiled(function)(x := torch.zeros(2, 2))
    assert view.data_ptr() == x.data_ptr() and double.tolist() == [[2, 2], [2, 2]]
    assert direct == [False]


def exponential(x):
    y = x.exp()
    return y, y.sin().sum()


def test_a_result_that_the_backward_pass_uses(direct):
    """It is kept without a copy, and its changes are noticed."""
    run, x = compiled(exponential), torch.randn(3, requires_grad=True)
    for _ in range(2):  # the first call compiles
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            y, total = run(x)
        assert y.data_ptr() in [tensor.data_ptr() for tensor in kept]
        (gradient,) = torch.autograd.grad(y.sum() + total, x)
        torch.testing.assert_close(gradient, x.exp() + x.exp().cos() * x.exp())
        y, total = run(x)
        with torch.no_grad():
            y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            total.backward()
    assert direct == [True]


def test_such_a_result_is_freed(direct):
    # A function of its own: sizes of one that was compiled before would be dynamic.
    run, x = compiled(lambda x: exponential(x)), torch.randn(1 << 19, requires_grad=True)
    run(x)  # compiles
    assert len({run(x)[0].data_ptr() for _ in range(3)}) == 1
    assert direct == [True]
