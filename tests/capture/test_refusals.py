"""What comes out of a capture that fails: the user's own exceptions, or torch's with a place."""

import functools
import inspect
import json
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import poptorch
from poptorch._base.torch_private import fake_tensors
from poptorch._capture import capture
from tests.capture.common import Function
from tests.helpers import quiet_options

X = torch.ones(2, 3)


class Odd(Exception):
    """Its constructor takes what no other does."""

    def __init__(self, *, first, second):
        self.both = first, second


def odd(m, x):
    raise Odd(first=1, second=2)


def reraised(m, x):
    try:
        x.view(4)
    except RuntimeError as error:
        raise Odd(first=error, second=None) from error


def asserted(m, x):
    assert x.dim() == 3, "three dimensions"


def group(m, x):
    raise ExceptionGroup("both", [KeyError("a"), ValueError("b")])


def warned(m, x):
    warnings.warn("mine", FutureWarning, stacklevel=1)


def helper(x, scale):
    return x * scale


def in_checkpoint(m, x):
    return checkpoint(functools.partial(odd, m), x, use_reentrant=False)


class RaisesBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        raise Odd(first=1, second=2)


OWN = {
    "raise": (odd, Odd),
    "raise from torch's": (reraised, Odd),
    "assert": (asserted, AssertionError),
    "group": (group, ExceptionGroup),
    "warning as error": (warned, FutureWarning),
    "a callback of torch": (in_checkpoint, Odd),
    "key": (lambda m, x: {}["a"], KeyError),
    "index": (lambda m, x: [x][1], IndexError),
    "name": (lambda m, x: undefined, NameError),  # noqa: F821
    "call of a builtin": (lambda m, x: int("z"), ValueError),
    "call of an own function": (lambda m, x: helper(x, scale=2, dim=3), TypeError),
    "call of too few": (lambda m, x: helper(x), TypeError),
    "method of a list": (lambda m, x: [].index(4), ValueError),
    "the standard library": (lambda m, x: json.loads("{"), json.JSONDecodeError),
    "division": (lambda m, x: x / (1 // 0), ZeroDivisionError),
    "unpacking": (lambda m, x: helper(*[1, 2, 3]), TypeError),
    "poptorch.Error": (lambda m, x: (_ for _ in ()).throw(poptorch.Error("mine")), poptorch.Error),
    "stop": (lambda m, x: next(iter(())), StopIteration),
    # Calls of torch that Python refuses, or C++ that takes no tensor.
    "keyword": (lambda m, x: torch.relu(x, foo=1), TypeError),
    "keyword of a method": (lambda m, x: x.cumsum(1, foo=2), TypeError),
    "keyword of Python": (lambda m, x: F.relu(x, foo=1), TypeError),
    "constructor": (lambda m, x: nn.Linear(3), TypeError),
    "no tensor": (lambda m, x: torch.finfo(torch.int64), TypeError),
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.filterwarnings("error::FutureWarning")
def test_own_exceptions_are_unchanged(name):
    function, kind = OWN[name]
    kept = []

    def forward(m, x):
        try:
            return function(m, x)
        except BaseException as error:
            kept.append((error, type(error), str(error), vars(error).copy()))
            raise

    with pytest.raises(kind) as raised:
        capture(nn.Sequential(nn.ReLU(), Function(forward)), (X,), training=False)
    assert (raised.value, type(raised.value), str(raised.value), vars(raised.value)) == kept[0]
    assert type(raised.value) is kind
    places = [entry.path for entry in raised.traceback]
    assert any(str(path) == __file__ for path in places)
    assert capture(Function(lambda m, x: x + 1), (X,), training=False)


def test_own_exceptions_in_backward_are_unchanged():
    def forward(m, x):
        return poptorch.identity_loss(RaisesBackward.apply(x * m.p), "sum")

    with pytest.raises(Odd) as raised:
        capture(Function(forward, {"p": torch.ones(3)}), (X,), training=True)
    assert type(raised.value) is Odd and raised.value.both == (1, 2)


def test_own_exceptions_in_hooks_are_unchanged():
    layer = nn.Linear(3, 3)
    layer.register_forward_hook(lambda *arguments: odd(*arguments[:2]))
    with pytest.raises(Odd):
        capture(layer, (X,), training=False)


# What torch raises: the function, and words of the call that it refuses.
TORCHS = {
    "index": (lambda m, x: x[7], "[Tensor.__getitem__]", "Tensor.__getitem__(float32[2, 3], 7)"),
    "dimension": (lambda m, x: x.sum(5), "[sum]", "torch.Tensor.sum(float32[2, 3], 5)"),
    "sizes": (lambda m, x: torch.cat([x, x[:, :2]]), "[cat]", "[float32[2, 3], float32[2, 2]]"),
    "view": (lambda m, x: x.view(4), "[view]", "torch.Tensor.view(float32[2, 3], 4)"),
    "dtype": (lambda m, x: F.embedding(x, x), "[embedding]", "torch.nn.functional.embedding"),
    "not implemented": (lambda m, x: F.conv2d(x[None, None].long(), x[None, None].long(),
                                              padding="foo"), "[", "int64[1, 1, 2, 3]"),
    "addition": (lambda m, x: x + torch.ones(4), "[add]", "float32[4]"),
    "length": (lambda m, x: len(x.sum()), "[Tensor.__len__]", "float32[]"),
    "float index": (lambda m, x: x[1.5], "[Tensor.__getitem__]", "1.5"),
    "parser": (lambda m, x: torch.sum(x, foo=3), "[capture]", "invalid combination"),
    "parser after a call": (lambda m, x: x.abs().cumsum(foo=2), "[capture]", "cumsum()"),
    "class of a string": (lambda m, x: torch.add(x, "a"), "[capture]", "not str"),
    "operator": (lambda m, x: x + "a", "[capture]", "'Tensor' and 'str'"),
    "attribute": (lambda m, x: x.foo, "[capture]", "'Tensor' object has no attribute 'foo'"),
    "module attribute": (lambda m, x: m.foo, "[capture]", "object has no attribute 'foo'"),
    "iteration": (lambda m, x: list(x.sum()), "[capture]", "iteration over a 0-d tensor"),
    "in a helper": (lambda m, x: sorted([x], key=lambda t: t.view(5)), "[view]", "view"),
}


@pytest.mark.parametrize("name", TORCHS)
@pytest.mark.parametrize("training", [False, True])
def test_torchs_exceptions_are_errors_too(name, training, capfd):
    function, where, words = TORCHS[name]
    with pytest.raises(Exception) as eager:
        function(Function(function), X)

    def forward(m, x):
        return F.mse_loss(function(m, x * m.p), x)

    module = nn.Sequential(nn.ReLU(), Function(forward, {"p": torch.ones(3)}))
    with pytest.raises(poptorch.Error) as raised:
        capture(module, (X,), training=training)
    error = raised.value
    assert isinstance(error, eager.type) and type(error).__name__ in (
        eager.type.__name__, "Error")
    first_line = str(eager.value).splitlines()[0]
    text = str(error)
    assert text == error.message and text.startswith(where) and words in text
    assert first_line in text or "FakeTensor" not in text
    line = function.__code__.co_firstlineno
    assert error.location in [f'{__file__}:{line + more}, module "1"' for more in (0, 1)]
    assert text.endswith(f"\n  at {error.location}")
    assert raised.value.__cause__ is not None and capfd.readouterr().err == ""
    assert capture(Function(lambda m, x: x + 1), (X,), training=False)


def test_an_error_in_backward_names_the_operation_of_forward():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient[:, :2]

    def forward(m, x):
        return Wrong.apply(torch.tanh(x * m.p)).sum()

    module = Function(lambda m, x: poptorch.identity_loss(forward(m, x), "sum"),
                      {"p": torch.ones(3)})
    with pytest.raises(poptorch.Error, match=r"(?s)invalid gradient.*test_refusals.py:\d+"):
        capture(module, (X,), training=True)


def test_an_exception_that_forward_handles_is_torchs_own():
    def forward(m, x):
        with pytest.raises(IndexError) as raised:
            x[7]
        assert not isinstance(raised.value, poptorch.Error)
        return x * 2

    assert capture(Function(forward), (X,), training=False)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x):
        return self.body(x)


# Layers that are one operation of ours, what they are called with, and eager's words.
WHOLE_LAYERS = {
    "batch_norm": (nn.BatchNorm1d(8), torch.ones(2, 7), "should contain 7 elements not 8"),
    "batch_norm of integers": (nn.BatchNorm1d(4), torch.ones(2, 4).long(),
                               "not implemented for 'Long'"),
    "dropout": (nn.Dropout(0.5), torch.ones(3).long(), "Float can't be cast to .* Long"),
    "rnn": (nn.RNN(8, 3), torch.ones(2, 7, 8).long(), "must have the same dtype, but got Long"),
    "gru": (nn.GRU(8, 3), torch.ones(2, 7, 8).long(), "must have the same dtype, but got Long"),
    "lstm": (nn.LSTM(8, 3), torch.ones(2, 7, 8).long(), "must have the same dtype, but got Long"),
}


@pytest.mark.parametrize("name", WHOLE_LAYERS)
@pytest.mark.parametrize("training", [False, True])
def test_whole_layers_are_refused_in_torchs_words(name, training):
    layer, x, words = WHOLE_LAYERS[name]
    if name == "dropout" and not training:
        assert capture(layer.eval(), (x,), training=False)
        return
    with pytest.raises(poptorch.Error, match=words) as raised:
        capture(layer.train(training), (x,), training=training)
    assert "i32" not in str(raised.value) and "test_refusals.py" in raised.value.location


@pytest.mark.parametrize("x, words", [
    (torch.ones(3, 5), "mat1 and mat2 shapes cannot be multiplied (3x5 and 4x2)"),
    (torch.ones(3, 4, dtype=torch.int64), "must have the same dtype, but got Long and Float"),
])
def test_wrong_arguments_of_the_first_call(x, words):
    with pytest.raises(RuntimeError) as eager:
        Layers()(x)
    assert words in str(eager.value)
    module = poptorch.inferenceModel(
        Layers(), poptorch.Options().showCompilationProgressBar(False))
    with pytest.raises(poptorch.Error) as raised:
        module(x)
    line = inspect.getsourcelines(Layers.forward)[1] + 1
    assert words in str(raised.value)
    assert f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" in str(raised.value)
    assert raised.value.location == f'{__file__}:{line}, module "body.1"'
    with pytest.raises(poptorch.Error, match=rf"(?s)Long and Float|cannot be multi.*\n  at "
                                             rf"{__file__}:\d+$"):
        poptorch.inferenceModel(nn.Linear(4, 2))(x)


UNKNOWN_SHAPES = {
    "mask": lambda m, x: x[x > 0],
    "nonzero": lambda m, x: x.nonzero(),
    "where": lambda m, x: torch.where(x > 0),
    "masked_select": lambda m, x: torch.masked_select(x, x > 0),
    "unique": lambda m, x: x.unique(),
    "unique_consecutive": lambda m, x: torch.unique_consecutive(x),
}


@pytest.mark.parametrize("name", UNKNOWN_SHAPES)
def test_shapes_that_depend_on_values(name):
    forward = UNKNOWN_SHAPES[name]
    with pytest.raises(fake_tensors.DynamicOutputShapeException) as raised:
        capture(Function(forward), (X,), training=False)
    assert isinstance(raised.value, poptorch.Error)
    assert isinstance(raised.value.func, torch._ops.OpOverload)
    line = forward.__code__.co_firstlineno
    assert raised.value.location == f"{__file__}:{line}"
    for words in ("shape of the result depends on the values", "torch.where", "outside forward"):
        assert words in str(raised.value)


IN_PLACE = {
    "dtype": lambda m, x: x.long().mul_(0.5),
    "dtype of a function": lambda m, x: (x > 0).mul_(torch.tensor(0.5)),
    "shape": lambda m, x: x.sum().clamp_(torch.ones(3)),
    "broadcast": lambda m, x: x[0].clone().add_(torch.ones(2, 3)),
    "mask": lambda m, x: x.clone().masked_fill_(x, 1.0),
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_what_does_not_fit_a_tensor_that_is_changed(name):
    forward = IN_PLACE[name]
    with pytest.raises(RuntimeError):
        forward(None, X)
    with pytest.raises(poptorch.Error) as raised:
        capture(Function(forward), (X,), training=False)
    assert raised.value.location == f"{__file__}:{forward.__code__.co_firstlineno}"
    assert capture(Function(lambda m, x: x.long().copy_(True)), (X,), training=False)


SPARSE = torch.eye(3).to_sparse()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # CSR is called new
    ROWS = torch.eye(3).to_sparse_csr()


@pytest.mark.parametrize("forward, words", [
    (lambda m, x: SPARSE @ x.T, "layout torch.sparse_coo. Pass constant.to_dense()"),
    (lambda m, x: torch.sparse.mm(ROWS, x.T), "torch.sparse_csr"),
    (lambda m, x: x.to_sparse() @ x.T, "[_to_sparse] the result is of layout torch.sparse_coo"),
])
def test_sparse_products(forward, words):
    module = poptorch.inferenceModel(
        Function(forward), poptorch.Options().showCompilationProgressBar(False))
    with pytest.raises(poptorch.Error) as raised:
        module(X)
    assert words in str(raised.value)
    assert raised.value.location == f"{__file__}:{forward.__code__.co_firstlineno}"


def test_a_sparse_buffer():
    with pytest.raises(poptorch.Error, match=r"\[s\] expected a dense tensor .*sparse_coo. Pass s"):
        capture(Function(lambda m, x: m.s @ x.T, buffers={"s": SPARSE}), (X,), training=False)


class Doubled(torch.Tensor):
    """A tensor whose sums are twice as large."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out * 2 if func is torch.Tensor.add else out


class Named(nn.Parameter):
    """A parameter with nothing of its own but its class."""


def test_tensors_that_compute_otherwise():
    words = (r"expected a plain tensor but got a Doubled, which has functions of its own "
             r"\(__torch_function__, __torch_dispatch__\) .*Pass {0}.as_subclass\(torch.Tensor\)")
    odd = torch.ones(3).as_subclass(Doubled)
    with pytest.raises(poptorch.Error, match=r"\[odd\] " + words.format("odd")):
        capture(Function(lambda m, x: m.odd.add(x), buffers={"odd": odd}), (X,), training=False)
    module = Function(lambda m, x: x.add(m.odd))
    module.odd = odd
    with pytest.raises(poptorch.Error, match=r"\[constant\] " + words.format("constant")):
        capture(module, (torch.ones(3),), training=False)
    model = poptorch.inferenceModel(Function(lambda m, x: x + 1))
    assert torch.equal(model(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(poptorch.Error, match=words.format("args.0")):
        model(odd)
    named = Function(lambda m, x: x * m.named, {"named": torch.ones(3)})
    named.named = Named(torch.ones(3))
    assert capture(named, (torch.ones(3),), training=False)


def test_nested_tensors():
    def forward(m, x):
        return torch.nested.nested_tensor([x, x[:1]]).to_padded_tensor(0.0)

    with pytest.raises(poptorch.Error, match="makes or takes a nested tensor .*pad_sequence"):
        capture(Function(forward), (X,), training=False)


@pytest.mark.parametrize("make, words", [
    (lambda x: {x, x * 2}, "a set that holds tensors"),
    (lambda x: frozenset([x]), "a frozenset that holds tensors"),
    (lambda x: [1, {"a": (y for y in x)}], "a generator, whose"),
    (lambda x: map(torch.abs, [x]), "a map, whose"),
    (lambda x: {"a": x}.values(), "a dict_values that holds tensors"),
])
def test_results_that_are_not_taken_apart(make, words):
    with pytest.raises(poptorch.Error) as raised:
        capture(Function(lambda m, x: make(x)), (X,), training=False)
    assert str(raised.value).startswith(f"[output] forward returned {words}")
    assert "Return list(...) or tuple(...) of it" in str(raised.value)


@pytest.mark.parametrize("argument", [{X}, iter([X]), (t for t in [X]), {"a": X}.values()])
def test_arguments_that_are_not_taken_apart(argument):
    module = poptorch.inferenceModel(Function(lambda m, x, more: x))
    with pytest.raises(poptorch.Error, match=r"\[arguments\] args.1 is a .*Pass list\("):
        module(X, argument)


def test_a_set_without_tensors_is_a_constant():
    captured = capture(Function(lambda m, x: (x, {1, 2})), (X,), training=False)
    assert captured.out_spec.unflatten([X])[1] == {1, 2}


class Nested(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.inner = Nested(depth - 1) if depth else nn.Identity()

    def forward(self, x):
        return self.inner(x + 1)


def test_modules_nested_too_deeply_for_the_limit_of_python():
    """Capture takes more frames for each module than eager mode does."""
    depth = sys.getrecursionlimit() // 5
    module, x = Nested(depth), torch.zeros(2)
    assert module(x)[0] == depth + 1
    model = poptorch.inferenceModel(module, quiet_options())
    words = r"\[capture\] forward is nested more deeply .* of \d+ frames .* `sys.setrecursionlimit"
    with pytest.raises(poptorch.Error, match=words) as found:
        model(x)
    assert isinstance(found.value, RecursionError)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(4 * limit)
    try:
        assert model(x)[0] == depth + 1
    finally:
        sys.setrecursionlimit(limit)
