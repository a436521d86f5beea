"""Tensors that change their shape in place."""

import pytest
import torch

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function, check_inference, check_training
from tests.capture.reference import evaluate
from tests.helpers import check_wide, quiet_options

X = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
SQUARE = torch.arange(9.0, dtype=torch.float64).reshape(3, 3)


def _transposed(m, x):
    m.b.t_()
    return x + m.b[:2]


def _there_and_back(m, x):
    y = m.b.unsqueeze_(0) + x[0]
    m.b.mul_(2).squeeze_(0)
    return y


def _transposed_and_changed(m, x):
    m.b.t_()
    m.b[0] += x[1]
    return m.b * 2


def _changed_and_transposed(m, x):
    m.b[0] += x[1]
    m.b.transpose_(0, 1)


@pytest.mark.parametrize("function", (_transposed, _there_and_back, _transposed_and_changed,
                                      _changed_and_transposed))
def test_buffers(function):
    check_inference(Function(function, buffers={"b": SQUARE.clone()}), X)


def test_each_call_transposes():
    module = Function(_transposed, buffers={"b": SQUARE.float()})
    model, expected = poptorch.inferenceModel(module, quiet_options()), SQUARE.float()
    for _ in range(3):
        expected = expected.t()
        assert torch.equal(model(X.float()), X.float() + expected[:2])
    model.copyWeightsToHost()
    assert torch.equal(module.b, expected)
    model.destroy()


@pytest.mark.parametrize("change", (lambda x: x.squeeze_(), lambda x: x.unsqueeze_(0),
                                    lambda x: x.transpose_(0, 1)))
@pytest.mark.parametrize("split", (lambda x: x.chunk(2, -1), lambda x: x.split(2),
                                   lambda x: x.split([1, 2], 1), lambda x: x.unsqueeze(0).unbind()))
def test_parts_of_a_split(split, change):
    def forward(m, x):
        part = split(x)[0]
        y = change(part)
        y.exp_()
        x += 1
        return part, y, x

    check_inference(Function(forward), X)


@pytest.mark.parametrize("view", (
    lambda x: x[0], lambda x: x.t(), lambda x: x.permute(0, 1)[:, 1:], lambda x: x.view(-1),
    lambda x: x.expand(2, 3), lambda x: x.diagonal(), lambda x: x.unbind(0)[0]))
@pytest.mark.parametrize("change", (
    lambda x, y: x.squeeze_(), lambda x, y: x.unsqueeze_(-1), lambda x, y: x.t_(),
    lambda x, y: x.transpose_(0, 1).mul_(2), lambda x, y: x.swapaxes_(0, 1),
    lambda x, y: x.swapdims_(0, 1), lambda x, y: (x.squeeze_(0), x.mul_(3)),
    lambda x, y: (y.unsqueeze_(0), y.neg_()), lambda x, y: (y.squeeze_(), x.unsqueeze_(0))))
def test_gradients_through_views_of_what_was_changed(view, change):
    def forward(m, x):
        y = x * m.w
        seen = view(y)
        change(y, seen)
        return seen, y, poptorch.identity_loss(seen.sin().sum() + (y * y).sum(), "sum")

    module = Function(forward, parameters={"w": X[:1] + 1})
    try:
        module(X[:1])[-1].backward()
    except RuntimeError:
        pytest.skip("eager refuses it")
    check_training(module, X[:1])


def test_a_picked_row_is_written_to_what_has_changed_its_shape():
    def forward(m, x, at):
        y = x * m.w
        row = y[at]
        y.unsqueeze_(0)
        row.mul_(2)
        return y, poptorch.identity_loss((y * y).sum(), "sum")

    module = Function(forward, parameters={"w": X + 1})
    check_training(module, X, torch.tensor(1))
    check_inference(module, X, torch.tensor(1))


@pytest.mark.parametrize("change", (lambda row: row, lambda row: row.mul_(2),
                                    lambda row: row.unsqueeze_(0)))
def test_a_picked_row_is_another_place_of_what_was_transposed(change):
    def forward(m, x, at):
        y = x * 1
        row = y[at]
        change(row)
        y.t_()
        y[at] = row
        return y

    check_inference(Function(forward), SQUARE, torch.tensor(1))


def _normed(m, x, transposed, doubled):
    y, factor = x * m.w, m.v * 1
    z = torch.nn.functional.batch_norm(y, None, None, weight=factor, training=True)
    y, factor = transposed(y), doubled(factor)
    return z, poptorch.identity_loss((z * z * x).sum() + (y * x).sum() + factor.sum(), "sum")


def test_what_an_operation_keeps_has_the_shape_of_then():
    """Of two tensors, one changes its shape, and one its values. Eager refuses that."""
    states = {"w": SQUARE.sin(), "v": SQUARE[0] + 1}
    module = Function(lambda m, x: _normed(m, x, lambda y: y.t_(), lambda v: v.mul_(2)), states)
    eager = Function(lambda m, x: _normed(m, x, lambda y: y.t(), lambda v: v * 2), states)
    eager(SQUARE)[-1].backward()
    _, others = evaluate(capture(module, (SQUARE,), {}, training=True), [SQUARE])
    check_wide(others["grad"], {name: p.grad for name, p in eager.named_parameters()})


def _check_error(forward, words, **states):
    with pytest.raises(poptorch.Error, match=words) as error:
        capture(Function(forward, **states), (X,), training=True)
    assert "test_in_place_shapes.py" in str(error.value)


def test_another_shape_is_an_error():
    def forward(m, x):
        m.b.unsqueeze_(0)
        return poptorch.identity_loss((x * m.w).sum() + m.b.sum(), "sum")

    _check_error(forward, r"changes the shape of b in place from \[3, 3\] to \[1, 3, 3\]. Change",
                 buffers={"b": SQUARE}, parameters={"w": X})


def test_a_transposed_weight_is_an_error():
    def forward(m, x):
        y = poptorch.identity_loss((x @ m.w).sum(), "sum")
        with torch.no_grad():
            m.w.t_()
        return y

    _check_error(forward, "changes the memory layout of w in place, which is trained. Change",
                 parameters={"w": SQUARE})
