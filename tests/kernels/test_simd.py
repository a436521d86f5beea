"""The vector layer: accuracy at every instruction set, conversions, and how a level is chosen."""

import numpy as np
import pytest
import torch

from poptorch import _C
from poptorch.errors import Error
from tests.helpers import run_python


def apply(op, x):
    return torch.from_numpy(_C.evaluate(op, [x.numpy()])[0])


def worst_ulp(ours, exact):
    """Largest error in units in the last place of the exact result, where that is a normal f32."""
    unit = torch.from_numpy(np.spacing(exact.abs().float().numpy())).double()
    normal = (exact.abs() < 3.4e38) & (exact.abs() > 1.2e-38)
    return ((ours.double() - exact).abs() / unit)[normal].max().item()


def spread_out(low, high, n=100_000):
    """Values of both signs whose magnitudes are even on a logarithmic scale."""
    magnitude = torch.exp2(torch.rand(n, dtype=torch.float64) * (high - low) + low)
    return (magnitude * (torch.randint(0, 2, (n,)) * 2 - 1)).float()


# Function, range of exponents of the operand, whether only positive ones, largest error in ulp:
# more than that of any of every seventh number.
FUNCTIONS = [
    ("exp", -30, 6.45, False, 1.2), ("exp2", -30, 6.9, False, 1.2),
    ("expm1", -30, 6.45, False, 2.0),
    ("log", -126, 127, True, 1.5), ("log2", -126, 127, True, 2.5), ("log10", -126, 127, True, 2.5),
    ("log1p", -30, 100, True, 2.0), ("tanh", -30, 5, False, 3.5), ("sigmoid", -30, 6, False, 3.0),
    ("erf", -30, 3, False, 1.5), ("rsqrt", -126, 127, True, 1.5), ("sqrt", -126, 127, True, 0.51),
]


@pytest.mark.parametrize(("op", "low", "high", "positive", "limit"), FUNCTIONS,
                         ids=[case[0] for case in FUNCTIONS])
def test_accuracy(isa, op, low, high, positive, limit):
    x = spread_out(low, high)
    x = x.abs() if positive else x
    exact = getattr(torch, op)(x.double())
    assert worst_ulp(apply(op, x), exact) <= limit


@pytest.mark.parametrize("op", ["sin", "cos"])
def test_angles(isa, op):
    """Near multiples of pi results are small: their absolute error counts."""
    x = spread_out(-30, 20)
    error = (apply(op, x).double() - getattr(torch, op)(x.double())).abs().max().item()
    assert error <= 1.2e-7


def test_gelu(isa):
    """The error is that of the probability, which is rounded near 1: it grows with x."""
    x = torch.cat([spread_out(-30, 6), torch.rand(100_000) * 16 - 8])
    exact = torch.nn.functional.gelu(x.double())
    assert ((apply("gelu", x).double() - exact).abs() <= 1.4e-7 * x.abs()).all()


@pytest.mark.parametrize("op", ["tanh", "gelu"])
def test_ends_of_the_range(isa, op):
    """What rounds to its limit is the limit, and NaN stays."""
    x = torch.tensor([float("nan"), -0.0, 9.03, 50.0, 3e38, -9.03, -50.0, -3e38])
    limits = {"tanh": [1.0] * 3 + [-1.0] * 3, "gelu": [9.03, 50.0, 3e38, 0.0, 0.0, 0.0]}
    ours = apply(op, x)
    assert ours[0].isnan() and ours[1] == 0 and ours[1].signbit()
    assert torch.equal(ours[2:], torch.tensor(limits[op]))


@pytest.mark.parametrize("op", ["log", "log2", "log10", "exp", "exp2", "expm1"])
def test_subnormal_numbers(isa, op):
    x = spread_out(-148, -127).abs() if op.startswith("log") else -(torch.rand(1000) * 15 + 88)
    exact = getattr(torch, op)(x.double())
    error = (apply(op, x).double() - exact).abs()
    assert (error <= 1e-6 * exact.abs() + 1.5e-45).all()


@pytest.mark.parametrize("op", ["fmod", "remainder"])
def test_remainders_are_exact(isa, op):
    """Near whole quotients too, where the rounded one is larger; and at the ends of the range."""
    y = spread_out(-20, 20)
    near = (y.double() * torch.randint(-2**23, 2**23, y.shape)).float()
    near = near + near * 2e-7 * (torch.randint(0, 3, y.shape) - 1)
    ends = torch.tensor([0.0, -0.0, 1e-45, -1e-38, 1.0, -3.0, 3e38, torch.inf, -torch.inf,
                         torch.nan])
    for x, divisor in ((near, y), (spread_out(-140, 120), spread_out(-140, 120)), (y * 12, y),
                       (-y * 7, y), torch.cartesian_prod(ends, ends).T.contiguous()):
        (ours,) = _C.evaluate(op, [x.numpy(), divisor.numpy()])
        with np.errstate(invalid="ignore"):
            exact = np.fmod(x.numpy(), divisor.numpy())
        if op == "remainder":
            differ = (exact != 0) & ((exact < 0) != (divisor.numpy() < 0))
            exact = np.where(differ, exact + divisor.numpy(), exact)
        assert np.array_equal(ours, exact, equal_nan=True)
        known = ~np.isnan(exact)
        assert np.array_equal(np.signbit(ours)[known], np.signbit(exact)[known])


def test_every_16_bit_float_widens(isa):
    bits = np.arange(2**16, dtype=np.uint16)
    for array, dtype in ((bits.view(np.float16), torch.float16), ((bits, "bf16"), torch.bfloat16)):
        (ours,) = _C.evaluate("cast", [array], {"dtype": _C.DType("f32")})
        expected = torch.from_numpy(bits.view(np.int16)).view(dtype).float().numpy()
        assert np.array_equal(ours, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrowing_rounds_to_even(isa, dtype):
    """Random bits, and the numbers halfway between two neighbors."""
    random = torch.randint(-2**31, 2**31 - 1, (200_000,)).int().view(torch.float32)
    steps = torch.randint(-2**15, 2**15 - 1, (50_000,)).short().view(dtype).float()
    half = steps + (steps * (2.0**-11 if dtype is torch.float16 else 2.0**-8))
    x = torch.cat([random, half, torch.arange(70) * 2.0**-26])
    name = {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    (ours,) = _C.evaluate("cast", [x.numpy()], {"dtype": _C.DType(name)})
    ours = torch.from_numpy(ours.view(np.int16)).view(dtype)
    assert torch.equal(ours.isnan(), x.to(dtype).isnan())
    assert torch.equal(ours.nan_to_num(), x.to(dtype).nan_to_num())


@pytest.mark.sampled
def test_environment_forces_a_level():
    code = "from poptorch import _C; print(_C.isa())"
    for level in _C.machine_isas():
        assert run_python(code, POPTORCH_ISA=level).strip() == level


def test_best_level_is_the_default():
    code = "from poptorch import _C; print(_C.isa())"
    assert run_python(code, POPTORCH_ISA="").strip() == _C.machine_isas()[-1]


@pytest.mark.sampled
def test_unknown_level_is_an_error():
    code = """
import poptorch
from poptorch import _C
try:
    _C.isa()
except poptorch.Error as error:
    print(error)
"""
    words = run_python(code, POPTORCH_ISA="sse9")
    assert '[POPTORCH_ISA] "sse9" is no instruction set; this machine has base' in words
    with pytest.raises(Error, match="POPTORCH_ISA"):
        _C.set_isa("mmx")
