"""Each algorithm of matrix products, forced on problems of all forms, compared with eager."""

import numpy as np
import pytest
import torch

import poptorch
from poptorch import _C, Error
from tests.ops.sample import NAMES, TORCH, from_host, to_host
from tests.run.drive import Driver

ALGORITHMS = [name for family, name, _ in _C.algorithms() if family == "gemm"]
FLOATS = ["f32", "f64", "f16", "bf16"]
INTEGERS = ["u8", "i8", "i16", "i32", "i64"]
UNITS = {"bf16x3": _C.has_bf16x3_gemm}

# Another algorithm computes what this one does not, and would be tested twice.
TYPES = {"bf16_unit": ["bf16"], "bf16_loops": ["bf16"], "float16_blocks": ["f16", "bf16"],
         "blas": FLOATS, "split_k": FLOATS, "loops": FLOATS + INTEGERS}
PAIRS = [(name, dtype) for name in ALGORITHMS
         for dtype in TYPES.get(name, ["f32", "f16", "bf16"])]

# Below, at and above what the algorithms cut m, k and n into; sums longer than a block of k.
SIZES = [(1, 1, 1), (3, 95, 14), (4, 7, 5), (12, 16, 32), (16, 64, 128), (33, 130, 57),
         (49, 257, 70), (3, 513, 40), (64, 4100, 2), (70, 40, 516)]


@pytest.fixture
def force(monkeypatch):
    """Forces an algorithm wherever it applies; skips a test of one whose unit is missing."""

    def use(name):
        if name in UNITS and not UNITS[name]():
            pytest.skip("the processor has no such unit")
        monkeypatch.setenv("POPTORCH_ALGORITHM", f"gemm:{name}")

    return use


of_each = pytest.mark.parametrize(("name", "dtype"), PAIRS)


def number(random, sizes, dtype):
    """A random tensor."""
    if dtype in INTEGERS:
        return torch.from_numpy(random.integers(0 if dtype == "u8" else -100, 100, sizes)).to(
            TORCH[dtype])
    return torch.from_numpy(random.standard_normal(sizes)).to(TORCH[dtype])


def lying(random, rows, columns, dtype, turned, gap=0):
    """A random matrix that lies by rows or (`turned`) by columns, with gaps between them."""
    lines, length = (columns, rows) if turned else (rows, columns)
    values = number(random, (lines, length + gap), dtype)[:, :length]
    return values.T if turned else values


def assert_right(ours, operands, exact, eager, alpha=1):
    """Integers are equal; an error of floats is at most four times eager's largest one, or a few
    roundings of the terms, of which `exact` has some, too, where it is as wide."""
    dtype = eager.dtype
    if not dtype.is_floating_point:
        assert torch.equal(ours, eager)
        return
    terms = abs(alpha) * (operands[-2].double().abs() @ operands[-1].double().abs())
    part = 0.05 if dtype.itemsize == 2 else 4  # of 16 bits the result is rounded, not the sum
    limit = 4 * (eager.double() - exact).abs().max() + part * torch.finfo(dtype).eps * terms.max()
    assert (ours.double() - exact).abs().max() <= limit


def check_product(a, b, threads=1):
    (ours,) = _C.evaluate("matmul", [to_host(a), to_host(b)], threads=threads)
    assert_right(from_host(ours, NAMES[a.dtype]), (a, b), a.double() @ b.double(), a @ b)


@of_each
def test_products(force, name, dtype, seed):
    """In all layouts, with and without gaps between lines."""
    force(name)
    random = np.random.default_rng(seed)
    layouts = [(0, 0), (0, 1), (1, 0), (1, 1)]
    for m, k, n in SIZES:
        some = layouts if m * n * k < 1 << 16 else [layouts[i] for i in random.integers(0, 4, 1)]
        for turned_a, turned_b in some:
            gap = int(random.integers(0, 4))
            a, b = (lying(random, m, k, dtype, turned_a, gap),
                    lying(random, k, n, dtype, turned_b, gap))
            check_product(a, b, int(random.integers(1, 4)))


@of_each
def test_products_over_nothing_and_of_nothing(force, name, dtype):
    force(name)
    for m, k, n in ((0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)):
        a, b = number(np.random.default_rng(0), (m, k), dtype), torch.ones(k, n, dtype=TORCH[dtype])
        (ours,) = _C.evaluate("matmul", [to_host(a), to_host(b)], threads=2)
        assert torch.equal(from_host(ours, dtype), torch.zeros(m, n, dtype=TORCH[dtype]))


@of_each
def test_scaled_products_that_are_added(force, name, dtype, seed):
    """alpha and beta; with beta = 0 what is added is not read."""
    force(name)
    random = np.random.default_rng(seed)
    for m, k, n in SIZES[:7]:
        for alpha, beta, is_row in ((1, 1, True), (-2, 3, False), (2, 0, False)):
            turned = random.integers(0, 2, 2)
            a, b = lying(random, m, k, dtype, turned[0]), lying(random, k, n, dtype, turned[1])
            added = lying(random, 1 if is_row else m, n, dtype, 0)
            if beta == 0 and dtype in FLOATS:
                added = torch.full_like(added, torch.nan)
            attrs = {"alpha": float(alpha), "beta": float(beta)}
            operands = [added[0] if is_row else added, a, b]
            (ours,) = _C.evaluate("addmm", [to_host(x) for x in operands], attrs, threads=2)
            exact = alpha * (a.double() @ b.double()) + (beta * added.double() if beta else 0)
            eager = torch.addmm(*operands, alpha=alpha, beta=beta)
            assert_right(from_host(ours, dtype), operands, exact, eager, alpha)


@of_each
def test_batches_of_random_sizes(force, name, dtype, seed):
    """Operands of a batch lie in any order, or are one for all of it."""
    force(name)
    random = np.random.default_rng(seed)
    for _ in range(12):
        batch = [int(x) for x in random.choice([1, 2, 3], 2)]
        m, k, n = (int(random.choice([1, 2, 5, 17, 40])) for _ in range(3))
        line = int(random.integers(2, 4))  # of m and k one has its numbers side by side
        order = [*(d for d in random.permutation(4).tolist() if d != line), line]
        sizes = [*batch, m, k]
        a = number(random, [sizes[d] for d in order], dtype).permute(*np.argsort(order).tolist())
        b = number(random, [*batch[int(random.integers(0, 3)):], n, k], dtype).mT
        check_product(a, b, int(random.integers(1, 4)))


@of_each
def test_bits_do_not_depend_on_threads(force, name, dtype, seed):
    force(name)
    random = np.random.default_rng(seed)
    for m, k, n in ((97, 1100, 40), (16, 5000, 24), (130, 96, 140), (2000, 70, 9)):
        operands = [to_host(lying(random, m, k, dtype, 1)), to_host(lying(random, k, n, dtype, 0))]
        one, *others = (from_host(_C.evaluate("matmul", operands, threads=threads)[0], dtype)
                        for threads in (1, 2, 5))
        assert all(torch.equal(other, one) for other in others)


def chosen(dtype, m, k, n, turned=False):
    """The attribute of a compiled product, whose result is compared, too.

    ``turned``: b is column-major.
    """
    b_type = f"{dtype}[{k},{n}]"
    of_b = f'stream_in {{stream="b"}} : {b_type}'
    if turned:
        of_b = f'stream_in {{stream="b"}} : {dtype}[{n},{k}]\n  %b = view %lying : {b_type}(1,{k})'
    driver = Driver(f"""
graph main {{
  %a = stream_in {{stream="a"}} : {dtype}[{m},{k}]
  {"%lying" if turned else "%b"} = {of_b}
  %c = matmul %a, %b : {dtype}[{m},{n}]
  stream_out %c {{stream="c"}}
  output
}}
""")
    a = torch.ones((m, k), dtype=TORCH[dtype])
    b = torch.ones((n, k) if turned else (k, n), dtype=TORCH[dtype])
    assert (driver(a=a, b=b)["c"] == k).all()
    (line,) = (line for line in driver.executable.ir("plan").splitlines() if " matmul " in line)
    names = {name for name in ALGORITHMS if f'algorithm="{name}"' in line}
    assert len(names) == 1
    report = driver.executable.op_report(algorithms=True)["forward"]
    assert report == {f"matmul [{next(iter(names))}]": 1}
    return names.pop()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_forced_algorithm_is_the_one_that_runs(force, name):
    force(name)
    found = {chosen(dtype, 20, 24, 12) for dtype in ("f32", "bf16")}
    if name in ("bf16_unit", "bf16_loops") and name not in found:
        pytest.skip("no products of bfloat16 numbers: of PyTorch's BLAS, or of the processor")
    assert name in found


def test_what_is_chosen_by_itself(monkeypatch):
    """Facts of correctness, and costs that hold on every processor."""
    monkeypatch.delenv("POPTORCH_ALGORITHM", raising=False)
    assert chosen("i32", 20, 24, 12) == "loops"
    assert chosen("f64", 20, 24, 12) == "blas"
    assert chosen("f32", 16, 8192, 16) == "split_k"
    if _C.isa() != "base":
        assert chosen("f32", 20, 24, 12) == "small"
    monkeypatch.setenv("POPTORCH_OFF", "split_k,small_gemm,blocked_gemm")
    assert {chosen("f32", 16, 8192, 16), chosen("f32", 20, 24, 12)} == {"blas"}


def test_nothing_is_packed_for_few_rows_or_columns(monkeypatch):
    """However large the product is; where the BLAS was written for the processor, it computes."""
    if _C.isa() == "base":
        pytest.skip("no loops for this instruction set")
    monkeypatch.delenv("POPTORCH_ALGORITHM", raising=False)
    sizes = (16, 512, 2048), (2048, 512, 15), (100_000, 16, 2)
    for by, is_small in (("loops", True), ("library", False)):
        monkeypatch.setenv("POPTORCH_GEMM", by)
        assert {chosen("f32", *each) == "small" for each in sizes} == {is_small}


def test_sums_of_few_terms_are_left_to_the_blas(monkeypatch):
    """What would be packed or turned is hardly read again."""
    if _C.isa() == "base":
        pytest.skip("no loops for this instruction set")
    monkeypatch.delenv("POPTORCH_ALGORITHM", raising=False)
    monkeypatch.setenv("POPTORCH_GEMM", "loops")
    few = (1024, 1, 1024, False), (4096, 3, 64, True), (4096, 8, 16, True)
    assert {chosen("f32", *each) for each in few} == {"blas"}
    others = (1024, 8, 1024, False), (4096, 32, 64, True), (300, 3, 300, True)
    assert "blas" not in {chosen("f32", *each) for each in others}


@pytest.mark.parametrize("by", ["loops", "library"])
def test_few_long_sums_are_split(monkeypatch, by):
    """As gradients of the weights of 1x1 convolutions have them; many sums suffice for threads."""
    monkeypatch.delenv("POPTORCH_ALGORITHM", raising=False)
    monkeypatch.setenv("POPTORCH_GEMM", by)
    assert chosen("f32", 64, 8192, 256) == "split_k"
    assert chosen("f32", 1024, 8192, 1024) != "split_k"


def test_an_algorithm_that_does_not_apply_is_not_forced(monkeypatch):
    monkeypatch.setenv("POPTORCH_ALGORITHM", "gemm:small")
    assert chosen("i64", 20, 24, 12) == "loops"


@pytest.mark.parametrize("name", ["small", "blocked", "blas"])
def test_bias_and_activation_of_a_product(force, name):
    """A 1x1 convolution of channels-last images is a product whose result gets both."""
    force(name)
    module = torch.nn.Sequential(torch.nn.Conv2d(24, 40, 1), torch.nn.ReLU()).eval()
    x = torch.randn(2, 24, 9, 7).to(memory_format=torch.channels_last)
    model = poptorch.inferenceModel(module)
    torch.testing.assert_close(model(x), module(x), rtol=1e-5, atol=1e-5)


def test_rows_of_a_batch_that_lie_by_columns_are_one_product():
    """Of [k, batch, m] as [batch, m, k]: too large to be small, as single products would be."""
    text = """
graph main {
  %a = stream_in {stream="a"} : f32[64,32,16]
  %at = view %a : f32[32,16,64](16,1,512)
  %b = stream_in {stream="b"} : f32[64,64]
  %c = matmul %at, %b : f32[32,16,64]
  stream_out %c {stream="c"}
  output
}
"""
    driver = Driver(text)
    a, b = torch.randn(64, 32, 16), torch.randn(64, 64)
    torch.testing.assert_close(driver(a=a, b=b)["c"][0], a.permute(1, 2, 0) @ b)
    assert 'algorithm="small"' not in driver.executable.ir("plan")


def test_unknown_algorithms_are_named(monkeypatch):
    monkeypatch.setenv("POPTORCH_ALGORITHM", "gemm:fast")
    with pytest.raises(Error, match=r'\[POPTORCH_ALGORITHM\] "gemm:fast" is no algorithm.*gemm:'):
        chosen("f32", 2, 2, 2)
