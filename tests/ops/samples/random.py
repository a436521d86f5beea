"""Samples of the random family: what holds for every draw, and statistics within five sigma."""

import math

import torch

from tests.ops.sample import Bad, Sample, integers, numbers, randn, uniform

N = 40_000  # elements of a sample whose statistics are taken
SINGLE = ("f32", "f64")


def rng():
    """A random state: two words of seed, replica, counter."""
    return torch.cat([integers(-2**31, 2**31 - 1, 2), numbers(0, dtype=torch.int32),
                      integers(0, 1000, 1)])


def mean_is(values, mean, deviation):
    """Whether the mean is within five sigma, for values of this standard deviation."""
    if values.numel() == 0:
        return
    got = values.double().mean().item()
    assert abs(got - mean) <= 5 * deviation / math.sqrt(values.numel()), (got, mean)


def drops(p):
    """A check of dropout with probability `p`."""
    def check(operands, results):
        x, out = operands[0].double(), results[0].double()
        kept = out != 0
        scaled = x / (1 - p) if p < 1 else x * 0
        tolerance = {torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(results[0].dtype, 1e-6)
        assert torch.allclose(out[kept], scaled[kept], rtol=tolerance, atol=0)
        mean_is(kept, 1 - p, math.sqrt(p * (1 - p)))

    return check


def dropout(p, *sizes, note=""):
    return Sample("dropout", lambda: [uniform(0.5, 2.0, *sizes), rng()], {"p": p, "salt": 3},
                  check=drops(p), note=note)


def spread(mean, deviation, low=-math.inf, high=math.inf):
    """A check of the mean, the standard deviation and the range of a draw."""
    def check(_, results):
        values = results[0].double()
        mean_is(values, mean, deviation)
        fourth = 9 * deviation**4  # at least the fourth central moment of those drawn here
        mean_is((values - mean) ** 2, deviation**2, math.sqrt(fourth))
        assert values.min() >= low
        assert values.max() <= high

    return check


def sized(op, attrs, check, dtype=torch.float32, n=N, **how):
    how = {"dtypes": SINGLE, **how}
    return Sample(op, lambda: [rng()], {"size": [n], "dtype": dtype, "salt": 5, **attrs},
                  check=check, **how)


def next_state(state):
    return state + numbers(0, 0, 0, 1, dtype=torch.int32)


def is_bernoulli(operands, results):
    p, out = operands[0].double(), results[0].double()
    assert ((out == 0) | (out == 1)).all()
    assert (out[p == 0] == 0).all()
    assert (out[p == 1] == 1).all()
    mean_is(out - p, 0.0, 0.5)


def is_uniform_int(low, high):
    def check(_, results):
        values = results[0].double()
        assert values.min() >= low
        assert values.max() < high
        deviation = (high - low) / math.sqrt(12)
        mean_is(values, (low + high - 1) / 2, deviation)
        if high - low < 100:
            counts = torch.bincount((results[0].long() - low), minlength=high - low)
            expected = values.numel() / (high - low)
            assert ((counts - expected).abs() <= 6 * math.sqrt(expected)).all()

    return check


def is_permutation(_, results):
    values = results[0].long()
    assert torch.equal(values.sort().values, torch.arange(values.numel()))
    if values.numel() > 100:
        assert not torch.equal(values, torch.arange(values.numel()))


def folded(state, number):
    """splitmix64 of the seed and the number, in Python's integers."""
    def mixed(x):
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9 % 2**64
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb % 2**64
        return x ^ (x >> 31)

    if not state.numel() or not number.numel():
        return state.clone()
    low, high, replica, counter = state.tolist()
    seed = (high % 2**32) << 32 | low % 2**32
    step = (number.item() % 2**32 + 1) * 0x9e3779b97f4a7c15 % 2**64
    found = mixed((seed + mixed(step)) % 2**64)
    words = [word - 2**32 if word >= 2**31 else word for word in (found % 2**32, found >> 32)]
    return numbers(*words, replica, counter, dtype=torch.int32)


def is_near(operands, results):
    """Each result is less than a step of float16 off, the mean is none."""
    x, out = operands[0].double(), results[0].double()
    step = torch.where(x.abs() < 2**-14, 2.0**-24, 2.0 ** (x.abs().log2().floor() - 10))
    assert ((out - x).abs() < step).all()
    mean_is(out - x, 0.0, step.mean().item() if x.numel() else 0.0)


SAMPLES = [
    *(Sample("rng_fold", lambda number=number: [rng(), numbers(number, dtype=torch.int32)],
             reference=folded, note=f"number {number}") for number in (0, 1, 7, -1)),
    Sample("rng_advance", lambda: [rng()], reference=next_state),
    Sample("rng_advance", lambda: [numbers(1, 2, 3, 2**31 - 1, dtype=torch.int32)],
           reference=lambda s: numbers(1, 2, 3, -2**31, dtype=torch.int32), note="wraps"),
    *(dropout(p, 50, 800) for p in (0.1, 0.5, 0.9)),
    dropout(0.0, 300), dropout(1.0, 300), dropout(0.3, 0, 4, note="empty"),
    dropout(0.3, 7, 11, note="odd"),
    *(Sample("stochastic_cast", lambda sizes=sizes: [randn(*sizes), rng()],
             {"dtype": torch.float16, "salt": 7}, check=is_near, dtypes=("f32",))
      for sizes in ((200, 200), (7, 11), (0, 4))),
    Sample("bernoulli", lambda: [torch.rand(100, 400).round(decimals=1), rng()], {"salt": 1},
           check=is_bernoulli),
    sized("random_uniform", {}, spread(0.5, math.sqrt(1 / 12), 0.0, 1.0)),
    sized("random_uniform", {"low": -3.0, "high": 5.0}, spread(1.0, 8 * math.sqrt(1 / 12), -3, 5)),
    sized("random_normal", {}, spread(0.0, 1.0)),
    sized("random_normal", {"mean": 4.0, "std": 0.5}, spread(4.0, 0.5)),
    sized("random_normal", {}, spread(0.0, 1.0), n=101, note="odd"),
    sized("random_exponential", {}, spread(1.0, 1.0, 0.0)),
    sized("random_exponential", {"lambd": 4.0}, spread(0.25, 0.25, 0.0)),
    sized("random_int", {"low": -5, "high": 12}, is_uniform_int(-5, 12), torch.int32),
    sized("random_int", {"low": 0, "high": 2}, is_uniform_int(0, 2), torch.int64),
    sized("random_int", {"low": -2**31, "high": 2**31}, is_uniform_int(-2**31, 2**31), torch.int64),
    sized("random_int", {"low": -2**50, "high": 2**50}, is_uniform_int(-2**50, 2**50),
          torch.int64),
    sized("random_int", {"low": 0, "high": 7}, is_uniform_int(0, 7)),
    *(Sample("random_permutation", lambda: [rng()], {"n": n, "dtype": dtype, "salt": 2},
             check=is_permutation)
      for n in (0, 1, 5, 3000) for dtype in (torch.int32, torch.int64)),
]

BADS = [
    Bad("rng_fold", lambda: [rng(), numbers(1, 2, dtype=torch.int32)],
        words="one i32 is needed"),
    Bad("rng_advance", lambda: [randn(4)], words="rng must be the random state"),
    Bad("dropout", lambda: [randn(3), rng()], {"p": 1.5, "salt": 0}, words="between 0 and 1"),
    Bad("dropout", lambda: [integers(0, 9, 3), rng()], {"p": 0.5, "salt": 0},
        words="floating-point"),
    Bad("dropout", lambda: [randn(3), rng()], {"p": 0.5}, words='"salt" is missing'),
    Bad("stochastic_cast", lambda: [randn(3).half(), rng()],
        {"dtype": torch.float16, "salt": 0}, words="rounds f32 to f16 or bf16"),
    Bad("stochastic_cast", lambda: [randn(3), rng()], {"dtype": torch.float32, "salt": 0},
        words="got f32 and f32"),
    Bad("bernoulli", lambda: [integers(0, 2, 3), rng()], {"salt": 0}, words="floating-point"),
    Bad("random_uniform", lambda: [rng()], {"size": [3], "dtype": torch.int32, "salt": 0},
        words="floating-point"),
    Bad("random_int", lambda: [rng()],
        {"size": [3], "dtype": torch.int32, "salt": 0, "low": 5, "high": 5},
        words="low must be less than high"),
    Bad("random_permutation", lambda: [rng()], {"n": -1, "dtype": torch.int32, "salt": 0},
        words="must not be negative"),
]
