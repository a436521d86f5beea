"""nearest and fps: against plain PyTorch, with ties, examples and in 16 bits; errors."""

import math

import pytest
import torch

import poptorch
from tests.helpers import quiet_options
from tests.public_ops import point_searches
from tests.public_ops.refusals import check_refused


class Nearest(torch.nn.Module):
    """As the function."""

    def forward(self, *points):
        return poptorch.nearest(*points)


class Sampled(torch.nn.Module):
    """As the function, with settings that are compiled in."""

    def __init__(self, ptr, *settings):
        super().__init__()
        self.ptr, self.settings = ptr, settings

    def forward(self, src):
        return poptorch.fps(src, self.ptr, *self.settings)


def _both(net, *values):
    """The result, which is the same in a program and in eager."""
    expected = net(*values)
    assert expected.dtype is torch.int64 and not expected.requires_grad
    found = poptorch.inferenceModel(net, quiet_options())(*values)
    assert torch.equal(found.long(), expected)
    return expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1, 1), (40, 17, 3), (300, 200, 16), (5, 4, 0), (0, 3, 2)])
def test_nearest_as_told(shape, dtype):
    n, m, width = shape
    x, y = torch.randn(n, width).to(dtype), torch.randn(m, width).to(dtype)
    assert torch.equal(_both(Nearest(), x, y), point_searches.nearest(x.double(), y.double()))


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.uint8])
def test_nearest_within_examples(kind):
    x, y = torch.randn(60, 2), torch.randn(25, 2)
    batch_x = torch.randint(0, 4, (60,)).to(kind)
    batch_y = (torch.arange(25) % 4).to(kind)  # in any order
    found = _both(Nearest(), x, y, batch_x, batch_y)
    assert torch.equal(found, point_searches.nearest(x, y, batch_x, batch_y))
    listed = poptorch.nearest(x, y, batch_x.tolist(), batch_y.tolist())
    assert torch.equal(listed, found)


def test_nearest_of_equal_distances():
    x = torch.tensor([[0.0, 0.0], [2.0, 2.0], [0.0, 1.0]])
    y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [-1.0, 0.0], [2.0, 2.0], [2.0, 2.0]])
    assert _both(Nearest(), x, y).tolist() == [0, 4, 1]


def test_nearest_of_numbers_and_mixed_types():
    assert _both(Nearest(), torch.tensor([0.4, 2.6]), torch.tensor([0, 3, 1])).tolist() == [0, 1]
    half = torch.tensor([[0.1]], dtype=torch.float16)  # 0.0999756
    assert _both(Nearest(), half, torch.tensor([[0.1], [0.09997]])).tolist() == [1]


def test_nearest_of_nan():
    x, y = torch.tensor([[1.0], [torch.nan]]), torch.tensor([[0.0], [1.0], [torch.nan]])
    assert torch.equal(_both(Nearest(), x, y), point_searches.nearest(x, y))


@pytest.mark.parametrize("is_compiled", [False, True])
def test_an_example_without_points(is_compiled):
    run = poptorch.inferenceModel(Nearest(), quiet_options()) if is_compiled else Nearest()
    x, y = torch.zeros(2, 1), torch.zeros(1, 1)
    with pytest.raises(poptorch.Error, match=r"\[nearest\] point 1 of x belongs to example 3, "):
        run(x, y, torch.tensor([0, 3]), torch.tensor([0]))
    assert run(x, y, torch.tensor([2, 2]), torch.tensor([2])).tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("ptr", "ratio", "width"), [
    ([0, 20], 0.5, 2), ([0, 7, 7, 8, 30], 0.3, 3), ([0, 200], 1.0, 1), ([0, 100, 300], 0.05, 16),
    ([0], 0.5, 2), ([0, 4], 0.01, 0)])
def test_fps_as_told(ptr, ratio, width, dtype):
    src = torch.randn(ptr[-1], width).to(dtype)
    counts = [math.ceil(ratio * (end - begin)) for begin, end in zip(ptr, ptr[1:])]
    expected = point_searches.fps(src.double(), ptr, counts)
    assert torch.equal(_both(Sampled(ptr, ratio), src), expected)
    assert torch.equal(poptorch.fps(src, torch.tensor(ptr), ratio), expected)


def test_fps_of_equal_distances():
    src = torch.tensor([[0.0], [1.0], [-1.0], [1.0], [0.0]])
    assert _both(Sampled([0, 5], 1.0), src).tolist() == [0, 1, 2, 0, 0]
    assert _both(Sampled([0, 3]), torch.tensor([1, 2, 4])).tolist() == [0, 2]


@pytest.mark.parametrize(("size", "ratio", "count"), [
    (100, 0.07, 7), (100, 0.55, 55), (100, 0.14, 14), (50, 0.14, 7), (6, 5 / 6, 5), (49, 1 / 49, 1),
    (10, 0.7000001, 8), (3, 1, 3), (4, 5e-324, 1), (100, 0.29, 29)])
def test_the_ratio_is_the_fraction_that_was_meant(size, ratio, count):
    """Products in floating point are more than a whole number at times: 7.000000000000001."""
    assert _both(Sampled([0, size], ratio), torch.rand(size, 2)).shape == (count,)


def test_integers():
    most = 2**24 - 1
    x, y = torch.tensor([most, 5]), torch.tensor([most - 1, most, -most], dtype=torch.int32)
    assert _both(Nearest(), x, y).tolist() == [1, 0]
    assert _both(Nearest(), x[1:], torch.tensor([9, 2], dtype=torch.uint8)).tolist() == [1]
    assert _both(Sampled([0, 3], 1.0), y).tolist() == [0, 2, 1]


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("large", [2**24, -2**24 - 1, 2**31 - 1])
def test_integers_that_float32_does_not_have(large, is_compiled):
    nearest, sampled = Nearest(), Sampled([0, 2])
    if is_compiled:
        nearest, sampled = (poptorch.inferenceModel(net, quiet_options())
                            for net in (nearest, sampled))
    for call, name in ((lambda: nearest(torch.tensor([5]), torch.tensor([0, large])), "nearest] y"),
                       (lambda: sampled(torch.tensor([0, large])), "fps] src")):
        with pytest.raises(poptorch.Error, match=f"{name} is of torch.int64 and has a number "
                                                 f"beyond 16777215: distances"):
            call()


def test_random_starts():
    """Each point of each example is a start at times; the rest follows from the start."""
    src = torch.randn(7, 2)
    ptr = [0, 3, 7]
    model = poptorch.inferenceModel(Sampled(ptr, 0.6, True), quiet_options(randomSeed=3))
    for run in (model, Sampled(ptr, 0.6, True)):
        seen = set()
        for _ in range(100):
            found = run(src)
            first = [int(found[0]), int(found[2])]
            expected = point_searches.fps(src.double(), ptr, [2, 3], [first[0], first[1] - 3])
            assert torch.equal(found.long(), expected)
            seen |= set(first)
        assert seen == set(range(7))


def test_in_training():
    """Positions are used to gather, and gradients flow through what is gathered."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.points = torch.nn.Parameter(POINTS.clone())

        def forward(self, y):
            chosen = self.points[poptorch.fps(self.points, [0, 6])]
            near = y[poptorch.nearest(chosen, y)]
            return poptorch.identity_loss((chosen - near).square().sum(), "none")

    POINTS, y = torch.randn(6, 2), torch.randn(9, 2)
    eager, net = Net(), Net()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    for _ in range(3):
        loss = eager(y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(model(y), loss)
    model.copyWeightsToHost()
    torch.testing.assert_close(net.points, eager.points)


X = torch.zeros(3, 2)


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize(("call", "words"), [
    (lambda: poptorch.nearest(X, X[:, :1]), r"\[nearest\] x has the sizes \[3, 2\] and y \[3, 1\]"),
    (lambda: poptorch.nearest(X, X[:0]), "at least one in y"),
    (lambda: poptorch.nearest(X[None], X), r"\[nearest\] x is of torch.float32 and sizes \[1, 3"),
    (lambda: poptorch.nearest(X, X, [0, 0, 0]), r"\[nearest\] batch_x is given alone"),
    (lambda: poptorch.nearest(X, X, None, [0, 0, 0]), r"\[nearest\] batch_y is given alone"),
    (lambda: poptorch.nearest(X, X, [0, 0], [0, 0, 0]), r"batch_x is of torch.int64 and sizes \[2"),
    (lambda: poptorch.nearest(X, X, [0, 0, 0], X[:, 0]), "batch_y is of torch.float32"),
    (lambda: poptorch.fps(X, [0, 2]), r"\[fps\] ptr is \[0, 2\], but there are 3 points"),
    (lambda: poptorch.fps(X, [0, 2, 1, 3]), r"\[fps\] ptr is \[0, 2, 1, 3\]"),
    (lambda: poptorch.fps(X, []), r"\[fps\] ptr is \[\]"),
    (lambda: poptorch.fps(X, [0, 3], 0), r"\[fps\] ratio is 0. Use"),
    (lambda: poptorch.fps(X, [0, 3], 1.5), r"\[fps\] ratio is 1.5"),
    (lambda: poptorch.fps(X > 0, [0, 3]), r"\[fps\] src is of torch.bool"),
])
def test_arguments_that_are_refused(call, words, is_compiled):
    check_refused(call, words, is_compiled)


def test_a_ptr_that_is_computed():
    class Net(torch.nn.Module):
        def forward(self, x, ptr):
            return poptorch.fps(x, ptr)

    with pytest.raises(poptorch.Error, match="needs the value of a tensor|Tensor.tolist"):
        poptorch.inferenceModel(Net(), quiet_options())(X, torch.tensor([0, 3]))
