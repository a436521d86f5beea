"""Sums of products in float16: bit for bit those of loops in NumPy, forward and backward."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch import _C
from tests.helpers import quiet_options

CHUNK = 16


def product(a, b):
    """a @ b of float16 matrices: sums of 16 products in float32, added to one in float16."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    total = np.zeros((a.shape[0], b.shape[1]), np.float16)
    for start in range(0, a.shape[1], CHUNK):
        chunk = np.zeros(total.shape, np.float32)
        for k in range(start, min(start + CHUNK, a.shape[1])):
            chunk += a[:, k, None] * b[None, k]
        total = (total.astype(np.float32) + chunk).astype(np.float16)
    return total


def halves(generator, *sizes):
    return generator.standard_normal(sizes).astype(np.float16)


def kernel(a, b, threads=1):
    return _C.evaluate("float16_partials_matmul", [a, b, None], {}, threads=threads)[0]


@pytest.mark.parametrize(("m", "k", "n"), [
    (1, 1, 1), (3, 16, 5), (5, 17, 33), (40, 300, 140), (70, 15, 257), (2, 0, 3), (33, 1000, 1)])
def test_bits_of_a_loop(m, k, n, isa, seed):
    generator = np.random.default_rng(seed)
    a, b = halves(generator, m, k), halves(generator, k, n)
    expected = product(a, b)
    for threads in (1, 2):
        assert np.array_equal(kernel(a, b, threads), expected)
    assert np.array_equal(kernel(a.T.copy().T, b.T.copy().T), expected)


def test_batches_and_large_numbers(isa, seed):
    generator = np.random.default_rng(seed)
    a, b = halves(generator, 3, 1, 7, 50) * np.float16(60), halves(generator, 4, 50, 9)
    b[0] *= np.float16(200)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.stack([[product(a[i, 0], b[j]) for j in range(4)] for i in range(3)])
    assert np.isinf(expected).any()
    assert np.array_equal(kernel(a, b), expected, equal_nan=True)


@pytest.mark.parametrize("k", [40, 1000])
def test_rounding_by_chance_has_the_right_mean(k, isa, seed):
    generator = np.random.default_rng(seed)
    a, b = halves(generator, 300, k), halves(generator, k, 170)
    rng = np.array([1, 2, 0, 3], np.int32)
    results = [_C.evaluate("float16_partials_matmul", [a, b, rng], {"salt": 5}, threads=threads)[0]
               for threads in (1, 2)]
    assert np.array_equal(*results)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = results[0] - exact
    assert abs(error.mean()) <= 5 * error.std() / error.size**0.5
    nearest = kernel(a, b) - exact
    assert 1.1 * nearest.std() < error.std() < 3 * nearest.std()


@pytest.mark.parametrize(("operands", "words"), [
    ([("f32", [2, 3]), ("f32", [3, 2])], "f16 is needed"),
    ([("f16", [2, 3]), ("f16", [3, 2]), ("i32", [3])], "rng must be the random state")])
def test_wrong_operands_are_refused(operands, words):
    with pytest.raises(poptorch.Error, match=words):
        _C.infer("float16_partials_matmul", operands, {})


# -- in programs ---------------------------------------------------------------------------------

def options(*, half=True, stochastic=False):
    found = quiet_options()
    if half:
        found.Precision.setPartialsType(torch.half)
    found.Precision.enableStochasticRounding(stochastic)
    return found


class Products(torch.nn.Module):
    """A function of parameters; its result is weighed by an input for the loss."""

    def __init__(self, function, *values):
        super().__init__()
        self.function = function
        self.values = torch.nn.ParameterList([torch.nn.Parameter(value) for value in values])

    def forward(self, by):
        y = self.function(*self.values)
        return y, poptorch.identity_loss((y.float() * by.float()).sum(), "none")


def results(function, values, opts):
    """The result and the gradient of each operand; weights that become result of the loss."""
    shape = function(*[value.float() for value in values]).shape
    by = torch.randn(shape, generator=torch.Generator().manual_seed(1)).half()
    net = Products(function, *[value.clone() for value in values])
    names = dict(net.named_parameters())
    for name in names:
        opts.anchorTensor(name, f"Gradient___{name}")
    model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), 1.0))
    y = model(by)[0]
    gradients = [model.getAnchoredTensor(name) for name in names]
    return by, y, gradients, model


def tensor(array):
    return torch.from_numpy(np.ascontiguousarray(array))


def test_matrix_product_and_gradients(seed):
    generator = np.random.default_rng(seed)
    a, b = halves(generator, 9, 70), halves(generator, 70, 21)
    by, y, (da, db), _ = results(torch.matmul, [tensor(a), tensor(b)], options())
    by = by.numpy()
    assert torch.equal(y, tensor(product(a, b)))
    assert torch.equal(da, tensor(product(by, b.T)))
    assert torch.equal(db, tensor(product(a.T, by)))


def test_linear_adds_the_bias_in_one_more_rounding(seed):
    generator = np.random.default_rng(seed)
    x, w, bias = halves(generator, 9, 70), halves(generator, 21, 70), halves(generator, 21)
    _, y, _, _ = results(F.linear, [tensor(x), tensor(w), tensor(bias)], options())
    assert torch.equal(y, tensor(product(x, w.T) + bias))


def test_scaled_sum(seed):
    generator = np.random.default_rng(seed)
    c, a, b = halves(generator, 9, 21), halves(generator, 9, 70), halves(generator, 70, 21)

    def function(*operands):
        return torch.addmm(*operands, beta=0.3, alpha=1.7)

    _, y, _, _ = results(function, [tensor(c), tensor(a), tensor(b)], options())
    wide = np.float32(1.7) * product(a, b).astype(np.float32) + \
        np.float32(0.3) * c.astype(np.float32)
    assert (y - tensor(wide.astype(np.float16))).abs().max() <= 2 * np.spacing(
        np.abs(wide).max().astype(np.float16))


def positions(sizes):
    return list(np.ndindex(*sizes))


def wide_and_places(x, weight, stride, padding, dilation):
    """The padded images, and what a kernel's position sees at each pixel of the result."""
    spatial = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *[(padding, padding)] * spatial])
    sizes = [(n + 2 * padding - dilation * (k - 1) - 1) // stride + 1
             for n, k in zip(x.shape[2:], weight.shape[2:])]

    def window(position):
        return (slice(None), slice(None), *[
            slice(p * dilation, p * dilation + (n - 1) * stride + 1, stride)
            for p, n in zip(position, sizes)])

    return padded, window, sizes


def reference_convolution(x, weight, by, stride, padding, dilation):
    """Result, gradient of x and gradient of the weight of one group."""
    padded, window, sizes = wide_and_places(x, weight, stride, padding, dilation)
    places, spatial = positions(weight.shape[2:]), x.ndim - 2

    def pixels(image):
        return np.moveaxis(image, 1, -1).reshape(-1, image.shape[1])

    columns = np.concatenate([pixels(padded[window(p)]) for p in places], 1)
    by_place = np.stack([weight[(slice(None), slice(None), *p)] for p in places])  # [K, O, C]
    y = product(columns, by_place.transpose(0, 2, 1).reshape(-1, weight.shape[0]))
    y = np.moveaxis(y.reshape(x.shape[0], *sizes, -1), -1, 1)
    dw = product(pixels(by).T, columns).reshape(weight.shape[0], len(places), -1)
    dw = dw.transpose(0, 2, 1).reshape(weight.shape)
    # Each pixel of x: position after position, the gradients of the outputs that it goes into.
    seen = []
    for p in places:
        full = np.zeros((x.shape[0], by.shape[1], *padded.shape[2:]), np.float16)
        full[window(p)] = by
        seen.append(pixels(full[(..., *[slice(padding, padding + n) for n in x.shape[2:]])]))
    dx = product(np.concatenate(seen, 1), by_place.reshape(-1, x.shape[1]))
    return y, np.moveaxis(dx.reshape(x.shape[0], *x.shape[2:], -1), -1, 1), dw


CONVOLUTIONS = [
    # images, channels, outputs, image, kernel, stride, padding, dilation, groups
    (2, 5, 7, (9, 8), (3, 2), 1, 1, 1, 1),
    (2, 20, 6, (9, 11), (3, 3), 2, 1, 1, 1),
    (3, 8, 8, (10, 10), (3, 3), 2, 0, 2, 1),
    (2, 12, 9, (7, 7), (1, 1), 1, 0, 1, 3),
    (2, 6, 6, (8, 8), (3, 3), 1, 1, 1, 6),
    (2, 17, 3, (30,), (5,), 3, 2, 1, 1),
    (1, 4, 5, (5, 6, 5), (2, 3, 2), 2, 1, 1, 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution_and_gradients(case, seed):
    n, c, o, image, kernel_size, stride, padding, dilation, groups = case
    generator = np.random.default_rng(seed)
    x, weight = halves(generator, n, c, *image), halves(generator, o, c // groups, *kernel_size)
    convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(image)]

    def function(x, weight):
        return convolve(x, weight, None, stride, padding, dilation, groups)

    by, y, (dx, dw), model = results(function, [tensor(x), tensor(weight)], options())
    assert "float16_partials_matmul" in model.ir("translate")
    by, ours = by.numpy(), []
    for g in range(groups):
        of_x, of_y = (slice(g * size // groups, (g + 1) * size // groups) for size in (c, o))
        ours.append(reference_convolution(x[:, of_x], weight[of_y], by[:, of_y], stride, padding,
                                          dilation))
    for got, parts, axis in zip((y, dx, dw), zip(*ours), (1, 1, 0)):
        assert torch.equal(got, tensor(np.concatenate(parts, axis)))


@pytest.mark.parametrize("case", CONVOLUTIONS[:4] + CONVOLUTIONS[5:])
def test_transposed_convolution_is_the_gradient(case, seed):
    n, c, o, image, kernel_size, stride, padding, dilation, groups = case
    generator = np.random.default_rng(seed)
    weight = halves(generator, o, c // groups, *kernel_size)
    narrow = [(size + 2 * padding - dilation * (k - 1) - 1) // stride + 1
              for size, k in zip(image, kernel_size)]
    left = [size - ((m - 1) * stride - 2 * padding + dilation * (k - 1) + 1)
            for size, m, k in zip(image, narrow, kernel_size)]
    y = halves(generator, n, o, *narrow)
    convolve = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[len(image)]

    def function(y, weight):
        return convolve(y, weight, None, stride, padding, left, groups, dilation)

    by, x, (dy, dw), _ = results(function, [tensor(y), tensor(weight)], options())
    by, ours = by.numpy(), []
    for g in range(groups):
        of_x, of_y = (slice(g * size // groups, (g + 1) * size // groups) for size in (c, o))
        wide, of_group = by[:, of_x], weight[of_y]
        back = reference_convolution(wide, of_group, y[:, of_y], stride, padding, dilation)
        ours.append((back[1], back[0], back[2]))
    for got, parts, axis in zip((x, dy, dw), zip(*ours), (1, 1, 0)):
        assert torch.equal(got, tensor(np.concatenate(parts, axis)))


def test_bias_of_a_convolution(seed):
    generator = np.random.default_rng(seed)
    x, weight, bias = halves(generator, 2, 5, 6, 6), halves(generator, 4, 5, 3, 3), \
        halves(generator, 4)
    values = [tensor(value) for value in (x, weight, bias)]
    by, y, gradients, _ = results(F.conv2d, values, options())
    plain = reference_convolution(x, weight, by.numpy(), 1, 0, 1)[0]
    assert torch.equal(y, tensor(plain + bias[:, None, None]))
    exact = by.double().sum((0, 2, 3))
    assert torch.equal(gradients[2], exact.half())


def test_it_differs_measurably(seed):
    generator = np.random.default_rng(seed)
    a, b = halves(generator, 50, 2000), halves(generator, 2000, 50)
    exact = torch.from_numpy(a.astype(np.float64) @ b.astype(np.float64))
    errors = [(results(torch.matmul, [tensor(a), tensor(b)], options(half=half))[1].double()
               - exact).abs().mean().item() for half in (False, True)]
    assert errors[1] > 3 * errors[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_types_are_left_alone(dtype):
    values = [torch.randn(5, 40).to(dtype), torch.randn(40, 6).to(dtype)]
    plain = results(torch.matmul, values, options(half=False))
    half = results(torch.matmul, values, options())
    assert torch.equal(plain[1], half[1])
    assert "float16_partials_matmul" not in half[3].ir("translate")


def test_one_convolution_of_a_multi_convolution():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (torch.nn.Conv2d(8, 4, 3).half() for _ in range(2))

        def forward(self, x):
            with poptorch.MultiConv().partialsTypes([torch.float16, torch.float32]):
                return self.a(x), self.b(x)

    torch.manual_seed(0)
    net = Two()
    x = torch.randn(2, 8, 9, 9).half()
    with torch.no_grad():
        net.b.weight.copy_(net.a.weight)
        net.b.bias.copy_(net.a.bias)
    for half in (False, True):
        model = poptorch.inferenceModel(net, options(half=half))
        first, second = model(x)
        assert not torch.equal(first, second)
        lines = [line for line in model.ir("translate").splitlines() if "multi_conv=" in line]
        assert sum('float16_partials_matmul' in line for line in lines) == 1
        assert sum(' convolution ' in line for line in lines) == 1


def test_with_stochastic_rounding(seed):
    generator = np.random.default_rng(seed)
    a, b = halves(generator, 200, 300), halves(generator, 300, 200)
    opts = options(stochastic=True)
    _, y, _, model = results(torch.matmul, [tensor(a), tensor(b)], opts)
    assert "float16_partials_matmul %values.0, %values.1, %rng" in model.ir("translate")
    error = y.double() - torch.from_numpy(a.astype(np.float64) @ b.astype(np.float64))
    assert error.mean().abs() <= 5 * error.std() / error.numel()**0.5
