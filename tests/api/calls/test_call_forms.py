"""Every form of arguments and results that a model may have, called twice with other values."""

import collections
import dataclasses
import re
import typing
import warnings

import numpy
import pytest
import torch

import poptorch
from poptorch import Error
from tests.helpers import quiet_options

X = torch.arange(6.0).reshape(2, 3)


def wrap(forward, **settings):
    """An inference model of a plain function."""
    module = torch.nn.Module()
    module.forward = forward
    return poptorch.inferenceModel(module, quiet_options(**settings))


def test_forward_given_to_the_class_later():
    class Late(torch.nn.Module):
        pass

    Late.forward = lambda self, x: x * 2
    assert torch.equal(poptorch.inferenceModel(Late(), quiet_options())(X), X * 2)


def test_none_omitted_and_keyword_are_the_same():
    def forward(x, y=None, z=None):
        return x + 1 if y is None else x + y

    model = wrap(forward)
    for call in (lambda: model(X, None, None), lambda: model(X), lambda: model(x=X, z=None)):
        assert torch.equal(call(), X + 1)


def test_a_default_that_is_a_tensor_is_an_input():
    default = torch.ones(2, 3)

    def forward(x, y=default):
        return x + y

    model = wrap(forward)
    assert torch.equal(model(X), X + 1)
    assert torch.equal(model(X, X), X + X)
    default += 1
    assert torch.equal(model(X), X + 2)


def test_variable_arguments():
    model = wrap(lambda *args, **kwargs: args[0] + kwargs["a"] - kwargs["b"])
    for k in (1, 2):
        assert torch.equal(model(X, a=X + k, b=X * k), X + X + k - X * k)
        assert torch.equal(model(X, b=X * k, a=X), X + X - X * k)
    for kwargs, words in (({"a": X}, "Missing arguments: b."),
                          ({"a": X, "b": X, "c": X}, "Unexpected arguments: c.")):
        with pytest.raises(Error, match=words):
            model(X, **kwargs)
    with pytest.raises(Error, match="Number of positional arguments mismatch: expected 1 "
                                    "arguments but got 2"):
        model(X, X, a=X, b=X)


def test_missing_parameters():
    with pytest.raises(Error, match="Mandatory parameter b missing"):
        wrap(lambda a, b: a + b)(X)

    def inner(a, b):
        return a + b

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        wrap(lambda *args, **kwargs: inner(*args, **kwargs))(X)


class Point(typing.NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class Ordered(collections.OrderedDict):
    pass


@dataclasses.dataclass
class Sample:
    image: torch.Tensor
    label: int


def test_nested_structures_keep_their_classes():
    def forward(point, values, table, ordered, sample):
        assert type(point) is Point and type(ordered) is Ordered and type(sample) is Sample
        return (Point(point.y, point.x), [values[0], (values[1] + 1, None)],
                {"z": table["a"], "b": [table["a"], 3]}, Ordered(ordered),
                Sample(sample.image * 2, sample.label), "text")

    model = wrap(forward)
    for k in (1.0, 2.0):
        point, values, table, ordered, sample, text = model(
            Point(X, X + k), [X + 2 * k, X + 3 * k], {"a": X * k}, Ordered(q=X - k),
            Sample(X / k, 7))
        assert type(point) is Point and torch.equal(point.x, X + k) and torch.equal(point.y, X)
        assert torch.equal(values[0], X + 2 * k) and torch.equal(values[1][0], X + 3 * k + 1)
        assert type(values) is list and type(values[1]) is tuple and values[1][1] is None
        assert list(table) == ["z", "b"] and table["b"][1] == 3
        assert torch.equal(table["b"][0], X * k)
        assert type(ordered) is Ordered and torch.equal(ordered["q"], X - k)
        assert type(sample) is Sample and sample.label == 7
        assert torch.equal(sample.image, X / k * 2)
        assert text == "text"


@pytest.mark.parametrize(("first", "later"), [
    ((X, X), Point(X, X)), ({"a": X}, Ordered(a=X)),
    ({"a": X}, collections.OrderedDict(a=X)), (0.0, -0.0), (-0.0, 0.0)])
def test_what_comes_back_as_it_was_at_the_first_call_is_refused(first, later):
    model = wrap(lambda argument: (argument, X + X))
    assert type(model(first)[0]) is type(first)
    with pytest.raises(Error, match=r"\[arguments\] .*mismatch for argument: expected .* but got"):
        model(later)


def test_lists_and_tuples_are_different_arguments():
    model = wrap(lambda pair: pair[0] + pair[1])
    model([X, X])
    with pytest.raises(Error, match="Type mismatch for pair: expected <class 'list'> but got "
                                    "<class 'tuple'>"):
        model((X, X))
    with pytest.raises(Error, match="Number of items in pair mismatch: expected 2 arguments but "
                                    "got 3"):
        model([X, X, X])


def test_no_arguments_and_no_results():
    assert torch.equal(wrap(lambda: torch.ones(3))(), torch.ones(3))

    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.ones(()))

        def forward(self):
            self.n += 1

    model = poptorch.inferenceModel(Counter(), quiet_options())
    assert model() is None and model() is None
    model.copyWeightsToHost()
    assert model.n == 3


def test_unused_arguments():
    model = wrap(lambda x, y, unused: y)
    for k in (1, 2):
        assert torch.equal(model(X, X + k, [X, {"a": X}]), X + k)


def test_one_tensor_twice():
    model = wrap(lambda x, y: (x - y, x))
    for second in (X, X + 1):
        difference, same = model(X, second)
        assert torch.equal(difference, X - second) and torch.equal(same, X)

    def forward(x):
        y = x + 1
        return y, y, x, [x]

    for k in (0, 1):
        y, again, x, (inside,) = wrap(forward)(X + k)
        assert torch.equal(y, X + k + 1) and torch.equal(again, y)
        assert torch.equal(x, X + k) and torch.equal(inside, x)


LAYOUTS = {
    "transposed": lambda k: (X + k).t(),
    "expanded": lambda k: torch.full((1, 1), float(k)).expand(3, 2),
    "stepped": lambda k: torch.arange(12.0).reshape(3, 4)[:, ::2] * k,
    "empty": lambda k: torch.empty(0, 2),
    "offset": lambda k: torch.arange(8.0)[2:].reshape(3, 2) + k,
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_of_arguments(make):
    model = wrap(lambda x: (x * 2, x.sum()))
    for k in (1, 2):
        doubled, total = model(make(k))
        assert torch.equal(doubled, make(k) * 2)
        torch.testing.assert_close(total, make(k).sum(), rtol=0, atol=1e-5)


def test_numbers():
    model = wrap(lambda x: x + 1)
    for value in (2.0, 3.0):
        result = model(torch.tensor(value))
        assert result.shape == () and result == value + 1


@pytest.mark.parametrize("dtype, returned", [
    (torch.float16, torch.float16), (torch.bfloat16, torch.bfloat16), (torch.int8, torch.int8),
    (torch.uint8, torch.uint8), (torch.int16, torch.int16), (torch.bool, torch.bool),
    (torch.int32, torch.int32), (torch.int64, torch.int32), (torch.float64, torch.float32),
    (torch.uint16, torch.int32), (torch.uint32, torch.int32), (torch.uint64, torch.int32)])
def test_dtypes(dtype, returned):
    model = wrap(lambda x: x)
    for values in ([0, 1, 1], [1, 0, 1]):
        result = model(torch.tensor(values).to(dtype))
        assert result.dtype is returned and result.tolist() == values


def test_values_that_do_not_fit():
    model = wrap(lambda x: x + 1)
    model(torch.tensor([1]))
    with pytest.raises(Error, match=r"\[x\] the value 1099511627776 does not fit into int32"):
        model(torch.tensor([2**40]))
    with pytest.raises(Error, match=r"does not fit into float32"):
        wrap(lambda x: x)(torch.tensor([1e300], dtype=torch.float64))


def test_integers_that_leave_int32_on_the_device():
    x = torch.tensor([2**31 - 1])
    assert wrap(lambda x: (x + 1) % 1000)(x).tolist() == [2**31 % 1000]
    with pytest.raises(Error, match="the value 2147483648 does not fit into int32"):
        wrap(lambda x: x + 1)(x)


def test_constants_are_compiled_in():
    model = wrap(lambda x, scale, mode="add": x * scale if mode == "mul" else x + scale)
    assert torch.equal(model(X, 5), X + 5) and torch.equal(model(X, 5), X + 5)
    with pytest.raises(Error, match="mismatch for scale: expected 5 but got 3"):
        model(X, 3)
    with pytest.raises(Error, match="mismatch for mode: expected 'add' but got 'mul'"):
        model(X, 5, "mul")
    model.destroy()
    assert torch.equal(model(X, 3, mode="mul"), X * 3)


def test_kinds_of_arguments_that_differ():
    model = wrap(lambda x, z: x if z is None else x + z)
    model(X, X)
    for z, words in (
            (None, "Type mismatch for z: expected <class 'torch.Tensor'> but got "
                   "<class 'NoneType'>"),
            (X.long(), "z: expected torch.float32 but got torch.int64 (torch.int32 on the"),
            (X[:1], "z: expected torch.Size([2, 3]) but got torch.Size([1, 3])")):
        with pytest.raises(Error, match=re.escape(words)):
            model(X, z)


@pytest.mark.parametrize("argument, words", [
    (numpy.ones(3), "numpy array of shape (3,), expected a tensor. Pass torch.from_numpy(u)"),
    (X.to_sparse(), "expected a dense tensor but got one of layout torch.sparse_coo"),
    (torch.empty(2, device="meta"), "[u] expected a tensor on the CPU but got one on meta"),
    (torch.ones(2).to(torch.float8_e5m2), "torch.float8_e5m2 is not a type of the device"),
], ids=["numpy", "sparse", "meta", "float8"])
def test_arguments_of_no_use(argument, words):
    with pytest.raises(Error, match=re.escape(words)):
        wrap(lambda x, u: x + 1)(X, argument)


def test_a_sparse_argument_of_a_later_call():
    model = wrap(lambda x: x + 1)
    model(X)
    with pytest.raises(Error, match="expected a dense tensor"):
        model(X.to_sparse())


def test_gradients_of_arguments_are_not_computed(capsys):
    result = wrap(lambda x: x + 1)(X.clone().requires_grad_())
    assert torch.equal(result, X + 1) and not result.requires_grad
    assert "x requires grad: it is detached" in capsys.readouterr().err


class Box:
    """A user's class around tensors."""

    def __init__(self, low, high):
        self.low, self.high = low, high


class BoxParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.low
        yield struct.high

    def reconstruct(self, original_structure, tensor_iterator):
        return Box(next(tensor_iterator), next(tensor_iterator))


def test_classes_need_a_parser():
    class Other:
        def __init__(self, tensor):
            self.tensor = tensor

    with pytest.raises(Error, match=r"o is a Other, which holds tensors \(tensor\)"):
        wrap(lambda o: o.tensor + 1)(Other(X))


def test_classes_with_a_parser():
    poptorch.registerCustomArgParser(Box, BoxParser())
    seen = []

    def forward(box):
        seen.append(box.low.shape)
        return Box(box.low + box.high, box.high)

    model = wrap(forward, deviceIterations=2)
    for k in (1, 2):
        box = model(Box(X, X * k))
        assert type(box) is Box
        assert torch.equal(box.low, X + X * k) and torch.equal(box.high, X * k)
    assert seen == [(1, 3)]
    with pytest.raises(Error, match="Type mismatch for box: expected .*Box.* but got .*Tensor"):
        model(X)


def test_changes_of_arguments_are_written_back():
    def forward(values):
        values[0] += 1
        return values[0] * 2

    model = wrap(forward)
    first, other = torch.zeros(3), torch.full((3,), 5.0)
    for expected in (1.0, 2.0):
        assert torch.equal(model([first]), torch.full((3,), expected * 2))
        assert torch.equal(first, torch.full((3,), expected))
    model([other])
    assert torch.equal(other, torch.full((3,), 6.0)) and torch.equal(first, torch.full((3,), 2.0))


def test_results_from_outside_of_the_graph_warn():
    outside = torch.ones(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, constant = wrap(lambda x: (x, outside))(X)
    assert torch.equal(constant, outside)
    assert ["Output expected to be on the IPU but is on cpu" in str(w.message)
            for w in caught] == [True]


def test_buffers_stay_and_plain_attributes_are_constants():
    class Counters(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("right", torch.ones(()))
            self.wrong = torch.zeros(1)

        def forward(self):
            self.right += 1
            self.wrong = self.wrong + 1
            return self.right, self.wrong

    module = Counters()
    model = poptorch.inferenceModel(module, quiet_options())
    assert [[int(n) for n in model()] for _ in range(4)] == [[2, 1], [3, 1], [4, 1], [5, 1]]


def test_a_plain_attribute_that_is_changed_begins_anew_in_each_call():
    """The host has the value after the last call."""
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.count, self.seen = torch.zeros(1, dtype=torch.int64), torch.zeros(2, 3)

        def forward(self, x):
            self.count += 1
            self.seen[1:] += x
            return self.count, self.seen[1, 0]

    module = Last()
    model = poptorch.inferenceModel(module, quiet_options(deviceIterations=2))
    for k in (1.0, 2.0):
        count, seen = model(torch.tensor([[k] * 3, [k + 1] * 3]))
        assert count.tolist() == [1, 1] and seen.tolist() == [k, k + 1]
        assert module.count.tolist() == [1]
        assert module.seen.tolist() == [[0.0] * 3, [k + 1] * 3]
