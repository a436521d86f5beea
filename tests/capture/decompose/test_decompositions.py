"""Every decomposition on generated arguments: at least as exact as eager, and of eager's type."""

import pytest
import torch
from torch.utils import _pytree as pytree

import poptorch
from poptorch._capture.decompose import resampling  # noqa: F401  (adds to the table)
from poptorch._capture.decompose.functional_ops import functional_form
from poptorch._capture.decompose.table import DECOMPOSITIONS
from tests.capture.common import tensors_of
from tests.capture.decompose.decomposition_cases import CASES, Numbers
from tests.capture.graph.test_memory_views import Function
from tests.helpers import quiet_options

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.int32, torch.uint8,
          torch.bool)
aten = torch.ops.aten
# Eager's own formula makes NaN of infinities, and infinities of large numbers.
MORE_FINITE = {aten.soft_margin_loss.default, aten.soft_margin_loss_backward.default,
               aten.binary_cross_entropy_with_logits.default, aten.log_sigmoid_backward.default}
# Resampled in two dimensions, where an infinity is multiplied by the weight 0.
LESS_FINITE = {aten.upsample_linear1d.default, aten.upsample_linear1d_backward.default,
               aten.upsample_nearest1d_backward.default}


def on_device(overload, args, kwargs):
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [t for t in leaves if torch.is_tensor(t)]

    def forward(*given):
        given = iter(given)
        new = [next(given) if torch.is_tensor(leaf) else leaf for leaf in leaves]
        new_args, new_kwargs = pytree.tree_unflatten(new, spec)
        return overload(*new_args, **new_kwargs)

    model = poptorch.inferenceModel(Function(forward), quiet_options())
    return tensors_of(model(*tensors))


def widened(leaf):
    if leaf is torch.float32:
        return torch.float64
    return leaf.double() if torch.is_tensor(leaf) and leaf.is_floating_point() else leaf


def check(overload, args, kwargs):
    """Whether eager takes the arguments; if it does, ours is compared."""
    try:
        eager = tensors_of(overload(*args, **kwargs))
    except (RuntimeError, NotImplementedError, ValueError):
        return False
    wide = pytree.tree_map(widened, (args, kwargs))
    exact = tensors_of(overload(*wide[0], **wide[1]))
    ours = on_device(overload, args, kwargs)
    first = 1 if overload is aten.log_sigmoid_forward.default else len(eager)  # then a buffer
    for got, wanted, reference in list(zip(ours, eager, exact, strict=True))[:first]:
        type_ = torch.int32 if wanted.dtype is torch.int64 else wanted.dtype
        assert (got.dtype, got.shape) == (type_, wanted.shape), f"{args} {kwargs}"
        if not wanted.is_floating_point():
            assert torch.equal(got, wanted.to(type_)), f"{args} {kwargs}"
        elif wanted.numel():
            _compare(overload, got, wanted, reference)
    return True


def _compare(overload, got, wanted, reference):
    limits = torch.finfo(wanted.dtype)
    fits = reference.isfinite() & (reference.abs() <= limits.max)
    if overload not in MORE_FINITE | LESS_FINITE:
        for test in (torch.isnan, torch.isposinf, torch.isneginf):
            same = (test(got) == test(wanted)) | (test(got) == test(reference))
            assert (same | fits).all(), f"{got}, not {wanted}"
    if not fits.any():
        return
    largest = reference[fits].abs().max().item()
    ours, eagers = ((x.double() - reference).abs()[fits] for x in (got, wanted))
    if overload not in LESS_FINITE:
        # Eager overflows on the way to some finite numbers, where ours may, too.
        assert (ours.isfinite() | ~eagers.isfinite()).all(), f"{got}, not {wanted}"
    # Of float32 what the numeric rule says; of 16-bit floats what eager has, and two units.
    is_half = wanted.dtype is not torch.float32
    limit = (1 if is_half else 4) * eagers.nan_to_num(torch.inf).max().item()
    error = ours.nan_to_num(0.0).max().item()
    assert error <= limit + (2 * limits.eps if is_half else 4e-6) * largest


@pytest.mark.sampled
@pytest.mark.parametrize("overload", DECOMPOSITIONS, ids=str)
def test_as_exact_as_eager(overload):
    checked = 0
    for dtype in DTYPES:
        for special in (False, True)[:1 + dtype.is_floating_point]:
            for *args, kwargs in CASES[overload](Numbers(dtype, special)):
                checked += check(overload, args, kwargs)
    assert checked


def out_form(overload):
    """The overload that writes to given tensors, and their names; None if there is none."""
    packet = overload.overloadpacket
    if packet in (torch.ops.aten.log_sigmoid_forward, torch.ops.aten._weight_norm_interface):
        return None  # the shape of their second result is another without data than with
    for other in (getattr(packet, name) for name in packet.overloads()):
        if functional_form(other) is overload and other._schema.arguments[-1].is_out:
            return other, [argument.name for argument in other._schema.arguments if argument.is_out]
    return None


# Eager's losses have a result of another shape first. Before torch 2.15 the warning was lost here.
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.sampled
@pytest.mark.parametrize("overload", list(filter(out_form, DECOMPOSITIONS)), ids=str)
def test_out(overload):
    into, names = out_form(overload)
    taken = {argument.name for argument in into._schema.arguments}  # no dtype if there is a tensor
    for *args, kwargs in CASES[overload](Numbers(torch.float32, False)):
        def forward(*given):
            *given, token = given
            found = tensors_of(overload(*given, **kwargs))
            outs = {name: torch.empty_like(x) for name, x in zip(names, found)}
            into(*given, **{name: x for name, x in kwargs.items() if name in taken}, **outs)
            return *found, *outs.values(), token

        try:
            forward(*args, None)
        except (RuntimeError, NotImplementedError, ValueError):
            continue
        *results, _ = poptorch.inferenceModel(Function(forward), quiet_options())(
            *args, torch.ones(1))
        wanted, found = results[:len(names)], results[len(names):]
        for one, other in zip(wanted, found, strict=True):
            assert torch.equal(one.nan_to_num(), other.nan_to_num()), f"{args} {kwargs}"


@pytest.mark.parametrize("call", [
    lambda h, f, i: torch.addcmul(h, i, i, value=0.5), lambda h, f, i: torch.addcmul(h, f, i),
    lambda h, f, i: torch.addcdiv(h, f, h), lambda h, f, i: torch.lerp(h, h, 0.3),
    lambda h, f, i: torch.logaddexp(h, f), lambda h, f, i: torch.fmax(h, i),
    lambda h, f, i: torch.xlogy(i, h), lambda h, f, i: torch.sinc(i),
    lambda h, f, i: torch.nn.functional.huber_loss(h, f),
    lambda h, f, i: torch.nn.functional.huber_loss(f, h),
    lambda h, f, i: torch.nn.functional.smooth_l1_loss(h, f, reduction="none"),
    lambda h, f, i: torch.nn.functional.mse_loss(h, f, reduction="none"),
    lambda h, f, i: torch.nn.functional.l1_loss(h, f),
    lambda h, f, i: torch.nn.functional.binary_cross_entropy_with_logits(h, f),
    lambda h, f, i: torch.nn.functional.binary_cross_entropy(h, h, weight=f),
    lambda h, f, i: torch.nn.functional.binary_cross_entropy(f, f, weight=h, reduction="none"),
    lambda h, f, i: torch.nn.functional.soft_margin_loss(h, f),
    lambda h, f, i: torch.nn.functional.kl_div(h, f, reduction="none"),
    lambda h, f, i: torch.nn.functional.poisson_nll_loss(h, f),
    lambda h, f, i: torch.where(i > 0, h, f), lambda h, f, i: h * i + f * h,
])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_mixed_types(call, dtype):
    half, single, integers = torch.rand(3).to(dtype), torch.rand(3), torch.tensor([1, 2, 3])
    try:
        expected = call(half, single, integers)
    except RuntimeError:
        pytest.skip("eager refuses it")
    found = poptorch.inferenceModel(Function(call), quiet_options())(half, single, integers)
    assert found.dtype is expected.dtype
    exact = call(half.double(), single.double(), integers)
    error, eagers = ((x - exact).abs().max() for x in (found, expected))
    assert error <= eagers + 2 * torch.finfo(found.dtype).eps * exact.abs().max()


def test_there_are_arguments_for_every_row():
    assert set(CASES) == set(DECOMPOSITIONS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["softshrink", "hardshrink"])
@pytest.mark.parametrize("limit", [0.1, 0.3, 0.7])
def test_what_is_shrunk_by_a_number_that_the_type_has_not(name, limit, dtype):
    """Eager compares, and subtracts, the number as it is in some of these and rounded in others:
    in others since torch 2.14."""
    rounding = {"rtol": torch.finfo(dtype).eps, "atol": limit * torch.finfo(dtype).eps}
    x = torch.cat([torch.randn(500) * limit, torch.tensor([limit, -limit, 1.002 * limit, 0.0])])
    x = x.to(dtype)
    shrunk = getattr(torch.nn.functional, name)
    found, = on_device(lambda x: shrunk(x, limit), (x,), {})
    torch.testing.assert_close(found, shrunk(x, limit), **rounding)
    grad, backward = torch.randn_like(x), getattr(aten, f"{name}_backward").default
    found, = on_device(lambda g, x: backward(g, x, limit), (grad, x), {})
    # The gradient of an element at the number itself passes, or does not.
    differs = (found != backward(grad, x, limit)).nonzero().flatten()
    assert all((x[at].abs() - limit).abs() <= rounding["atol"] for at in differs)
