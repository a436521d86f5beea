"""Decompositions compute what the operations do, forward and backward."""

import re

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch._capture import capture
from poptorch._capture.decompose.table import DECOMPOSITIONS
from tests.capture.common import Function, check_inference, check_training, nodes

aten = torch.ops.aten


def pad(mode, *padding):
    return lambda a, b: F.pad(a[None], padding, mode=mode)


# Function of a [4, 6] matrix and another of positive numbers -> operations that must be gone.
SAMPLES = {
    "addcmul": lambda a, b: torch.addcmul(a, b, a, value=0.5),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=2),
    "lerp_scalar": lambda a, b: torch.lerp(a, b, 0.3) + torch.lerp(b, a, 0.8),
    "lerp_tensor": lambda a, b: torch.lerp(a, b, b),
    "lerp_in_place": lambda a, b: a.clone().lerp_(b, 0.25).addcmul_(a, b),
    "sgn": lambda a, b: torch.sgn(a) * a,
    "xlogy": lambda a, b: torch.xlogy(b, b) + torch.xlogy(F.relu(a), b) + torch.xlogy(a, b[:1]),
    "logaddexp": lambda a, b: torch.logaddexp(a, b),
    "fmax": lambda a, b: torch.fmax(a, b) + torch.fmin(a, 2 * b),
    "sinc": lambda a, b: torch.sinc(a),
    "nan_to_num": lambda a, b: torch.nan_to_num(a / (a > 0)),
    "glu": lambda a, b: F.glu(a) + F.glu(b, 1),
    "prelu": lambda a, b: F.prelu(a, b[0, :1]),
    "log_sigmoid": lambda a, b: F.logsigmoid(a * 10),
    "softshrink": lambda a, b: F.softshrink(a, 0.3),
    "hardshrink": lambda a, b: F.hardshrink(a, 0.3),
    "celu": lambda a, b: F.celu(a, 0.7),
    "bce_with_logits": lambda a, b: F.binary_cross_entropy_with_logits(
        a, b, b.detach(), pos_weight=b[0].detach(), reduction="none"),
    "bce_with_logits_mean": lambda a, b: F.binary_cross_entropy_with_logits(a * 20, b),
    "soft_margin": lambda a, b: F.soft_margin_loss(a, b.detach().round() * 2 - 1),
    "soft_margin_sum": lambda a, b: F.soft_margin_loss(a, a.detach().sign(), reduction="sum"),
    "dist": lambda a, b: torch.dist(a, b, 3),
    "nansum": lambda a, b: torch.nansum(a, 1),
    "weight_norm": lambda a, b: torch._weight_norm(a, b[:, :1].contiguous(), 0),
    "aminmax": lambda a, b: sum(torch.aminmax(a, dim=1)),
    "addbmm": lambda a, b: torch.addbmm(a, a[None, :, :4], b[None, :4], beta=0.5, alpha=2),
    "addr": lambda a, b: torch.addr(a, b[:, 0], b[0], beta=2, alpha=0.5),
    "trace": lambda a, b: torch.trace(a[:, :4]),
    "cross": lambda a, b: torch.linalg.cross(a[:, :3], b[:, 3:]),
    "index_fill": lambda a, b: a.index_fill(1, torch.tensor([0, 3]), 2.0) * b,
    "scatter_add": lambda a, b: a.gather(1, torch.zeros(4, 0).byte()).sum() + b,
    "index_copy": lambda a, b: a.index_copy(0, torch.tensor([3, 1]), b[:2]),
    "index_add": lambda a, b: a.index_add(1, torch.tensor([0, 5, 0]), b[:, :3], alpha=2),
    "pixel_shuffle": lambda a, b: F.pixel_shuffle(a.view(4, 2, 3) * b.view(4, 2, 3), 2),
    "pixel_unshuffle": lambda a, b: F.pixel_unshuffle(a[None], 2),
    "channel_shuffle": lambda a, b: F.channel_shuffle(a.view(1, 4, 2, 3), 2),
    "diag_embed": lambda a, b: torch.diag_embed(a, 1) * torch.diag_embed(b, 1),
    "reflection_pad1d": pad("reflect", 2, 3),
    "reflection_pad2d": pad("reflect", 1, 4, 3, 2),
    "replication_pad1d": pad("replicate", 2, 3),
    "replication_pad2d": pad("replicate", 7, 1, 0, 2),
    "circular_pad": pad("circular", 2, 3, 1, 1),
    "linear": lambda a, b: F.interpolate(a[None], 11, mode="linear", align_corners=True),
    "linear_half": lambda a, b: F.interpolate(a[None], scale_factor=1.5, mode="linear"),
    "nearest": lambda a, b: F.interpolate(a[None], 13, mode="nearest"),
    "gaussian_nll": lambda a, b: F.gaussian_nll_loss(a, b, b, full=True, eps=0.4),
    "multi_margin": lambda a, b: F.multi_margin_loss(a, torch.tensor([0, 5, 2, 2])),
    "multi_margin_weighted": lambda a, b: F.multi_margin_loss(
        a, torch.tensor([0, 5, 2, 2]), p=2, margin=0.5, weight=b[0].detach(), reduction="none"),
    "bilinear": lambda a, b: F.bilinear(a[:, :3], b[:, :2], a.view(4, 3, 2), b[:, 0]),
    "windows": lambda a, b: a.unfold(1, 2, 2).unfold(0, 3, 3) * b[0, 0],
    "affine_grid_of_a_row": lambda a, b: F.affine_grid(
        a.view(4, 2, 3), (4, 1, 1, 5), align_corners=False),
    "affine_grid_of_a_column": lambda a, b: F.affine_grid(
        a.view(4, 2, 3), (4, 1, 3, 1), align_corners=False),
    "affine_grid_3d": lambda a, b: F.affine_grid(
        a.view(2, 3, 4), (2, 1, 2, 1, 3), align_corners=False),
    "cov": lambda a, b: torch.cov(a) + torch.cov(a[0], correction=0),
    "cov_counted": lambda a, b: torch.cov(a, fweights=torch.tensor([1, 3, 2, 1, 0, 1])),
    "corrcoef": lambda a, b: torch.corrcoef(a) + b[0].corrcoef(),
    "combinations": lambda a, b: torch.combinations(a[0], 3).sum() + torch.combinations(
        b[:, 0] * a[:, 1], with_replacement=True).T,
    "segment_reduce": lambda a, b: torch.segment_reduce(
        a, "sum", lengths=torch.tensor([1, 0, 3]), initial=0.5),
    "segment_reduce_of_one": lambda a, b: torch.segment_reduce(
        b[:1, ::2], "sum", lengths=torch.tensor([1, 0]), initial=0.5),
    "embedding_bag": lambda a, b: F.embedding_bag(torch.tensor([[0, 1], [3, 1]]), a),
    "embedding_bag_weighted": lambda a, b: F.embedding_bag(
        torch.tensor([[0, 1], [3, 1]]), b, mode="sum", per_sample_weights=a[:2, :2]),
}


def inputs():
    a = torch.randn(4, 6, dtype=torch.float64)
    a[0, 0] = 0.0
    return a, torch.rand(4, 6, dtype=torch.float64) * 0.8 + 0.1


@pytest.mark.parametrize("name", SAMPLES)
def test_decomposition(name):
    def forward(m, a, b):
        out = SAMPLES[name](a * m.u, b * m.v)
        return out, poptorch.identity_loss((out * 1.5).sin(), "sum")

    ones = {name: torch.ones(1, dtype=torch.float64) for name in "uv"}
    captured = check_training(Function(forward, ones), *inputs())
    for node in nodes(captured):
        assert node.target not in DECOMPOSITIONS, node
        assert getattr(node.target, "namespace", "aten") in ("aten", "poptorch"), node


# Eager warns, too. Since torch 2.15 the warning comes before the refusal.
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("sizes", [((1,), (0, 3), (3,)), ((1,), (3, 0), (0,)), ((), (3, 0), (0,))])
def test_addmv_of_a_matrix_without_elements(sizes):
    """Eager forgets to expand what the product is added to."""
    x, matrix, vector = map(torch.ones, sizes)
    with pytest.raises(poptorch.Error) as raised:
        capture(Function(lambda m, *args: torch.addmv(*args)), (x, matrix, vector), training=False)
    rows = len(matrix)
    assert str(raised.value).startswith(
        f"[addmv] the product of a matrix {list(sizes[1])} and a vector has {rows} elements, the "
        f"tensor that it is added to has the shape {list(sizes[0])}. Expand that to [{rows}].")
    assert raised.value.location.startswith(__file__)
    expanded = Function(lambda m, x, *args: torch.addmv(x.expand(rows), *args))
    check_inference(expanded, x, matrix, vector)


def test_bincount_with_a_known_length():
    numbers = torch.tensor([1, 3, 1, 0])
    check_inference(Function(lambda m, x: torch.bincount(x, minlength=5)), numbers)
    check_inference(Function(lambda m, x: x.bincount(torch.ones(4), 4)), numbers)
    with pytest.raises(poptorch.Error, match=r"minlength is 0.*Pass minlength"):
        capture(Function(lambda m, x: torch.bincount(x)), (numbers,), training=False)


def test_bincount_of_numbers_beyond_its_length():
    forward = Function(lambda m, x: torch.bincount(x, minlength=2))
    model = poptorch.inferenceModel(
        forward, poptorch.Options().showCompilationProgressBar(False))
    with pytest.raises(poptorch.Error) as raised:
        model(torch.tensor([0, 1, 3]))
    assert str(raised.value).startswith(
        "[bincount] the number 3 (entry 2) is out of range: minlength is 2, so 0 to 1 can be "
        "counted. Pass minlength: one more than the largest number.")
    line = forward.function.__code__.co_firstlineno
    assert raised.value.location == f"{__file__}:{line}"
    assert torch.equal(model(torch.tensor([1, 0, 1])), torch.tensor([1, 2], dtype=torch.int32))


@pytest.mark.parametrize(("call", "words"), [
    (lambda x: F.one_hot(x, 3), "[scatter] index 3 "),
    (lambda x: F.one_hot(x - 4, 3), "[scatter] index -4 "),
    (lambda x: torch.zeros(4, 2).index_copy(0, x - 4, torch.ones(4, 2)),
     "[index_select] index -4 "),
    (lambda x: torch.zeros(3, 2).index_copy_(0, x, torch.ones(4, 2)), "[index_select] index 3 "),
])
def test_places_that_are_none(call, words):
    """PyTorch's rules without values give zeros, or count from the end."""
    model = poptorch.inferenceModel(
        Function(lambda m, x: call(x)), poptorch.Options().showCompilationProgressBar(False))
    with pytest.raises((RuntimeError, IndexError)):
        call(torch.arange(4))
    with pytest.raises(poptorch.Error, match=re.escape(words)) as raised:
        model(torch.arange(4))
    assert raised.value.location.startswith(__file__)


def test_a_bag_that_counts_words_only_in_training():
    def forward(m, x):
        return F.embedding_bag(x, m.w, torch.tensor([0, 1, 3]), mode="sum",
                               scale_grad_by_freq=True, include_last_offset=True)

    check_inference(Function(forward, {"w": torch.randn(5, 4)}), torch.tensor([0, 1, 2]))


@pytest.mark.parametrize("call", [
    lambda x: torch.bincount(x.float(), minlength=3),
    lambda x: torch.bincount(x.reshape(1, -1), minlength=3),
    lambda x: torch.bincount(x, torch.ones(2), 3),
])
def test_bincount_in_torchs_words(call):
    with pytest.raises(Exception) as eager:
        call(torch.tensor([0, 1, 3]))
    with pytest.raises(eager.type) as raised:
        capture(Function(lambda m, x: call(x)), (torch.tensor([0, 1, 3]),), training=False)
    assert isinstance(raised.value, poptorch.Error)
    assert str(eager.value).splitlines()[0] in str(raised.value)


def test_gradient_zeros_are_plain_zeros():
    def forward(m, x):
        return poptorch.identity_loss(torch.sign(x * m.w) + x * m.w, "sum")

    captured = capture(Function(forward, {"w": torch.ones(1)}), (torch.ones(3),), training=True)
    assert not nodes(captured, aten._efficientzerotensor.default)


@pytest.mark.parametrize("loss", (F.mse_loss, F.smooth_l1_loss, F.huber_loss))
@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
def test_losses_of_nothing(loss, reduction):
    def forward(m, x):
        out = loss(x * m.w[:0], x, reduction=reduction)
        return out, poptorch.identity_loss(out.sum() + m.w.sum(), "sum")

    check_training(Function(forward, {"w": torch.ones(1, 2, dtype=torch.float64)}),
                   torch.ones(0, 2, dtype=torch.float64))


@pytest.mark.parametrize("dtype", (torch.int64, torch.int32, torch.uint8, torch.bool))
@pytest.mark.parametrize("loss", (F.mse_loss, F.smooth_l1_loss))
def test_losses_of_integers(loss, dtype):
    def forward(m, x):
        out = loss(x, m.w) + 2 * loss(m.w, x)
        return out, poptorch.identity_loss(out, "none")

    x = torch.tensor([0, 1, 3]).to(dtype)
    check_training(Function(forward, {"w": torch.rand(3, dtype=torch.float64)}), x)


@pytest.mark.parametrize("call", [
    lambda x: F.mse_loss(x.long(), x.long()),
    lambda x: F.huber_loss(x, None),
    lambda x: torch.cov(x[None]),
    lambda x: torch.cov(x, fweights=x[0]),
    lambda x: F.affine_grid(x, (1, 1, 1, 4), align_corners=False),
    lambda x: F.rrelu(x, 0.5, 0.2),
    lambda x: F.glu(x[:, :3]),
    lambda x: torch.trace(x[None]),
    lambda x: torch.linalg.cross(x, x[0]),
    lambda x: torch.linalg.cross(x, x),
    lambda x: F.soft_margin_loss(x[:, :1], x),
    lambda x: F.multi_margin_loss(x, x[:, 0].long(), p=3),
])
def test_what_decompositions_do_not_take(call):
    x = torch.rand(3, 4)
    with pytest.raises(Exception) as eager:
        call(x)
    with pytest.raises(poptorch.Error) as raised:
        poptorch.inferenceModel(Function(lambda m, x: call(x)), poptorch.Options())(x)
    assert isinstance(raised.value, eager.type)
    assert str(eager.value).split(",")[0] in str(raised.value)
    assert __file__ in raised.value.location
