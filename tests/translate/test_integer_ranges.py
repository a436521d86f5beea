"""int64 values that arise in a program: eager's, or an error where int32 does not hold one.

Random expressions are judged by all 64 bits of their values, taken apart into numbers of 31 bits.
"""

import random

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import Applied, quiet_options

SIZES = (3, 4)
MASK = 2**31 - 1
NUMBERS = (0, 1, -1, 2, 3, 7, 31, 997, 1000003, -40000, 2**20, 2**31 - 1, -2**31, 2**31, 2**33 + 5,
           -2**40, 10**12, 2**53 + 1, -2**62 - 1)
VALUES = (0, 1, -1, 2, 5, 100, -77, 46341, -65536, 2**30, 2**31 - 2, 2**31 - 1, -2**31, -2**31 + 1)


def divisor(y):
    return (y & 15) + 1


def over(x, keep):
    """A reduction, in the place of each element."""
    return keep.expand(SIZES) if keep.dim() else keep.reshape(1, 1).expand(SIZES)


def rows(y):
    return y.remainder(3)


# Of two tensors [3, 4] and a number; each gives a tensor [3, 4].
OPERATIONS = {
    "add": lambda x, y, n: x + y, "add number": lambda x, y, n: x + n,
    "add alpha": lambda x, y, n: torch.add(x, y, alpha=n), "sub": lambda x, y, n: x - y,
    "sub alpha": lambda x, y, n: torch.sub(x, y, alpha=n), "rsub": lambda x, y, n: n - x,
    "mul": lambda x, y, n: x * y, "mul number": lambda x, y, n: x * n, "neg": lambda x, y, n: -x,
    "abs": lambda x, y, n: x.abs(), "sign": lambda x, y, n: x.sign(),
    "square": lambda x, y, n: x.square(), "cube": lambda x, y, n: x**3,
    "pow": lambda x, y, n: x ** (y & 7), "pow of number": lambda x, y, n: n ** (x & 7),
    "shift": lambda x, y, n: x << (y & 63), "shift number": lambda x, y, n: x << 13,
    "shift right": lambda x, y, n: x >> (y & 63), "shift right 5": lambda x, y, n: x >> 5,
    "and": lambda x, y, n: x & y, "or": lambda x, y, n: x | y, "xor": lambda x, y, n: x ^ y,
    "and number": lambda x, y, n: x & n, "or number": lambda x, y, n: x | n,
    "not": lambda x, y, n: ~x, "remainder": lambda x, y, n: x % divisor(y),
    "remainder number": lambda x, y, n: x % (n or 3), "fmod": lambda x, y, n: x.fmod(n or 5),
    "negative remainder": lambda x, y, n: x % -divisor(y),
    "floor division": lambda x, y, n: x // divisor(y),
    "division": lambda x, y, n: torch.div(x, -1 - divisor(y), rounding_mode="trunc"),
    "division by number": lambda x, y, n: torch.div(x, abs(n) + 2, rounding_mode="floor"),
    "minimum": lambda x, y, n: torch.minimum(x, y), "maximum": lambda x, y, n: torch.maximum(x, y),
    "clamp": lambda x, y, n: x.clamp(-abs(n), abs(n)), "clamp_min": lambda x, y, n: x.clamp_min(n),
    "clamp by tensors": lambda x, y, n: x.clamp(min=y - 5, max=y),
    "where": lambda x, y, n: torch.where(x > y, x, y), "eq": lambda x, y, n: (x == y).long(),
    "where number": lambda x, y, n: torch.where(x > n, n, y), "lt": lambda x, y, n: (x < n).long(),
    "masked_fill": lambda x, y, n: x.masked_fill(y > 0, n),
    "sum": lambda x, y, n: over(x, x.sum()), "sum of row": lambda x, y, n: over(x, x.sum(1, True)),
    "sum of int32": lambda x, y, n: over(x, x.int().sum(0, True)),
    "prod": lambda x, y, n: over(x, x.prod(1, True)), "cumsum": lambda x, y, n: x.cumsum(0),
    "cumprod": lambda x, y, n: x.cumprod(1), "amax": lambda x, y, n: over(x, x.amax(0, True)),
    "matmul": lambda x, y, n: (x @ y.T) @ x, "addmm": lambda x, y, n: torch.addmm(x, x @ y.T, y),
    "dot": lambda x, y, n: over(x, x[0].dot(y[1])),
    "mv": lambda x, y, n: over(x, (x @ y[0])[:, None]),
    "outer": lambda x, y, n: torch.outer(x[:, 0], y[0]),
    "diff": lambda x, y, n: x.diff(dim=0, prepend=y[:1]),
    "addcmul": lambda x, y, n: torch.addcmul(x, x, y), "gcd": lambda x, y, n: torch.gcd(x, y | 1),
    "int32": lambda x, y, n: x.int().long(), "int16": lambda x, y, n: x.short().long(),
    "uint8": lambda x, y, n: x.byte() * y, "bool": lambda x, y, n: x.bool().long(),
    "int32 arithmetic": lambda x, y, n: (x.int() * y.int()).long(),
    "transpose": lambda x, y, n: x.T.reshape(SIZES), "flip": lambda x, y, n: x.flip(0),
    "roll": lambda x, y, n: x.roll(1, 1), "cat": lambda x, y, n: torch.cat([x[:1], y[1:]]),
    "stack": lambda x, y, n: torch.stack([x, y], 1)[:, 1], "tril": lambda x, y, n: x.tril(),
    "gather": lambda x, y, n: x.gather(0, rows(y)), "index": lambda x, y, n: x[rows(y)[:, 0]],
    "take": lambda x, y, n: x.take(y.remainder(12)),
    "pad": lambda x, y, n: F.pad(x[:, 1:], (1, 0), value=7),
    "embedding": lambda x, y, n: F.embedding(rows(y)[:, 0], x),
    "sort": lambda x, y, n: x.sort(1)[0],
    "argsort": lambda x, y, n: x.argsort(stable=True, dim=1),
    "max": lambda x, y, n: over(x, x.max(1, True)[0]),
    "argmax": lambda x, y, n: over(x, x.argmax(1, True)), "topk": lambda x, y, n: x.topk(4, 1)[0],
    "cummax": lambda x, y, n: x.cummax(0)[0], "scatter": lambda x, y, n: x.scatter(0, rows(y), y),
    "scatter_add": lambda x, y, n: x.scatter_add(0, rows(y), y),
    "index_add": lambda x, y, n: x.index_add(0, rows(y)[:, 0], y, alpha=3),
    "index_put": lambda x, y, n: x.index_put((rows(y)[:, 0],), y[0, 0], accumulate=True),
    "slice_scatter": lambda x, y, n: x.slice_scatter(y[:, 1:2], 1, 2, 3),
    "full": lambda x, y, n: torch.full_like(x, n),
    "constant": lambda x, y, n: x + torch.tensor([n] * 4),
    "arange": lambda x, y, n: x + torch.arange(4) * n,
    "in place": lambda x, y, n: x.clone().mul_(y).add_(1),
    "as_strided": lambda x, y, n: (x * 3).as_strided(SIZES, (1, 3)),
    "one_hot": lambda x, y, n: F.one_hot(rows(y)[:, 0], 4) * x,
    "norm": lambda x, y, n: x * x + y * y,
    "count": lambda x, y, n: over(x, x.count_nonzero()) + x.nonzero_static(size=3)[:, :1],
}


X = torch.tensor([0, 1, 3])


def assert_equal(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, check_dtype=False)


def digest(x):
    """All bits, in three tensors that int32 holds."""
    return x & MASK, (x >> 31) & MASK, (x >> 62) & 3


def draw(drawn: random.Random, steps: int) -> list[tuple]:
    names = list(OPERATIONS)
    return [(drawn.choice(names), drawn.randrange(-2, i + 1), drawn.randrange(-2, i + 1),
             drawn.choice(NUMBERS)) for i in range(steps)]


class Expression(torch.nn.Module):
    """Steps, each of two values before it; the inputs come first."""

    def __init__(self, steps, result):
        super().__init__()
        self.steps, self.result = steps, result

    def forward(self, x, y):
        values = [x, y]
        for name, left, right, number in self.steps:
            values.append(OPERATIONS[name](values[left], values[right], number))
        return self.result(values)


def inputs(drawn: random.Random):
    return [torch.tensor([[drawn.choice(VALUES) for _ in range(4)] for _ in range(3)])
            for _ in range(2)]


def is_held(x) -> bool:
    return bool(((x >= -2**31) & (x < 2**31)).all())


def fails(steps, arguments) -> str:
    """What is wrong with a program of these steps; empty: nothing."""
    module = Expression(steps, lambda values: [part for v in values for part in digest(v)])
    expected = module(*arguments)
    got = poptorch.inferenceModel(module, quiet_options())(*arguments)
    for number, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        if not ours.long().equal(theirs):
            return f"value {number // 3}: {ours} is not {theirs}"
    return ""


def shrunk(steps, arguments) -> list:
    """The first steps of a program that fails: as few as fail."""
    for count in range(1, len(steps)):
        if fails(steps[:count], arguments):
            return steps[:count]
    return steps


def test_all_bits_of_random_expressions_are_those_of_eager(seed):
    for number in range(12):
        drawn = random.Random(f"{seed} {number}")
        steps, arguments = draw(drawn, 12), inputs(drawn)
        if fails(steps, arguments):
            fewer = shrunk(steps, arguments)
            pytest.fail(f"{fails(fewer, arguments)}\nsteps: {fewer}\ninputs: {arguments}")


@pytest.mark.parametrize("group", range(4))
def test_each_operation_has_all_bits_of_eager(group):
    drawn = random.Random(f"{torch.initial_seed()} {group}")
    for name in list(OPERATIONS)[group::4]:
        steps = [("mul number", 0, 0, 1000003), ("add", 0, 1, 0),
                 *((name, *places, drawn.choice(NUMBERS)) for places in ((0, 1), (2, 3), (2, 2)))]
        assert not fails(steps, inputs(drawn)), name


def test_numbers_that_float64_does_not_hold():
    most = 2**63 - 1

    def forward(x):
        x = x * 2**61
        numbers = (x.clamp(max=most), x.clamp(-most, 2**61 + 1), torch.add(x, x, alpha=2**60 + 1),
                   F.threshold(x, 2**53 + 1, -2**53 - 1), x.clamp_min(2**53 + 1),
                   torch.rsub(x, x, alpha=most),
                   torch.addmm(x, x[:, None], x[None] + 1, alpha=2**60 + 1))
        return [part for value in numbers for part in digest(value)]

    assert_equal(poptorch.inferenceModel(Applied(forward), quiet_options())(X), forward(X))


def test_bits_as_int64():
    x = torch.tensor([[7, 3], [-2, -1]], dtype=torch.int32)
    module = Applied(lambda x: (x.view(torch.int64) >> 32, x.float().view(torch.int64) % 1000))
    assert_equal(poptorch.inferenceModel(module, quiet_options())(x), module(x))


def test_a_loop_carries_int32():
    def hashed(x, factor):
        return poptorch.for_loop(5, lambda h: (h * factor + 12345) % 1000003, [x])[0]

    for factor in (7, 2**40 + 1):
        module = Applied(lambda x, factor=factor: hashed(x, factor))
        expected = X
        for _ in range(5):
            expected = (expected * factor + 12345) % 1000003
        assert_equal(poptorch.inferenceModel(module, quiet_options())(X), expected)
    module = Applied(lambda x: poptorch.for_loop(5, lambda h: h * 1000003, [x])[0] % 7)
    with pytest.raises(poptorch.Error, match="(?s)does not fit into int32.*test_integer_ranges.py"):
        poptorch.inferenceModel(module, quiet_options())(X)


def test_positions_of_64_bits():
    table = torch.arange(30.0).reshape(10, 3)
    module = Applied(lambda x: (F.embedding(x * 3**20 // 3**20 + 1, table), table[x * 2**40 >> 39]))
    assert_equal(poptorch.inferenceModel(module, quiet_options())(X), module(X))
    model = poptorch.inferenceModel(Applied(lambda x: table[x + 2**32]), quiet_options())
    with pytest.raises(poptorch.Error, match="index 429496729[67] .* out of range"):
        model(X)


def test_a_state_and_an_argument_that_int32_does_not_hold():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.tensor(2**31 - 3))

        def forward(self, x):
            self.count += 1
            x += 1
            return self.count * 2 // 4

    model, x = poptorch.inferenceModel(Counts(), quiet_options()), X.clone()
    assert [model(x).item() for _ in range(2)] == [2**30 - 1, 2**30 - 1] and x.equal(X + 2)
    with pytest.raises(poptorch.Error, match="the value 2147483648 does not fit into int32"):
        model(x)
    with pytest.raises(poptorch.Error, match="the value 2147483648 does not fit into int32"):
        poptorch.inferenceModel(Counts(), quiet_options())(torch.tensor([2**31 - 1]))


def test_small_ranges_stay_int32():
    def forward(x, mask):
        steps = torch.arange(4) * 3 + mask.long().cumsum(0)
        return steps + x.argmax(), (x > 1).sum() * 100, steps.clamp(max=2) ** 4

    x = torch.rand(4)
    model = poptorch.inferenceModel(Applied(forward), quiet_options())
    assert_equal(model(x, x > 0.5), forward(x, x > 0.5))
    assert "i64" not in model.ir("translate")


def test_results_that_int32_does_not_hold_are_errors(seed):
    for number in range(8):
        drawn = random.Random(f"{seed} {number}")
        steps, arguments = draw(drawn, 3), inputs(drawn)
        module = Expression(steps, lambda values: values[-1])
        expected, executor = module(*arguments), poptorch.inferenceModel(module, quiet_options())
        if is_held(expected):
            assert executor(*arguments).long().equal(expected), (steps, arguments)
            continue
        limits = (expected == 2**63 - 1) | (expected == -2**63)
        if is_held(expected.masked_fill(limits, 0)):
            continue  # the limits of int64 become those of int32
        with pytest.raises(poptorch.Error, match="(?s)does not fit into int32.*test_integer_"):
            executor(*arguments)
