"""Reads by masks, operations on the result, and writes by the same mask, compared with eager."""

import copy

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function, nodes
from tests.helpers import quiet_options

X = torch.linspace(-2, 2, 24).reshape(4, 6)
ROWS, COLUMNS = [True, False, True, False], torch.tensor([True, False] * 3)


def added(x, w):
    x[x > 0.3] += 3


def scaled(x, w):
    x[x > 0.3] *= 2


def computed(x, w):
    m = x > 0.3
    x[m] = torch.sigmoid(x[m] * 2 + 1) - x[m].abs() ** 2


def of_another_tensor(x, w):
    m = x > 0.3
    x[m] = w[m]
    x[~m] -= w[~m]


def rows(x, w):
    m = x[:, 0] > -1
    x[m] = x[m].exp() + w[m] * w[0]


def columns(x, w):
    m = x[0] > -1
    x[:, m] *= 2


def kept_in_between(x, w):
    m = x > 0
    v = x[m]
    v += 1
    x[m] = v
    v.mul_(2)
    x[~m] = -x[~m]


def with_a_slice(x, w):
    m = x[:, 0] > -1
    x[m, 1:3] = x[m, 1:3] * 3
    x[m, 4] = x[m, 4] - 1


def of_bytes(x, w):
    m = (x > 0).byte()
    x[m] = x[m] + w[m]


def written_twice(x, w):
    x[x > 0] = x[x > 0] * 2
    x[x > 0] = F.relu(x[x > 0] - 1)


def chosen(x, w):
    m = x > 0
    x[m] = torch.where(x[m] > 1, x[m].clamp(max=1.5), w[m])


def by_one_number(x, w):
    m = x > 0
    x[m] = x[m] * w[0, 0] + w[1, :1].sum()


def without_infinite_gradients(x, w):
    m = x > 0
    x[m] = x[m].sqrt() + 1 / x[m] + x[m].log()


def added_by_index_put(x, w):
    m = x > 0
    x.index_put_((m,), w[m] * 2, accumulate=True)


def in_another_type(x, w):
    m = x > 0
    x[m] = x[m].to(torch.float32).sin().to(x.dtype)


def by_masked_select(x, w):
    m = x > 0
    x[m] = torch.masked_select(w, m) * 2


CHANGES = [added, scaled, computed, of_another_tensor, rows, columns, kept_in_between, with_a_slice,
           of_bytes, written_twice, chosen, by_one_number, without_infinite_gradients,
           added_by_index_put, in_another_type, by_masked_select]


# Each has another result, or none, in another type.
TYPED = {
    "doubled": lambda v, m: (v[m] + v[m]).sum(),
    "product": lambda v, m: (v[m] * v[m] * 3).sum(),
    "negated": lambda v, m: (~v[m]).sum(),
    "compared": lambda v, m: (v[m] == 1).sum(),
    "in floats": lambda v, m: v[m].sum(dtype=torch.float32),
    "mean": lambda v, m: v[m].mean(),
    "mean in floats": lambda v, m: v[m].mean(dtype=torch.float32),
    "written": lambda v, m: v.clone().index_put_((m,), v[m] + v[m]),
}


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32,
                                   torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", TYPED)
def test_what_is_selected_keeps_its_type(name, dtype):
    def function(m, x):
        return TYPED[name](x.to(dtype), x > -1)

    x = torch.tensor([1.0, 0.0, 1.0, -2.0, 100.0])
    model = poptorch.inferenceModel(Function(function), quiet_options())
    try:
        expected = function(None, x)
    except (RuntimeError, TypeError):
        with pytest.raises(poptorch.Error):
            model(x)
        return
    result = model(x)
    assert result.dtype is expected.dtype or expected.dtype is torch.int64
    torch.testing.assert_close(result, expected, check_dtype=False)


class Changed(torch.nn.Module):
    """Changes its input, or what is computed from its weight and gives that a loss."""

    def __init__(self, change, is_trained=False):
        super().__init__()
        self.weight = torch.nn.Parameter(X / 3 + 0.1)
        self.change, self.is_trained = change, is_trained

    def forward(self, x):
        if not self.is_trained:
            self.change(x, self.weight.to(x.dtype))
            return x * 2
        y = x * self.weight.to(x.dtype)
        self.change(y, self.weight.to(x.dtype))
        loss = (y.float() * torch.arange(24.0).reshape(4, 6)).sum()
        return y.detach(), poptorch.identity_loss(loss, "none")


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-6), (torch.float16, 2e-3),
                                          (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_of_an_input(change, dtype, limit):
    ours, eager = X.to(dtype, copy=True), X.to(dtype, copy=True)
    with torch.no_grad():
        expected = Changed(change)(eager)
    found = poptorch.inferenceModel(Changed(change), quiet_options())(ours)
    torch.testing.assert_close(found, expected, rtol=limit, atol=limit)
    torch.testing.assert_close(ours, eager, rtol=limit, atol=limit)


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_gradients(change, dtype, limit):
    net = Changed(change, is_trained=True)
    eager = copy.deepcopy(net)
    expected, loss = eager(X.to(dtype))
    loss.backward()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 1.0))
    before = net.weight.detach().clone()
    found, _ = model(X.to(dtype))
    torch.testing.assert_close(found, expected, rtol=limit, atol=limit)
    torch.testing.assert_close(before - net.weight.detach(), eager.weight.grad, rtol=limit,
                               atol=limit * float(eager.weight.grad.abs().max()))


def number_before_a_pole(v, w):
    return (v - w).sqrt() + 1 / (w - v)


def number_after_a_pole(v, w):
    return w * (1 / v.log()) + (1 / v.log()) / w


def number_in_place(v, w):
    v = v - 0
    v -= w
    return v.sqrt()


def number_in_place_after_a_pole(v, w):
    v = 1 / v.log()
    v *= w
    return v


def number_between(v, w):
    return torch.addcmul(v, w, v - w).log() + torch.where(v > 2, v, w).rsqrt() + v.pow(w - v)


@pytest.mark.parametrize("compute", [
    number_before_a_pole, number_after_a_pole, number_in_place, number_in_place_after_a_pole,
    number_between], ids=lambda compute: compute.__name__)
@pytest.mark.parametrize("sizes", [(), (1,)], ids=str)
def test_the_gradient_of_one_number_beside_a_selection(compute, sizes):
    """Where the mask is false there are ones; other values would be infinite or NaN."""
    net = Function(lambda m, x: poptorch.identity_loss(compute(x[x > 1.5], m.w).sum(), "none"),
                   {"w": torch.ones(sizes)})
    eager = copy.deepcopy(net)
    x = torch.tensor([2.0, 0.0, 3.0])
    eager(x).backward()
    poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 0.1))(x)
    torch.testing.assert_close(net.w.detach(), 1 - 0.1 * eager.w.grad)


READS = {
    "list": lambda x: x[ROWS],
    "tensor": lambda x: x[:, COLUMNS],
    "bytes": lambda x: x[COLUMNS[:4].byte()],
    "computed": lambda x: x[torch.ones(4, 6, dtype=torch.bool).triu(1)],
    "nonzero": lambda x: x[torch.tensor([0, 1, 0, 2]).nonzero().squeeze(1)],
    "where": lambda x: x[torch.where(torch.arange(24).reshape(4, 6) % 5 == 0)],
    "sum": lambda x: x[x > 0].sum(),
    "mean": lambda x: x[x[:, 0] > -1].mean(),
    "sum of nothing": lambda x: x[x > 5].sum(),
    "mean of nothing": lambda x: x[x > 5].mean(),
    "sum of integers": lambda x: (x * 4).int()[x > 0].sum(),
    "type": lambda x: x * (2 if x[x > 0].dtype is x.dtype and x[x > 0].dim() == 1 else 3),
}


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", READS)
def test_reads(name, dtype):
    module = Function(lambda m, x: READS[name](x))
    found = poptorch.inferenceModel(module, quiet_options())(X.to(dtype))
    expected = READS[name](X.to(dtype))
    expected = expected.int() if expected.dtype is torch.int64 else expected
    torch.testing.assert_close(found, expected, equal_nan=True)


class WithLoss(torch.nn.Module):
    """A loss of what a mask selects."""

    def __init__(self, loss):
        super().__init__()
        self.weight = torch.nn.Parameter(X / 3)
        self.loss = loss

    def forward(self, x):
        return self.loss(x * self.weight.to(x.dtype), x)


LABELS = torch.tensor([2, 0, 5, 1])
LOSSES = {
    "mse": lambda y, x: F.mse_loss(y[x > 0], x[x > 0]),
    "l1": lambda y, x: F.l1_loss(y[x > 0.3], x[x > 0.3], reduction="sum"),
    "huber": lambda y, x: torch.nn.HuberLoss()(y[x[:, 0] > -1], x[x[:, 0] > -1]),
    "bce": lambda y, x: F.binary_cross_entropy(y.sigmoid()[x > 0], (x > 1).to(x.dtype)[x > 0]),
    "logits": lambda y, x: F.binary_cross_entropy_with_logits(y[x > 0], (x > 1).to(x.dtype)[x > 0]),
    "classes": lambda y, x: F.cross_entropy(y[x[:, 0] > -1], LABELS[x[:, 0] > -1]),
    "sum": lambda y, x: F.cross_entropy(y[x[:, 0] > -1], LABELS[x[:, 0] > -1], reduction="sum",
                                        label_smoothing=0.1),
    "ignored": lambda y, x: F.cross_entropy(
        y[x[:, 0] > -2], LABELS[x[:, 0] > -2], ignore_index=5,
        weight=torch.arange(1.0, 7.0, dtype=x.dtype)),
    "words": lambda y, x: F.nll_loss(
        y.reshape(2, 2, 6).log_softmax(-1)[x.reshape(2, 2, 6)[:, :, 0] > -1],
        LABELS.reshape(2, 2)[x.reshape(2, 2, 6)[:, :, 0] > -1]),
}


@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, dtype, limit):
    net = WithLoss(LOSSES[name])
    eager = copy.deepcopy(net)
    expected = eager(X.to(dtype))
    expected.backward()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 1.0))
    before = net.weight.detach().clone()
    found = model(X.to(dtype))
    torch.testing.assert_close(found, expected.detach(), rtol=limit, atol=limit)
    torch.testing.assert_close(before - net.weight.detach(), eager.weight.grad, rtol=limit,
                               atol=limit * float(eager.weight.grad.abs().max()))


def test_a_write_is_one_choice():
    captured = capture(Function(lambda m, x: added(x, None)), (X.clone(),), training=False)
    assert len(nodes(captured, torch.ops.aten.where.self)) == 2
    assert not nodes(captured, torch.ops.aten.index_put.default)


def mask_changed(x):
    m = x > 0
    v = x[m]
    m.logical_not_()
    x[m] = v


def other_mask(x):
    x[x > 0] = x[x < 0]


def operand_changed(x):
    v = x[x > 0]
    x -= 1
    x[x > 0] = v


REFUSED = {
    "a changed mask": mask_changed,
    "another mask": other_mask,
    "a changed operand of the mask": operand_changed,
    "two masks": lambda x: x[x > 0] + x[x > 1],
    "a reduction": lambda x: x[x > 0].max(),
    "a reduction of a dimension": lambda x: x[x[:, 0] > 0].sum(0),
    "a product": lambda x: x[x[:, 0] > 0] @ x.t(),
    "a size": lambda x: x * x[x > 0].shape[0],
    "a length": lambda x: x * len(x[x > 0]),
    "a concatenation": lambda x: torch.cat([x[x > 0], x[x > 0]]),
    "a list of sizes": lambda x: x[x > 0].view(-1),
    "more values than one": lambda x: x[x > 0] + torch.ones(12),
    "a result": lambda x: (x, [x[x > 0] * 2]),
    "a loss without reduction": lambda x: F.mse_loss(x[x > 0], x[x > 0] * 2, reduction="none"),
    "classes of columns": lambda x: F.cross_entropy(x[:, x[0] > 0], x[:, 0].long()),
    "a loss of two masks": lambda x: F.mse_loss(x[x > 0], x[x > 1]),
    "random": lambda x: F.dropout(x[x > 0]),
    "out": lambda x: torch.add(x[x > 0], 1, out=x),
    "what an operator takes": lambda x: torch.ops.aten.cumsum.default(x[x > 0], 0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_the_size(name):
    words = "(?s)the shape of the result depends on the values.*\n  at .*test_selections.py:"
    module = Function(lambda m, x: REFUSED[name](x))
    with pytest.raises(poptorch.Error, match=words) as caught:
        poptorch.inferenceModel(module, quiet_options())(X.clone())
    assert type(caught.value).__name__ == "DynamicOutputShapeException"


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 7


def test_a_function_with_its_own_gradient_is_refused():
    def change(x, w):
        x[x > 0] = Doubled.apply(x[x > 0]) + 1

    with pytest.raises(poptorch.Error, match="the shape of the result depends on the values"):
        net = Changed(change, is_trained=True)
        poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 1.0))(X)


def test_what_is_kept_in_an_attribute_is_taken_back():
    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = None

        def forward(self, x):
            self.kept = [x[x > 0]]
            return x * 2

    net = Keeps()
    assert torch.equal(poptorch.inferenceModel(net, quiet_options())(X), X * 2)
    assert net.kept is None


def test_another_type_is_refused():
    def write(m, x):
        x[x > 0] = x[x > 0].double()

    with pytest.raises(poptorch.Error, match="torch.float64 are written to a tensor of .*float32"):
        poptorch.inferenceModel(Function(write), quiet_options())(X.clone())


class Known(torch.nn.Module):
    """Values of a known number, which a gradient flows into."""

    def __init__(self, at, count, accumulate):
        super().__init__()
        self.weight = torch.nn.Parameter(X / 3)
        self.at, self.count, self.accumulate = at, count, accumulate

    def forward(self, x):
        y = x * self.weight
        index = [slice(None)] * self.at + [x[:, 1] > -1 if self.at == 0 else x[0] > -1.5]
        value = (self.weight * 3).narrow(self.at, 0, self.count)
        if self.accumulate:
            y.index_put_(tuple(index), value, accumulate=True)
        else:
            y[tuple(index)] = value
        loss = (y * torch.arange(24.0).reshape(4, 6)).sum()
        return y.detach(), poptorch.identity_loss(loss, "none")


@pytest.mark.parametrize("at, count, accumulate", [(0, 3, False), (0, 3, True), (1, 3, False)])
def test_gradients_of_values_of_a_known_number(at, count, accumulate):
    net = Known(at, count, accumulate)
    eager = copy.deepcopy(net)
    expected, loss = eager(X)
    loss.backward()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 1.0))
    before = net.weight.detach().clone()
    found, _ = model(X)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(before - net.weight.detach(), eager.weight.grad)
