"""Rounding by chance: to the two neighbours, with the right mean, from named random words."""

import numpy as np
import pytest
import torch

from poptorch import _C

STATE = (1234, -77, 0, 9)  # seed (two words), replica, counter
SIXTEEN_BIT = pytest.mark.parametrize("dtype", ["f16", "bf16"])
N = 1_000_000


def cast(x, dtype, state=STATE, salt=3, threads=1):
    """The rounded numbers as a torch tensor."""
    x, rng = np.asarray(x, np.float32), np.array(state, np.int32)
    attrs = {"dtype": _C.DType(dtype), "salt": salt}
    (out,) = _C.evaluate("stochastic_cast", [x, rng], attrs, threads=threads)
    kind = torch.float16 if dtype == "f16" else torch.bfloat16
    return torch.from_numpy(out.view(np.int16).copy()).view(kind)


def fused(x, dtype, threads=1):
    """The same between other ops of a region, and as its result."""
    rng = np.array(STATE, np.int32)
    body = [["neg", 0], ["stochastic_cast", 2, 1, "dtype", _C.DType(dtype), "salt", 3],
            ["neg", 3]]
    inside, = _C.evaluate("fused", [x, rng], {"body": body, "out": [4]}, threads=threads)
    result, = _C.evaluate("fused", [x, rng], {"body": body[:2], "out": [3]}, threads=threads)
    return inside.view(np.uint16), result.view(np.uint16)


def neighbours(value, dtype):
    """The numbers of the format around a float32 one, and the chance of the upper one."""
    kind = torch.float16 if dtype == "f16" else torch.bfloat16
    all_bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(kind).double()
    numbers = all_bits[all_bits.isfinite()].unique()
    above = torch.searchsorted(numbers, torch.tensor([value], dtype=torch.float64)).item()
    low, high = numbers[above - 1].item(), numbers[above].item()
    return low, high, (value - low) / (high - low)


# Fractions of a step; below and above the least normal number; both signs; either side of a power
# of two.
VALUES = [1.0 + 0.3 * 2**-10, 1.0 + 2**-20, -3.14159, 2 - 2**-13, 1e-5, -3.3 * 2**-24,
          0.25 * 2**-24, 6.1e-5, 65503.0, 300.7, -2.0**-14 * (1 - 2**-12)]


@SIXTEEN_BIT
@pytest.mark.parametrize("value", [np.float32(value).item() for value in VALUES])
def test_two_neighbours_with_the_right_mean(value, dtype, isa):
    low, high, chance = neighbours(value, dtype)
    got = cast(np.full(N, value), dtype).double()
    up = (got == high).sum().item()
    assert up + (got == low).sum().item() == N
    assert abs(up / N - chance) <= 5 * max(chance * (1 - chance), 1 / N) ** 0.5 / N**0.5


@SIXTEEN_BIT
def test_mean_over_many_numbers(dtype, isa, seed):
    x = np.random.default_rng(seed).standard_normal(N).astype(np.float32)
    got = cast(x, dtype).double().numpy()
    error = got - x
    assert abs(error.mean()) <= 5 * error.std() / N**0.5
    # The probability of each rounding is its distance: so is the variance.
    step = 2.0 ** (np.floor(np.log2(np.abs(x))) - (10 if dtype == "f16" else 7))
    part = np.abs(x) / step % 1
    expected = (step**2 * part * (1 - part)).mean()
    assert abs((error**2).mean() - expected) <= 0.02 * expected


@SIXTEEN_BIT
def test_numbers_of_the_format_stay(dtype, isa):
    kind = torch.float16 if dtype == "f16" else torch.bfloat16
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    values = bits.view(kind).float()
    for salt in range(4):
        got = cast(values.numpy(), dtype, salt=salt)
        is_nan = values.isnan()
        assert torch.equal(got.view(torch.int16)[~is_nan], bits[~is_nan])
        assert got[is_nan].isnan().all()


@pytest.mark.parametrize(("dtype", "most", "next_one"), [
    ("f16", 65504.0, 65536.0), ("bf16", 255 * 2.0**120, 2.0**128)])
def test_beyond_the_largest_number_the_nearest_is_taken(dtype, most, next_one, isa):
    middle = np.float32((most + next_one) / 2)
    below = np.nextafter(middle, np.float32(0))
    assert (cast(np.full(4000, below), dtype) == most).all()
    assert (cast(np.full(4000, -below), dtype) == -most).all()
    assert (cast(np.full(4000, middle), dtype) == torch.inf).all()
    assert (cast(np.full(4000, -3e38 if dtype == "f16" else -np.inf), dtype) == -torch.inf).all()


@SIXTEEN_BIT
def test_same_bits_for_any_instruction_set_number_of_threads_and_form(dtype, seed):
    x = np.random.default_rng(seed).standard_normal(50_001).astype(np.float32)
    x[::7] *= np.float32(1e-6)
    before, found = _C.isa(), []
    for level in _C.machine_isas():
        _C.set_isa(level)
        for threads in (1, 2, 3):
            found.append(cast(-x, dtype, threads=threads).view(torch.int16).numpy())
            inside, result = fused(x, dtype, threads)
            found += [result.view(np.int16), (inside ^ 0x8000).view(np.int16)]
    _C.set_isa(before)
    assert all(np.array_equal(bits, found[0]) for bits in found)
    # An element's bits depend on its number, not on how many there are.
    assert np.array_equal(cast(-x[:999], dtype).view(torch.int16).numpy(), found[0][:999])


@pytest.mark.parametrize("position", range(4))
def test_each_word_of_the_state_matters(position):
    other = list(STATE)
    other[position] += 1
    x = np.full(10_000, 1 + 2**-11)
    agree = (cast(x, "f16") == cast(x, "f16", tuple(other))).double().mean().item()
    assert 0.47 < agree < 0.53
    agree = (cast(x, "f16") == cast(x, "f16", salt=4)).double().mean().item()
    assert 0.47 < agree < 0.53
