"""Random regions of mixed dtypes: the bits of their ops one by one, in any block and place."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from poptorch import _C
from tests.ops.sample import NAMES, TORCH, from_host, to_host

RNG = torch.tensor([1, 2, 0, 3], dtype=torch.int32)
FLOATS = ["f16", "bf16", "f32", "f64"]
WHOLE = ["u8", "i32", "i64"]
DTYPES = [*FLOATS, *WHOLE, "bool"]
UNARY = {
    "neg": FLOATS + WHOLE, "abs": FLOATS + WHOLE, "relu": FLOATS + WHOLE, "sqrt": FLOATS,
    "tanh": FLOATS, "sigmoid": FLOATS, "exp": FLOATS, "gelu": FLOATS, "floor": FLOATS,
    "bitwise_not": [*WHOLE, "bool"], "logical_not": DTYPES, "isnan": FLOATS + WHOLE,
}
BINARY = {
    "add": DTYPES, "sub": FLOATS + WHOLE, "mul": DTYPES, "maximum": FLOATS + WHOLE, "div": FLOATS,
    "pow": FLOATS, "gelu_backward": FLOATS, "tanh_backward": FLOATS, "lt": DTYPES, "eq": DTYPES,
    "bitwise_xor": [*WHOLE, "bool"], "logical_and": DTYPES,
}
TO_BOOL = {"logical_not", "isnan", "lt", "eq", "logical_and"}
ONES = [(1, 1), (1,), ()]


@dataclass
class Value:
    dtype: str
    is_full: bool
    is_single: bool
    is_operand: bool


class Program:
    """A random region: operands, and entries on them and on each other."""

    def __init__(self, rng, rows, columns, dtypes):
        self.rng, self.sizes, self.dtypes = rng, (rows, columns), dtypes
        self.operands, self.values, self.body, self.read = [], [], [], set()
        kinds = [self.sizes, self.sizes, (columns,), (rows, 1), (1, columns), *ONES]
        # Operands of few kinds and dtypes have many registers of one kind.
        self.kinds = ONES if rng.random() < 0.4 else [
            kinds[i] for i in rng.integers(len(kinds), size=rng.integers(1, 7))]
        if rng.random() < 0.5:
            dtypes = [str(rng.choice(dtypes)), "bool"]
        for _ in range(int(rng.integers(3, 16))):
            self.add_operand(str(rng.choice(dtypes)))
        self.add_operand(str(rng.choice(dtypes)), self.sizes)
        self.random_state = len(self.values)
        self.operands.append(RNG)
        self.values.append(Value("random", False, False, True))
        for _ in range(int(rng.integers(2, 25))):
            self.add_entry()

    def add_operand(self, dtype, shape=None):
        shape = self.kinds[self.rng.integers(len(self.kinds))] if shape is None else shape
        swap = len(shape) == 2 and self.rng.random() < 0.2
        x = torch.randn(shape[::-1] if swap else shape, dtype=torch.float64) * 3
        x = x > 0 if dtype == "bool" else x.abs() if dtype == "u8" else x
        x = x.to(TORCH[dtype])
        self.operands.append(x.T if swap else x)
        full = tuple(shape) == self.sizes
        self.values.append(Value(dtype, full, x.numel() == 1, True))

    def pick(self, wanted):
        """One of the values, often one that was not read before or the newest."""
        found = [i for i, value in enumerate(self.values) if wanted(value)]
        fresh = [i for i in found if i not in self.read]
        if fresh and self.rng.random() < 0.5:
            found = fresh
        elif found and self.rng.random() < 0.5:
            found = found[-1:]
        self.read.update(picked := [int(self.rng.choice(found))] if found else [])
        return picked[0] if picked else None

    def add_entry(self):
        kinds = ["unary", "masked_fill", "cast", "dropout", *["binary"] * 2, *["where"] * 3]
        entry, dtype = getattr(self, str(self.rng.choice(kinds)))(self.pick(lambda v: v.is_full))
        if entry is not None:
            self.body.append(entry)
            self.values.append(Value(dtype, True, False, False))

    def unary(self, x):
        dtype = self.values[x].dtype
        name = str(self.rng.choice([name for name in UNARY if dtype in UNARY[name]]))
        return [name, x], "bool" if name in TO_BOOL else dtype

    def binary(self, x):
        dtype = self.values[x].dtype
        name = str(self.rng.choice([name for name in BINARY if dtype in BINARY[name]]))
        pair = [x, self.pick(lambda v: v.dtype == dtype)]
        if self.rng.random() < 0.5:
            pair.reverse()
        is_scaled = name in ("add", "sub") and dtype in FLOATS and self.rng.random() < 0.3
        return [name, *pair, *(["alpha", 0.3] if is_scaled else [])], (
            "bool" if name in TO_BOOL else dtype)

    def where(self, x):
        dtype = self.values[x].dtype
        condition = self.pick(lambda v: v.dtype == "bool")
        y = self.pick(lambda v: v.dtype == dtype)
        if condition is None:
            return None, None
        return ["where", condition, *((x, y) if self.rng.random() < 0.5 else (y, x))], dtype

    def masked_fill(self, x):
        dtype = self.values[x].dtype
        mask = self.pick(lambda v: v.dtype == "bool")
        number = self.pick(lambda v: v.dtype == dtype and v.is_single)
        if mask is None or number is None:
            return None, None
        return ["masked_fill", x, mask, number], dtype

    def cast(self, x):
        value = self.values[x]
        # Large floats have no whole number: what they become is not defined.
        to = DTYPES if value.is_operand or value.dtype not in FLOATS else [*FLOATS, "bool"]
        dtype = str(self.rng.choice([name for name in to if name in {*self.dtypes, "f32", "bool"}]))
        return ["cast", x, "dtype", _C.DType(dtype)], dtype

    def dropout(self, x):
        dtype = self.values[x].dtype
        if dtype not in ("f16", "bf16", "f32"):
            return None, None
        return ["dropout", x, self.random_state, "p", 0.25, "salt", len(self.body)], dtype

    def places(self, out):
        """For each result an operand whose memory it may take, or -1."""
        taken, places = set(), []
        for number in out:
            later = {i for entry in self.body[number - len(self.operands) + 1:] for i in entry[1:4]
                     if isinstance(i, int)}
            free = [i for i, x in enumerate(self.operands)
                    if i not in later | taken and self.values[i].is_full and x.is_contiguous()
                    and self.values[i].dtype == self.values[number].dtype]
            places.append(int(self.rng.choice([-1, *free])))
            taken.add(places[-1])
        return places


def one_by_one(program):
    """The results of all entries, each op called by itself."""
    values = [to_host(x) for x in program.operands]
    for name, *rest in program.body:
        numbers = [item for item in rest[:3] if isinstance(item, int)]
        words = rest[len(numbers):]
        attrs = dict(zip(words[::2], words[1::2], strict=True))
        result = _C.evaluate(name, [values[i] for i in numbers], attrs)[0]
        values.append((result, "bf16") if result.dtype == np.uint16 else result)
    return [value[0] if isinstance(value, tuple) else value for value in values]


def assert_same(result, expected, dtype, words):
    """Equal values, the sign of 0 included; any NaN is as good as another."""
    result, expected = from_host(result, dtype), from_host(expected, dtype)
    same = (result == expected) & (result.signbit() == expected.signbit())
    assert (same | result.isnan() & expected.isnan()).all(), words


def check(program, rng):
    first = len(program.operands)
    out = sorted({len(program.values) - 1,
                  *rng.integers(first, len(program.values), 3).tolist()})
    expected = one_by_one(program)
    operands = [to_host(x) for x in program.operands]
    attrs = {"body": program.body, "out": out}
    shapes = [(NAMES[x.dtype], tuple(x.shape), x.stride()) for x in program.operands]
    for threads, places in ((1, []), (2, []), (1, program.places(out))):
        results = _C.evaluate("fused", operands, attrs, threads=threads, inplace=places)
        for number, result in zip(out, results, strict=True):
            words = (f"value {number} of {shapes}, body {program.body}, out {out}, "
                     f"threads {threads}, places {places}")
            assert_same(result, expected[number], program.values[number].dtype, words)


SIZES = [(1, 63), (1, 64), (64, 1), (1, 65), (1, 127), (2, 64), (3, 43), (1, 257), (16, 16), (5, 3),
         (1, 1023), (7, 768), (300, 10), (1, 8193)]


@pytest.mark.sampled
@pytest.mark.parametrize("dtypes", [["f16", "bool"], ["bf16", "bool"], ["f32", "bool"],
                                    ["f16", "bf16", "f32", "bool"], DTYPES],
                         ids=lambda dtypes: "-".join(dtypes))
def test_random_regions(dtypes, isa, seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        rows, columns = SIZES[rng.integers(len(SIZES))]
        program = Program(rng, rows, columns, dtypes)
        if program.body:
            check(program, rng)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_single_value_outlives_the_step_that_reads_it(isa, dtype):
    """Five single 16-bit floats are more than keep a register: the last one's came too early."""
    mask, x = torch.rand(64) > 0.5, torch.randn(64).to(TORCH[dtype])
    mask[0] = True  # the first element written is none of the single values
    singles = torch.randn(5, 1).to(TORCH[dtype])
    a, b, c, d, e = singles
    body = [["mul", 1, 2], ["add", 7, 3], ["mul", 8, 4], ["add", 9, 5], ["where", 0, 10, 6]]
    (result,) = _C.evaluate("fused", [to_host(t) for t in (mask, x, *singles)],
                            {"body": body, "out": [11]})
    expected = torch.where(mask, (x * a + b) * c + d, e)
    assert torch.equal(from_host(result, dtype), expected)
