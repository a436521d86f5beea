"""Rules take what the overloads of their names are given, and give eager's values in its dtype."""

import inspect

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch._translate.nodes import Nodes
from poptorch._translate.rules.table import RULES
from tests.capture.graph.test_memory_views import Function, check
from tests.helpers import quiet_options

# Named dimensions, and what no captured graph has.
_NEVER = ("Dimname", "Dict_Tensor", "where.default")


def overloads():
    """The functional overloads that a rule serves, with it."""
    nodes = Nodes(None)
    for packet in sorted({name.split(".")[0] for name in RULES}):
        namespace, name = packet.split("::")
        packet = getattr(getattr(torch.ops, namespace), name, None)
        for overload in packet.overloads() if packet is not None else ():
            target = getattr(packet, overload)
            schema = str(target._schema)
            is_tensor = any("Tensor" in str(r.type) for r in target._schema.returns)
            if is_tensor and not target._schema.is_mutable and not any(
                    word in f"{schema} {target}" for word in _NEVER):
                rule = nodes.rule_for(target)
                if inspect.isfunction(rule):
                    yield target, rule


def test_rules_take_all_arguments_of_their_overloads():
    bad = []
    for target, rule in overloads():
        arguments = target._schema.arguments
        by_place = [a for a in arguments if not a.kwarg_only]
        needed = [a for a in by_place if not a.has_default_value()]
        by_name = {a.name: a for a in arguments if a.kwarg_only}
        must = {n: a for n, a in by_name.items() if not a.has_default_value()}
        for places, names in ((by_place, by_name), (needed, must), (by_place, must)):
            try:
                inspect.signature(rule).bind(None, None, *places, **names)
            except TypeError as error:
                bad.append(f"{target}: {rule.__name__} {error}")
    assert not bad, "\n".join(bad)


def numbers(dtype, *sizes):
    return torch.randint(0, 2 if dtype is torch.bool else 100, sizes).to(dtype)


INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
OF_INTEGERS = {
    "any": lambda x: [x.any(), x.any(1), x.any(1, keepdim=True), x.any((0, 1))],
    "all": lambda x: [x.all(), x.all(1), x.all(0, keepdim=True), x[:0].all(0)],
    "sum": lambda x: [x.sum(), x.sum(1, dtype=torch.uint8), x.sum(0, dtype=torch.int16),
                      x.sum(1, dtype=torch.bool), x.float().sum(0, dtype=torch.int32)],
    "cumsum": lambda x: [x.cumsum(0), torch.cumsum(x, 1, dtype=torch.uint8),
                         x.cumsum(1, dtype=torch.float32), (x > 0).cumprod(1, dtype=torch.int16)],
    "tests": lambda x: [x.isnan(), x.isinf(), x.isfinite(), x.isposinf(), x.isneginf()],
    "pad": lambda x: [F.pad(x, (1, 2), value=1), F.pad(x, (1, 2), value=True)],
    "index_add": lambda x: x.index_add(0, torch.tensor([0, 2]), x[:2], alpha=1),
    "logsumexp": lambda x: torch.logsumexp(x.to(torch.bool).to(x.dtype), 1).mul(1e4).round(),
    "fmax": lambda x: [torch.fmax(x, x.flip(0)), torch.fmin(x, x.flip(0))],
    "addr": lambda x: [torch.addr(x[:, :4], x[0, :4], x[:, 0])],
}


@pytest.mark.parametrize("name", OF_INTEGERS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_of_integers(name, dtype):
    check(OF_INTEGERS[name], numbers(dtype, 4, 5))


# Numbers outside of the dtype: with a tensor their low bits count, as in PyTorch.
OF_OTHER_NUMBERS = {
    "arithmetic": lambda x: [x + 300, x * -1, x - 300, x // -3, torch.add(x, x, alpha=-1)],
    "comparisons": lambda x: [x < 300, x == -1, x > -1, x != 300, x.eq(256)],
    "clamp": lambda x: [x.clamp(-1, 1), x.clamp(min=-1), x.clamp(max=3), x.clamp_min(-2)],
    "fill": lambda x: [x.masked_fill(x > 1, -1), torch.where(x > 1, x, -1), x.new_full((2,), -1),
                       torch.full_like(x, -1), x.clone().fill_(-1)],
    "threshold": lambda x: F.threshold(x, 3, -1),
}


@pytest.mark.parametrize("name", OF_OTHER_NUMBERS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16], ids=str)
def test_numbers_beside_small_integers(name, dtype):
    check(OF_OTHER_NUMBERS[name], numbers(dtype, 4, 5))


@pytest.mark.parametrize("call", [
    lambda x: x.clamp(max=70000), lambda x: x.masked_fill(x > 1, 70000),
    lambda x: x.fill_(70000), lambda x: torch.full_like(x, -70000)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16], ids=str)
def test_numbers_that_pytorch_does_not_convert(call, dtype):
    with pytest.raises(poptorch.Error, match="cannot be converted .* without overflow") as caught:
        poptorch.inferenceModel(Function(call), quiet_options())(numbers(dtype, 4, 5))
    assert isinstance(caught.value, RuntimeError)


IMAGES = {
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (torch.uint8, torch.int32, torch.int64)),
    "max_pool2d indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), (torch.uint8,)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (torch.int64,)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), (torch.uint8,)),
    "nearest1d": (lambda x: F.interpolate(x[0], scale_factor=2), (torch.uint8,)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (torch.uint8,)),
    "conv2d": (lambda x: F.conv2d(x, x[:, :, :3, :3] - 50, padding=1), (torch.int64,)),
    "conv1d": (lambda x: F.conv1d(x[0], x[0, :, :, :3] - 50, x[0, 0, 0, :2], dilation=2),
               (torch.int64,)),
    "conv_transpose2d": (lambda x: F.conv_transpose2d(x, x.transpose(0, 1)[..., :3, :3]),
                         (torch.int64,)),
}


@pytest.mark.parametrize("name", IMAGES)
def test_of_images_of_integers(name):
    function, dtypes = IMAGES[name]
    for dtype in dtypes:
        check(function, numbers(dtype, 1, 2, 6, 6))


CALLS = {
    "new_full": (lambda x: [x.new_full((2,), 3.0), x.new_full((), True, dtype=torch.bool),
                            x.new_full([2, 2], 7, dtype=torch.int32)], torch.ones(3)),
    "linspace of tensors": (lambda x, y: torch.linspace(x, y, 5),
                            torch.tensor(1.0), torch.tensor(3.0)),
    "norm 0": (lambda x: [torch.linalg.vector_norm(x, 0), torch.linalg.vector_norm(
        x, 0, dim=1, keepdim=True)], torch.tensor([[0.0, 1.0, 2.0], [0.0, torch.inf, 0.0]])),
    "norm 0 of nothing": (lambda x: torch.linalg.vector_norm(x, 0), torch.ones(0)),
    "pivots": (lambda x: [t.mul(64).round() for t in torch.lu_unpack(*torch.linalg.lu_factor(x))],
               torch.eye(3).flip(0) * 2),
    "attention of NaN": (lambda x: F.scaled_dot_product_attention(
        x, x.nan_to_num(), x.nan_to_num(),
        attn_mask=torch.tensor([[True, True], [True, False]])).isnan(),
        torch.tensor([[[[torch.nan, 1.0], [0.5, 1.0]]]])),
    "margin of one class": (lambda x: F.multi_margin_loss(x, torch.tensor(0)), torch.tensor(1.0)),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    function, *args = CALLS[name]
    check(function, *args)


@pytest.mark.parametrize("decimals", [-2, -1, 0, 1, 3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_round_to_decimals(decimals, dtype):
    check(lambda x: torch.round(x, decimals=decimals), (torch.randn(100) * 50).to(dtype))


@pytest.mark.parametrize("fill", [
    lambda x: x.normal_(), lambda x: x.normal_(std=2.0, mean=-1.0), lambda x: x.uniform_(),
    lambda x: torch.distributions.Normal(x * 0, x * 0 + 1).rsample()])
def test_random_numbers_in_place(fill):
    zeros = torch.zeros(20000)
    model = Function(lambda x: fill(torch.zeros_like(x)))
    found, expected = poptorch.inferenceModel(model, quiet_options())(zeros), fill(zeros.clone())
    assert abs(found.mean() - expected.mean()) < 0.1 and abs(found.std() / expected.std() - 1) < 0.1


OF_NOTHING = {
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x[0], 0),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (0, 2)),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (2, 0), return_indices=True),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x[:0], x.mT.reshape(3, 2, 4, 4), padding=1),
}


@pytest.mark.parametrize("name", OF_NOTHING)
def test_what_has_no_element_is_computed_by_nothing(name):
    function = OF_NOTHING[name]
    x = torch.randn(2, 3, 4, 4)
    expected = function(x)
    ours = poptorch.inferenceModel(Function(function), quiet_options())(x)
    for one, other in zip(*(y if isinstance(y, tuple) else (y,) for y in (ours, expected))):
        assert one.shape == other.shape and one.numel() == 0
        assert one.is_floating_point() is other.is_floating_point()


def test_what_torch_refuses_is_refused_without_elements_too():
    module = Function(lambda x: F.conv_transpose2d(x, torch.ones(2, 3, 2, 2), padding=1))
    with pytest.raises(poptorch.Error, match="Output size is too small"):
        poptorch.inferenceModel(module, quiet_options())(torch.ones(1, 2, 1, 3))
