"""What sees the memory of tensors: as_strided and its kin, bits, and arguments of any layout.

Each function runs on the device and in eager, on arguments that lie alike in memory; results and
the arguments afterwards are the same.
"""

import pytest
import torch
from torch import nn

import poptorch
from tests.capture.common import tensors_of
from tests.helpers import check_equal_bits, quiet_options


class Function(nn.Module):
    def __init__(self, function, *parameters):
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(parameters)

    def forward(self, *args):
        return self.function(*args, *self.weights)


def same_layout(tensor):
    """A copy with a memory of its own, in which it lies as ``tensor`` does."""
    memory = tensor.untyped_storage().clone()
    copy = torch.empty(0, dtype=tensor.dtype).set_(
        memory, tensor.storage_offset(), tensor.size(), tensor.stride())
    return torch._neg_view(copy) if tensor.is_neg() else copy


def check(function, *args):
    ours, eager = [list(map(same_layout, args)) for _ in range(2)]
    result = poptorch.inferenceModel(Function(function), quiet_options())(*ours)
    with torch.no_grad():
        expected = function(*eager)
    for got, wanted in zip(tensors_of(result), tensors_of(expected), strict=True):
        assert got.dtype is (torch.int32 if wanted.dtype is torch.int64 else wanted.dtype)
        assert torch.equal(got.to(wanted.dtype), wanted), (got, wanted)
    check_equal_bits([t.resolve_neg() for t in ours], [t.resolve_neg() for t in eager])


def count(*sizes):
    return torch.arange(float(torch.Size(sizes).numel())).reshape(sizes)


X = count(4, 4)
STRIDED = {
    "of a slice": (lambda x: x[2:].as_strided((3,), (1,), 0), count(6)),
    "of a transposed input": (lambda x: x.t().as_strided((2, 2), (1, 1)), X),
    "of a result in another order": (lambda x: (x.t() + 1).as_strided((5,), (1,)), count(3, 4)),
    "of a chunk": (lambda x: x.chunk(2, 1)[1].as_strided((3,), (2,)), X),
    "of a split": (lambda x: x.split(2)[1].as_strided((2, 2), (2, 1), 1).add_(1), X),
    "of a diagonal": (lambda x: x.diagonal().as_strided((3,), (1,), 1), X),
    "of an expanded row": (lambda x: x[:1].expand(3, 4).as_strided((3,), (1,), 1), X),
    "of itself": (lambda x: x[1:].as_strided((6,), (1,)).as_strided((2,), (3,), 1), X),
    "of a transposed argument": (lambda x: x.as_strided((5,), (1,), 1), count(3, 4).t()),
    "of a part of a larger tensor": (lambda x: x.as_strided((2,), (1,), 2), count(6)[2:]),
    "without offset": (lambda x: x.as_strided((2,), (1,)), count(6)[2:]),
    "rows that overlap": (lambda x: x.as_strided((3, 2), (1, 1), 1), X),
    "rows with gaps": (lambda x: x.as_strided((2, 2), (5, 2), 1).add_(1), X),
    "repeated": (lambda x: x.as_strided((4, 2, 4), (1, 0, 4), 0), X),
    "repeated, one is changed": (
        lambda x: x.as_strided((4, 2, 4), (1, 0, 4), 0)[:, 0].mul_(2), X),
    "nothing": (lambda x: x.as_strided((0, 2), (1, 1), 0), X),
    "no dimensions": (lambda x: x.as_strided((), (), 3).add_(1), X),
    "of no dimensions": (lambda x: x.as_strided((1,), (1,), 0).add_(1), torch.tensor(3.0)),
    "changed": (lambda x: x[2:].as_strided((3,), (1,), 0).mul_(10), count(6)),
    "changed in another order": (
        lambda x: [y := x.t() * 1, y.as_strided((3,), (1,), 0).mul_(10), y + 0], X),
    "transposed and changed": (lambda x: x.as_strided((4, 3), (1, 4), 2).add_(1), X),
    "in place": (lambda x: x[2:].as_strided_((2,), (1,), 1).add_(1), count(6)),
    "in place of a clone": (lambda x: x.clone().as_strided_((2,), (1,), 3), count(6)),
    "copy": (lambda x: torch.as_strided_copy(x.t(), (2,), (1,), 1), X),
    "scatter": (lambda x: torch.as_strided_scatter(x.t(), torch.ones(2), (2,), (1,), 1), X),
    "scatter, then view": (lambda x: torch.as_strided_scatter(
        x.t(), torch.ones(2), (2,), (1,), 1).t().view(16).add_(1), X),
    "of a negative view": (lambda x: torch._neg_view(x).as_strided((3, 2), (1, 1), 1), X),
    "of bits": (lambda x: x.view(torch.int32)[1:].as_strided((3,), (1,), 1), X),
    "resize": (lambda x: (x * 2).t().resize_(3).add_(1), X),
    "resize to channels last": (
        lambda x: (x * 1).resize_(1, 2, 2, 2, memory_format=torch.channels_last).add_(1),
        count(8)),
}
PARTS = {
    "a row after expand": (lambda x: [y := x.expand(3, 4), y[0].add_(1), y * 2], count(4)),
    "elements after expand": (
        lambda x: [y := (x * 2)[None].expand(3, 4), y[1, 1:3].mul_(5), y * 2], count(4)),
    "a window": (lambda x: [y := x.unfold(0, 3, 2), y[1].add_(1), y + 0], count(7)),
    "a part of a window": (
        lambda x: [y := x.unfold(0, 3, 1), y[1, 1:].mul_(5), y[0], y * 2], count(6)),
    "windows of columns": (lambda x: [y := x.t().unfold(1, 2, 1), y[1, 1].mul_(5), y * 2], X),
}
BITS = {
    "f32 to i32": (lambda x: x.view(torch.int32), X),
    "f32 to i16": (lambda x: x.view(torch.int16), X),
    "f16 to f32": (lambda x: x.view(torch.float32), count(2, 6).half()),
    "bf16 to f16": (lambda x: x.view(torch.float16) * 2, count(2, 6).bfloat16()),
    "i32 to f32": (lambda x: x.view(torch.float32) * 2, X.view(torch.int32)),
    "f32 to u8 of columns": (lambda x: x.t().contiguous().view(torch.uint8), X),
    "f32 to i32 of columns": (lambda x: x.t().view(torch.int32), X),
    "bool to u8": (lambda x: x.view(torch.uint8), X > 5),
    "u8 to bool": (lambda x: ~x.view(torch.bool), (X > 5).to(torch.uint8)),
    "changed": (lambda x: x.view(torch.int32).add_(1), X),
    "changed as halves": (lambda x: x.view(torch.float16)[:, 1::2].neg_(), X),
    "float of no dimensions": (lambda x: x.view(torch.int32), torch.tensor(1.0)),
}
NEGATIVE = {
    "argument": (lambda x: x + 1, torch._neg_view(count(6))),
    "changed argument": (lambda x: x[1:].add_(1), torch._neg_view(count(6))),
    "view": (lambda x: torch._neg_view(x) + x, count(6)),
    "result": (lambda x: torch._neg_view(x), count(6)),
    "changed view": (lambda x: torch._neg_view(x)[:3].add_(1), count(6)),
}
CASES = {f"{kind}: {name}": case for kind, cases in (
    ("strided", STRIDED), ("part", PARTS), ("bits", BITS), ("negative", NEGATIVE))
    for name, case in cases.items()}


@pytest.mark.parametrize("name", CASES)
def test_like_eager(name):
    function, *args = CASES[name]
    check(function, *args)


def test_weights_with_a_negative_bit():
    model = Function(lambda x, w: x * w, nn.Parameter(torch._neg_view(count(3) + 1)))
    ours = poptorch.inferenceModel(model, quiet_options())(torch.ones(3))
    assert torch.equal(ours, model(torch.ones(3)))


def check_gradient(loss, x, w):
    eager = w.clone().requires_grad_()
    loss(x, eager).backward()
    model = Function(loss, nn.Parameter(w.clone()))
    with poptorch.testing.keep_gradients():
        training = poptorch.trainingModel(
            model, quiet_options(), poptorch.optim.SGD(model.parameters(), lr=0.1))
        training(x)
        found = poptorch.testing.gradients(training)["weights.0"]
    assert torch.allclose(found, eager.grad, atol=1e-6)


@pytest.mark.parametrize("function", [
    lambda x, w: (w.t() * x).as_strided((3, 3), (1, 2), 1),
    lambda x, w: w[1:].as_strided((2, 3), (3, 1), 2) * x[0, 0],
    lambda x, w: (w * x.t()).as_strided((4, 2), (1, 1), 2).sin(),
    lambda x, w: torch.as_strided_scatter(w * 1, x[0, :2], (2,), (3,), 1) * w,
])
def test_gradients(function):
    def loss(x, w):
        return poptorch.identity_loss((function(x, w) * 1.5).sin(), "sum")

    check_gradient(loss, torch.rand(4, 3), torch.rand(3, 4))


@pytest.mark.parametrize("view", [
    lambda x: x[2:].as_strided((2, 3), (3, 1), 6), lambda x: x.as_strided((3,), (3,), 1),
    lambda x: x.view(-1).as_strided((2, 2), (0, 1), 3)])
def test_gradients_through_a_change(view):
    def loss(x, w):
        x = x * 1
        part = view(x)
        x.copy_(w * w)
        return poptorch.identity_loss(part.sin(), "sum")

    check_gradient(loss, torch.rand(4, 3), torch.rand(3))


def test_gradients_of_a_whole_whose_view_beyond_another_was_changed():
    def loss(x, w):
        x = x * w
        x[:2].as_strided((2,), (5,), 3).div_(w[:2].exp())
        return poptorch.identity_loss(x.sin(), "sum")

    check_gradient(loss, torch.rand(4, 3), torch.rand(3))


@pytest.mark.parametrize("change", [
    lambda x, part, w: x.copy_(w), lambda x, part, w: part.mul_(w[:2]),
    lambda x, part, w: part[:1].mul_(w[0])])
@pytest.mark.parametrize("use", [lambda part: part, lambda part: part[1:]])
def test_a_gradient_of_elements_beyond_a_changed_view_is_refused(change, use):
    def forward(x, w):
        x = x * 1
        part = x[:2].as_strided((2,), (5,), 3)
        used = use(part)
        change(x, part, w)
        return poptorch.identity_loss(used, "sum")

    model, x = Function(forward, nn.Parameter(torch.rand(3))), torch.rand(4, 3)
    assert torch.equal(  # without a gradient it is right
        poptorch.inferenceModel(model, quiet_options())(x), model(x))
    training = poptorch.trainingModel(
        model, quiet_options(), torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(poptorch.Error, match="(?s)not in its base tensor.*\\n  at "):
        training(torch.rand(4, 3))


REFUSED = {
    "sizes [3] and strides [2]: a compiled program has its elements": (
        lambda x: x.as_strided((3,), (1,), 1), count(6)[::2]),
    "the elements -1 to 1 of the memory of a tensor of 4 elements. The program is given": (
        lambda x: x.as_strided((3,), (1,), 1), count(6)[2:]),
    "elements 14 to 17 of the memory of a tensor of 16": (
        lambda x: (x * 1).as_strided((4,), (1,), 14), X),
    "several of its elements share memory": (lambda x: x.expand(3, 4).add_(1), count(4)),
    "several of its elements share memory, such as": (
        lambda x: x.unfold(0, 3, 1).add_(1), count(6)),
    "several of its elements share memory, such as after": (
        lambda x: x[:, 0].add_(1), count(6).as_strided((3, 4), (1, 1))),
    "several of its elements share memory, such as after expand": (
        lambda x: torch.as_strided_scatter(x, torch.ones(2, 2), (2, 2), (1, 1), 0), X),
    "resize_ enlarges a tensor from [4, 4] to [20]": (lambda x: (x * 1).resize_(20), X),
    "resize_ enlarges a tensor from [0] to [2, 3]": (
        lambda x: x.new_empty(0).resize_(2, 3).fill_(1) * x[0, 0], X),
    "the memory of another tensor or of a storage (Tensor.set_)": (
        lambda x: torch.empty(0).set_(x.untyped_storage(), 0, (2,)), X),
    "the memory of another tensor or of a storage (Tensor.set_). Make a view": (
        lambda x: torch.empty(0).set_(x).add_(1), X),
    "view(torch.float64) of a tensor of torch.float32 uses the bits of torch.float64": (
        lambda x: x.view(torch.float64), X),
    "view(torch.int32) of a tensor of torch.int64 uses the bits of torch.int64": (
        lambda x: x.view(torch.int32), X.long()),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_a_program_cannot_know_is_refused_by_place(words):
    function, *args = REFUSED[words]
    with pytest.raises(poptorch.Error) as error:
        poptorch.inferenceModel(Function(function), quiet_options())(*args)
    assert words in str(error.value) and "test_memory_views.py:" in str(error.value)


LATER = {
    "x: expected strides [4, 1] but got [1, 4]": (
        lambda x: x.as_strided((3,), (1,), 1), (X, X.t())),
    "x: expected strides [1, 4] but got [4, 1]": (
        lambda x: x.reshape(16).add_(1), (X.t(), X)),
    "x: expected strides [4, 1] but got [1, 4]. forward": (
        lambda x: [y := x * 2, y.contiguous().add_(1), y], (X, X.t())),
    "x: expected a tensor that begins at element 0 of its memory but got one at 4": (
        lambda x: x.as_strided((3,), (1,), 1), (count(2, 4), X[1:3])),
    "forward changes x in place, but several of its elements share": (
        lambda x: x[0].add_(1), (X, count(4).expand(4, 4))),
}


@pytest.mark.parametrize("words", LATER)
def test_a_later_argument_that_lies_otherwise(words):
    function, (first, later) = LATER[words]

    class Named(nn.Module):
        def forward(self, x):
            return function(x)

    model = poptorch.inferenceModel(Named(), quiet_options())
    model(same_layout(first))
    model(same_layout(first))
    with pytest.raises(poptorch.Error) as error:
        model(same_layout(later))
    assert words in str(error.value)


def test_later_arguments_may_lie_otherwise_where_that_makes_no_difference():
    for function in (lambda x: x.reshape(16) + 1, lambda x: x.contiguous(), lambda x: x.add_(1),
                     lambda x: [y := x * 1, y.relu_(), x.reshape(2, 8).sum(1)]):
        model = poptorch.inferenceModel(Function(function), quiet_options())
        for tensor in (X, X.t(), X.t().contiguous().t()):
            ours, eager = same_layout(tensor), same_layout(tensor)
            found, expected = tensors_of(model(ours)), tensors_of(function(eager))
            assert all(map(torch.equal, found, expected)) and torch.equal(ours, eager)


def test_changed_arguments_that_share_memory_are_refused():
    model = poptorch.inferenceModel(Function(lambda x, y: x.add_(1) + y), quiet_options())
    both = count(8)
    model(both[:4], both[4:])
    for x, y in ((both, both), (both[:4], both[2:6])):
        with pytest.raises(poptorch.Error, match="shares memory with.*clone"):
            model.destroy()
            model(x, y)
