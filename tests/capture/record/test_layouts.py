"""Captured tensors have eager's memory layout: ``reshape`` and ``contiguous`` depend on it."""

import copy
import itertools
import random

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch._capture import capture
from tests.helpers import check_narrow, quiet_options

LAYOUTS = 12  # of operands, for each function

OF_ANY = {
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1])),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "group_norm": lambda x: F.group_norm(x, 1),
    "instance_norm": F.instance_norm,
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(0),
    "gelu": F.gelu, "relu": F.relu, "silu": F.silu, "clone": lambda x: x.clone(),
    "dropout": lambda x: F.dropout(x, 0.0), "prelu": lambda x: F.prelu(x, torch.ones(1)),
    "cat": lambda x: torch.cat([x, x], 1), "stack": lambda x: torch.stack([x, x], 1),
    "flip": lambda x: x.flip(-1), "roll": lambda x: x.roll(1, 0), "pad": lambda x: F.pad(x, (1, 1)),
    "add": lambda x: x + x.contiguous(), "where": lambda x: torch.where(x > 0, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.0), "lerp": lambda x: x.lerp(x, 0.5),
    "addcmul": lambda x: torch.addcmul(x, x, x), "to": lambda x: x.half(),
    "linear": lambda x: F.linear(x, torch.ones(3, x.shape[-1])), "matmul": lambda x: x @ x.mT,
    "sum": lambda x: x.sum(1, keepdim=True), "amax": lambda x: x.amax(0, keepdim=True),
    "std": lambda x: x.std(0, correction=0, keepdim=True), "max": lambda x: x.max(0)[0],
    "cumsum": lambda x: x.cumsum(0), "sort": lambda x: x.sort(-1)[0],
    "topk": lambda x: x.topk(1, -1)[0], "triu": lambda x: x.triu(),
    "index": lambda x: x[torch.tensor([0, 0])],
    "index by columns": lambda x: x[torch.zeros(3, 2, dtype=torch.int64).t()],
    "several indices": lambda x: x[torch.zeros(3, 2, dtype=torch.int64).t(),
                                   torch.zeros(2, 3, dtype=torch.int64)],
    "zeros_like": torch.zeros_like,
    "index_select": lambda x: x.index_select(1, torch.tensor([0])),
    "gather": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
    "scatter": lambda x: x.scatter(0, torch.zeros_like(x, dtype=torch.int64), 1.0),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x, 1),
    "cdist": lambda x: torch.cdist(x, x), "one_hot": lambda x: F.one_hot((x > 0).long(), 3),
}
OF_IMAGES = {
    "conv2d": lambda x: F.conv2d(x, torch.ones(2, x.shape[1], 1, 1)),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 1), "max_pool2d": lambda x: F.max_pool2d(x, 1),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2), "unfold": lambda x: F.unfold(x, 1),
    "local_response_norm": lambda x: F.local_response_norm(x, 2),
    "max_unpool2d": lambda x: F.max_unpool2d(*F.max_pool2d(x, 1, return_indices=True), 1),
}


# For two tensors with different memory layouts.
OF_TWO = {
    "add": torch.add, "where": lambda x, y: torch.where(x > 0, x, y), "power": torch.pow,
    "compared": torch.lt, "copysign": torch.copysign, "lerp": lambda x, y: x.lerp(y, y),
    "addcmul": lambda x, y: torch.addcmul(x, y, y),
    "threshold_backward": lambda x, y: torch.ops.aten.threshold_backward(x, y, 0.5),
    "floor": lambda x, y: torch.div(x, y.abs() + 1, rounding_mode="floor"),
    "floor_divide": lambda x, y: torch.floor_divide(x, y.abs() + 1),
    "isin": lambda x, y: torch.isin(x, y.reshape(-1)),
    "rrelu_backward": lambda x, y: torch.ops.aten.rrelu_with_noise_backward(
        x, y, x, 0.1, 0.3, True, False),
    "xlogy": torch.xlogy, "xlog1py": torch.special.xlog1py,
    "power of a number": lambda x, y: torch.pow(2.0, x), "dropout backward": lambda x, y: (
        torch.ops.aten.native_dropout_backward(x, y > 0, 2.0)),
    **{name: getattr(torch.ops.aten, name) for name in (
        "gelu_backward", "sigmoid_backward", "tanh_backward", "hardsigmoid_backward",
        "hardswish_backward", "logit_backward")},
    "hardtanh_backward": lambda x, y: torch.ops.aten.hardtanh_backward(x, y, -1, 1),
    "elu_backward": lambda x, y: torch.ops.aten.elu_backward(x, 1.0, 1.0, 1.0, False, y),
    "softplus_backward": lambda x, y: torch.ops.aten.softplus_backward(x, y, 1.0, 20.0),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 1),
    "mse": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none"),
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(
        x.sigmoid(), y.sigmoid(), reduction="none"),
    "mse backward": lambda x, y: torch.ops.aten.mse_loss_backward(x, x, y, 0),
    "smooth_l1 backward": lambda x, y: torch.ops.aten.smooth_l1_loss_backward(x, x, y, 0, 1.0),
    "huber backward": lambda x, y: torch.ops.aten.huber_loss_backward(x, x, y, 0, 1.0),
    "binary_cross_entropy backward": lambda x, y: torch.ops.aten.binary_cross_entropy_backward(
        x, x.sigmoid(), y.sigmoid(), None, 0),
}


def looks_of(x):
    """Sizes, and strides of dimensions that have some."""
    return x.shape, [step for size, step in zip(x.shape, x.stride()) if size > 1]


class Noted(torch.nn.Module):
    """Calls a function and keeps what its result looks like."""

    def __init__(self, function):
        super().__init__()
        self.function, self.looks = function, None

    def forward(self, x):
        y = self.function(x)
        self.looks = looks_of(y)
        return y * 1


def laid_out_somehow(rng, rank):
    """A tensor whose dimensions lie in any order."""
    order = rng.sample(range(rank), rank)
    x = torch.randn([rng.choice((2, 3)) for _ in order]).permute(order)
    if rank == 4 and rng.random() < 0.3:
        x = x.contiguous(memory_format=torch.channels_last)
    elif rank > 2 and rng.random() < 0.2:  # channels-last, without a batch
        x = x.movedim(0, -1).contiguous().movedim(-1, 0)
    return x[..., ::2] if rng.random() < 0.2 else x


def in_memory_somehow(rng, sizes):
    """A tensor of these sizes with its dimensions in any memory order; one may be expanded."""
    order = rng.sample(range(len(sizes)), len(sizes))
    x = torch.randn([sizes[dim] for dim in order]).permute(
        [order.index(dim) for dim in range(len(sizes))])
    return x.narrow(order[0], 0, 1).expand(sizes) if rng.random() < 0.2 else x


CASES = {**{name: (f, (2, 3, 4)) for name, f in OF_ANY.items()},
         **{name: (f, (4,)) for name, f in OF_IMAGES.items()},
         "max_pool3d": (lambda x: F.max_pool3d(x, 2, stride=1), (4, 5))}


def compare_looks(kind, function, ranks):
    """Compares what a module notes in eager with what it notes as it is captured."""
    rng, compared = random.Random(torch.seed()), 0
    for _ in range(LAYOUTS):
        x, module = laid_out_somehow(rng, rng.choice(ranks)), kind(function)
        try:
            with torch.no_grad():
                module(x)
        except (RuntimeError, ValueError):  # not of this rank
            continue
        expected, compared = module.looks, compared + 1
        capture(module, (x,), {}, training=False)
        assert module.looks == expected, (tuple(x.shape), x.stride())
    assert compared


@pytest.mark.sampled
@pytest.mark.parametrize(("function", "ranks"), CASES.values(), ids=CASES)
def test_results_lie_as_in_eager(function, ranks):
    compare_looks(Noted, function, ranks)


class NotedGradient(Noted):
    """Keeps what the gradient of its argument looks like."""

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = self.function(x)
            gradient, = torch.autograd.grad(y, x, torch.ones_like(y))
        self.looks = looks_of(gradient)
        return y.detach() * 1


# Without gradients, and flash attention's, which lie in another order than what they belong to:
# ours need no copy.
OTHER_GRADIENTS = {"zeros_like", "one_hot", "attention"}


@pytest.mark.sampled
@pytest.mark.parametrize(("function", "ranks"), [
    pytest.param(*case, id=name) for name, case in CASES.items() if name not in OTHER_GRADIENTS])
def test_gradients_lie_as_in_eager(function, ranks):
    compare_looks(NotedGradient, function, ranks)


@pytest.mark.sampled
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0)], ids=str)
def test_batch_norm_of_dimensions_of_size_1(order, training):
    """Several orders of dimensions fit such a tensor at once."""
    def function(x):
        channels = torch.zeros(x.shape[1])
        return F.batch_norm(x, channels, channels + 1, training=training)

    module = Noted(function)
    for sizes in itertools.product((1, 3), (1, 2), (1, 2), (1, 3)):
        x = torch.randn([sizes[dim] for dim in order]).permute([order.index(i) for i in range(4)])
        if training and x.numel() == sizes[1]:  # nothing to take a mean of
            continue
        module(x)
        expected = module.looks
        capture(module, (x,), {}, training=False)
        assert module.looks == expected, (sizes, x.stride())


aten = torch.ops.aten
SIZE_1 = {
    **OF_ANY, **OF_IMAGES,
    "neg": lambda x: -x, "scaled": lambda x: x * 2, "power": lambda x: x ** 2,
    "hardswish": F.hardswish, "compared": lambda x: x > 0, "clamp": lambda x: x.clamp(0, 1),
    "shifted": lambda x: 1 - x, "transposed": lambda x: x.mT + x.mT, "tril": torch.tril,
    "renorm": lambda x: x.renorm(2, 0, 1.0), "floor_divide": lambda x: x // 2,
    "rand_like": torch.rand_like, "randn_like": torch.randn_like, "rrelu": F.rrelu,
    "rrelu in training": lambda x: F.rrelu(x, training=True),
    "dropout of half": lambda x: F.dropout(x, 0.5),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "layer_norm of two": lambda x: F.layer_norm(x, x.shape[-2:]),
    "norm": lambda x: x.norm(dim=1, keepdim=True), "flatten": lambda x: x.flatten(0, 1),
    "windows": lambda x: x.unfold(1, 1, 1), "rot90": lambda x: x.rot90(1, [0, 1]),
    "einsum": lambda x: torch.einsum("a...,a...->...a", x, x),
    "silu_backward": lambda x: aten.silu_backward(x, x),
    "mish_backward": lambda x: aten.mish_backward(x, x),
    "leaky_relu_backward": lambda x: aten.leaky_relu_backward(x, x, 0.1, False),
    "index_add": lambda x: x.index_add(1, torch.tensor([0]), x[:, :1]),
    "index_put": lambda x: x.index_put((torch.tensor([0]),), torch.tensor(1.0)),
    "nll_loss": lambda x: F.nll_loss(x, torch.zeros_like(x)[:, 0].long(), reduction="none"),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros_like(x)[:, 0].long(),
                                               reduction="none"),
    "pairwise_distance": lambda x: F.pairwise_distance(x, x, keepdim=True),
    "max_pool1d": lambda x: F.max_pool1d(x, 1), "max_pool3d": lambda x: F.max_pool3d(x, 1),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("function", SIZE_1.values(), ids=SIZE_1)
def test_strides_of_dimensions_of_size_1(function):
    class Strides(torch.nn.Module):
        def forward(self, x):
            y = function(x)
            self.looks = y.stride()
            return y * 1

    rng, module, compared = random.Random(torch.seed()), Strides(), 0
    for _ in range(40):
        rank = rng.choice((3, 4, 5))
        order = rng.sample(range(rank), rank)
        x = torch.randn([rng.choice((1, 1, 2, 3)) for _ in order]).permute(order)
        if rng.random() < 0.3:
            x = x.narrow(rng.randrange(rank), 0, 1)
        try:
            with torch.no_grad():
                module(x)
        except (RuntimeError, ValueError, IndexError):  # not of this rank, or these sizes
            continue
        expected, compared = module.looks, compared + 1
        capture(module, (x,), {}, training=False)
        assert module.looks == expected, (tuple(x.shape), x.stride())
    assert compared


@pytest.mark.parametrize("function", [F.cross_entropy, F.nll_loss], ids=["entropy", "likelihood"])
def test_losses_of_images_are_row_major(function):
    """Torch's rule lays them out as the scores; what is row-major has a view of one dimension."""
    class Losses(torch.nn.Module):
        def forward(self, x, target):
            return function(x.permute(0, 3, 1, 2), target, reduction="none").view(-1)

    x, target = torch.randn(2, 3, 4, 5).transpose(1, 2), torch.randint(0, 5, (2, 4, 3))
    torch.testing.assert_close(poptorch.inferenceModel(Losses())(x, target), Losses()(x, target))


@pytest.mark.sampled
@pytest.mark.parametrize("function", OF_TWO.values(), ids=OF_TWO)
def test_results_of_two_tensors_lie_as_in_eager(function):
    class Strides(torch.nn.Module):
        def forward(self, x, y):
            z = function(x, y)
            self.looks = z.stride()
            return z * 1

    rng, module = random.Random(torch.seed()), Strides()
    for _ in range(60):
        sizes = [rng.choice((1, 2, 3)) for _ in range(rng.choice((2, 3, 4)))]
        pair = tuple(in_memory_somehow(rng, sizes) for _ in range(2))
        module(*pair)
        expected = module.looks
        capture(module, pair, {}, training=False)
        assert module.looks == expected, [(tuple(x.shape), x.stride()) for x in pair]


def test_expanded_tensors_of_which_torch_gives_another_order():
    def expanded(*strides):
        return torch.randn(18).as_strided((3, 3, 2, 2), strides)

    class Backward(torch.nn.Module):
        def forward(self, x, y):
            z = torch.ops.aten.gelu_backward(x, y)
            self.looks = z.stride()
            return z * 1

    module, pair = Backward(), (expanded(1, 6, 0, 3), expanded(1, 0, 6, 3))
    module(*pair)
    expected = module.looks
    capture(module, pair, {}, training=False)
    assert module.looks == expected


@pytest.mark.parametrize("rounding_mode", ["trunc", "floor"])
def test_integers_divided_by_expanded_ones(rounding_mode):
    """The operator is asked for its layout, with numbers that it can divide by."""
    class Quotient(torch.nn.Module):
        def forward(self, x, y):
            return torch.div(x, y, rounding_mode=rounding_mode)

    pair = torch.tensor([7]).expand(2), torch.tensor([2, -2])
    assert torch.equal(poptorch.inferenceModel(Quotient())(*pair), Quotient()(*pair).int())


@pytest.mark.parametrize("dims", [1, 2])
def test_convolutions_by_weights_of_size_1(dims):
    """They go by the strides of dimensions of one element."""
    convolution = {1: F.conv1d, 2: F.conv2d}[dims]
    rng = random.Random(torch.seed())
    for _ in range(40):
        order = rng.sample(range(2 + dims), 2 + dims)
        sizes = (rng.choice((1, 7)), rng.choice((1, 3)), *[1] * dims)
        weight = torch.randn([sizes[dim] for dim in order]).permute(
            [order.index(i) for i in range(2 + dims)])
        x = torch.randn(2, sizes[1], *[rng.choice((1, 5)) for _ in range(dims)])
        module = Noted(lambda x, weight=weight: convolution(x, weight.flip(0)))
        module(x)
        expected = module.looks
        capture(module, (x,), {}, training=False)
        assert module.looks == expected, (sizes, weight.stride(), tuple(x.shape))


class Normalized(torch.nn.Module):
    """Group norm of what needs no gradient, as the first layer of a network."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.GroupNorm(1, 2)

    def forward(self, x):
        return poptorch.identity_loss(self.norm(x).square().mean(), "none")


def test_group_norm_of_channels_last_images_without_their_gradient():
    # PyTorch ends the process there: it is compared with itself on row-major images.
    net, x = Normalized(), torch.randn(2, 2, 34, 34)
    narrow, wide = copy.deepcopy(net), copy.deepcopy(net).double()
    for module in (narrow, wide):
        module(x.to(module.norm.weight.dtype)).backward()
    with poptorch.testing.keep_gradients():
        model = poptorch.trainingModel(net, quiet_options())
        model(x.to(memory_format=torch.channels_last))
    ours = poptorch.testing.gradients(model)
    eager, exact = ({name: p.grad for name, p in m.named_parameters()} for m in (narrow, wide))
    check_narrow(ours, [eager], exact)
