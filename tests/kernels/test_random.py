"""The random generator: published words, and what a draw may and may not depend on."""

import numpy as np
import pytest

from poptorch import _C
from poptorch.errors import Error

STATE = (1234, -77, 0, 9)  # seed (two words), replica, counter


def draw(op, state=STATE, salt=3, threads=1, **attrs):
    rng = np.array(state, dtype=np.int32)
    if "size" in attrs:
        attrs["dtype"] = _C.DType(attrs.pop("dtype", "f32"))
    return _C.evaluate(op, [rng], {"salt": salt, **attrs}, threads=threads)[0]


def words(state, salt, count):
    """The 32-bit words of the first elements."""
    whole = draw("random_int", state, salt, size=[count], dtype="i64", low=0, high=2**32 - 1)
    return whole.astype(np.uint64)


def mask(n, p=0.4, state=STATE, salt=3, threads=1):
    ones, rng = np.ones(n, dtype=np.float32), np.array(state, dtype=np.int32)
    return _C.evaluate("dropout", [ones, rng], {"p": p, "salt": salt}, threads=threads)[0] != 0


def test_first_block_is_the_published_one(isa):
    """Philox4x32-10 of counter 0 and key 0: its words go to elements 0, 16, 32 and 48."""
    expected = np.array([0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], dtype=np.uint64)
    # A range of 2^32 - 1 scales a word by 1 - 2^-32: at most one less.
    got = words((0, 0, 0, 0), 0, 64)[[0, 16, 32, 48]]
    assert np.all((expected - got) <= 1)


def test_masks_do_not_depend_on_the_instruction_set():
    before, masks = _C.isa(), []
    for level in _C.machine_isas():
        _C.set_isa(level)
        masks.append(mask(10_001))
    _C.set_isa(before)
    assert all(np.array_equal(m, masks[0]) for m in masks)


def test_an_element_depends_on_its_index_alone(isa):
    long = draw("random_uniform", size=[50_000], threads=2)
    for n in (1, 63, 64, 65, 40_000):
        assert np.array_equal(draw("random_uniform", size=[n]), long[:n])
    assert np.array_equal(draw("random_uniform", size=[250, 200]).ravel(), long)


@pytest.mark.parametrize("position", range(4))
def test_each_word_of_the_state_matters(position):
    other = list(STATE)
    other[position] += 1
    agree = np.mean(mask(10_000, 0.5) == mask(10_000, 0.5, state=tuple(other)))
    assert 0.47 < agree < 0.53


def test_salts_are_independent():
    agree = np.mean(mask(10_000, 0.5, salt=3) == mask(10_000, 0.5, salt=4))
    assert 0.47 < agree < 0.53


def test_neighbors_are_independent(isa):
    values = draw("random_normal", size=[100_000]).astype(np.float64)
    for lag in (1, 2, 4, 8, 16, 32, 64):
        correlation = np.mean(values[lag:] * values[:-lag])
        assert abs(correlation) < 5 / np.sqrt(len(values)), lag


def test_normal_tails(isa):
    values = np.abs(draw("random_normal", size=[200_000]))
    for sigma, share in ((1, 0.317311), (2, 0.045500), (3, 0.002700)):
        deviation = np.sqrt(share * (1 - share) / len(values))
        assert abs(np.mean(values > sigma) - share) < 5 * deviation


def test_dropout_applies_the_mask_that_its_gradient_applies():
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    rng = np.array(STATE, dtype=np.int32)
    attrs = {"p": 0.4, "salt": 3}
    (out,) = _C.evaluate("dropout", [x, rng], attrs)
    assert np.array_equal(out != 0, mask(1000))


@pytest.mark.parametrize("p", [1 - 2.0**-32, 1 - 2.0**-33, 1 - 1e-12, 1 - 2.0**-53, 1.0])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_rate_next_to_1_drops_nearly_all(p, dtype):
    """An element stays with a chance of at most 2^-32."""
    x, rng = np.ones(10_000, dtype=dtype), np.array(STATE, dtype=np.int32)
    (out,) = _C.evaluate("dropout", [x, rng], {"p": p, "salt": 3})
    body = {"body": [["neg", 0], ["dropout", 2, 1, "p", p, "salt", 3]], "out": [3]}
    assert not out.any()
    if dtype != np.float64:
        assert not _C.evaluate("fused", [x, rng], body)[0].any()


@pytest.mark.parametrize("p", [0.0, 2.0**-53, 1e-12, 2.0**-34])
def test_a_rate_next_to_0_keeps_nearly_all(p):
    assert mask(10_000, p=p).all()


@pytest.mark.parametrize("dtype", ["u8", "i8", "i16", "i32", "i64", "f32", "f64"])
def test_permutations_of_each_type(dtype):
    count = 127
    drawn = draw("random_permutation", n=count, dtype=_C.DType(dtype))
    assert np.array_equal(np.sort(drawn), np.arange(count, dtype=drawn.dtype))
    assert not np.array_equal(drawn, np.sort(drawn))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("p", [0.4, 1.0 - 2.0**-40])
def test_dropout_of_nan_and_infinity_is_nan(p, dtype, isa):
    """Eager multiplies by a mask of zeros, also what it drops."""
    x = np.tile(np.array([np.nan, np.inf, 1], dtype), 50)
    rng = np.array(STATE, dtype=np.int32)
    out, = _C.evaluate("dropout", [x, rng], {"p": p, "salt": 3})
    ones, = _C.evaluate("dropout", [np.ones_like(x), rng], {"p": p, "salt": 3})
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, x * ones)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("wrong", [1.5, -0.25, np.nan])
def test_what_is_no_probability_is_refused(wrong, dtype):
    p = np.full(1000, 0.5, dtype)
    p[637] = wrong
    with pytest.raises(Error, match=rf"\[bernoulli\] a probability is {wrong}\. Give numbers from"):
        _C.evaluate("bernoulli", [p, np.array(STATE, dtype=np.int32)], {"salt": 3})
