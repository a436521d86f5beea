"""A region gives the bits of its ops one by one, whatever block, threads and instruction set."""

import numpy as np
import pytest
import torch

from poptorch import _C
from tests.ops.sample import TORCH, from_host, to_host

RNG = np.array([1, 2, 0, 3], np.int32)
UNARY = ["relu", "tanh", "gelu", "neg", "exp", "sigmoid"]
BINARY = ["add", "sub", "mul", "maximum", "gelu_backward", "tanh_backward"]


def operands_of(rng, sizes, dtype):
    """Operands of all kinds: whole, by rows, by columns, single, with strides."""
    rows, columns = sizes
    shapes = [sizes, sizes, (columns,), (rows, 1), (), (1, columns)]
    arrays = [rng.standard_normal(shape) for shape in shapes]
    arrays.append(rng.standard_normal((columns, rows)).T)
    return [to_host(torch.from_numpy(np.asarray(x)).to(TORCH[dtype])) for x in arrays]


def random_body(rng, count):
    """Entries on ``count`` operands and the random state behind them."""
    body = [["add", 0, 1]]
    for _ in range(rng.integers(3, 20)):
        known = count + 1 + len(body)
        wide = int(rng.choice([0, 1, *range(count + 1, known)]))
        kind = rng.choice(["unary", "binary", "scaled", "dropout"])
        if kind == "unary":
            body.append([str(rng.choice(UNARY)), wide])
        elif kind == "dropout":
            body.append(["dropout", wide, count, "p", 0.25, "salt", len(body)])
        else:
            other = int(rng.choice([i for i in range(known) if i != count]))
            pair = [wide, other] if rng.random() < 0.5 else [other, wide]
            name = str(rng.choice(BINARY)) if kind == "binary" else "add"
            body.append([name, *pair, *(["alpha", 0.3] if kind == "scaled" else [])])
    return body


def one_by_one(body, operands):
    """The results of all entries, each op called by itself."""
    values = list(operands)
    for name, *rest in body:
        numbers = [item for item in rest if isinstance(item, int)][: 1 if name in UNARY else 2]
        words = rest[len(numbers):]
        attrs = dict(zip(words[::2], words[1::2], strict=True))
        result = _C.evaluate(name, [values[i] for i in numbers], attrs)[0]
        values.append((result, "bf16") if result.dtype == np.uint16 else result)
    return values[len(operands):]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("sizes", [(7, 768), (300, 10), (3, 1000), (1, 5000), (5, 3)], ids=str)
def test_bits(sizes, dtype, isa, seed):
    rng = np.random.default_rng(seed)
    for _ in range(5):
        operands = [*operands_of(rng, sizes, dtype), RNG]
        body = random_body(rng, len(operands) - 1)
        expected = one_by_one(body, operands)
        out = sorted({len(body) - 1, *rng.integers(0, len(body), 3).tolist()})
        attrs = {"body": body, "out": [len(operands) + i for i in out]}
        for threads in (1, 3):
            results = _C.evaluate("fused", operands, attrs, threads=threads)
            for i, result in zip(out, results, strict=True):
                one = expected[i][0] if dtype == "bf16" else expected[i]
                assert result.tobytes() == one.tobytes(), (threads, i, body)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_rounding_inside_a_region(isa, name):
    """All magnitudes: sums that are ties, products that overflow or become subnormal, NaN."""
    bits = torch.randint(-2**15, 2**15 - 1, (2, 100_000)).short().view(TORCH[name])
    operands = [to_host(x) for x in bits]
    body = [["mul", 0, 1], ["add", 2, 0], ["neg", 3], ["sub", 4, 1]]
    (result,) = _C.evaluate("fused", operands, {"body": body, "out": [5]})
    result = from_host(result, name if name == "bf16" else None)
    expected = -(bits[0] * bits[1] + bits[0]) - bits[1]
    assert expected.isnan().any() and expected.isinf().any()
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


def test_casts_among_halves(isa):
    x, whole, condition = torch.randn(40, 50), torch.randint(-9, 9, (40, 50)), torch.rand(50) < 0.5
    x = x.half()
    dtypes = [_C.DType(name) for name in ("f32", "f16", "bf16", "i64")]
    casts = [["cast", operand, "dtype", dtype]
             for operand, dtype in zip((0, 1, 3, 4), dtypes, strict=True)]
    body = [*casts, ["cast", 5, "dtype", dtypes[0]], ["where", 2, 7, 3], ["lt", 3, 7]]
    attrs = {"body": body, "out": [4, 5, 6, 8, 9]}
    results = _C.evaluate("fused", [to_host(t) for t in (x, whole, condition)], attrs)
    wide, rounded = x.float(), x.float().bfloat16()
    expected = [whole.half(), rounded, whole, torch.where(condition, rounded.float(), wide),
                wide < rounded.float()]
    for array, one in zip(results, expected, strict=True):
        result = from_host(array, "bf16" if one.dtype is torch.bfloat16 else None)
        assert result.dtype == one.dtype
        assert torch.equal(result, one)


def test_a_result_takes_the_place_of_an_operand():
    x, y = np.random.default_rng(0).standard_normal((2, 3000)).astype(np.float32)
    attrs = {"body": [["add", 0, 1], ["mul", 2, 1], ["relu", 2]], "out": [3, 4]}
    expected = _C.evaluate("fused", [x, y], attrs)
    for inplace in ([1, 0], [0, -1], [-1, 1]):
        results = _C.evaluate("fused", [x, y], attrs, inplace=inplace)
        assert [a.tobytes() for a in results] == [a.tobytes() for a in expected]
