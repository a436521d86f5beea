"""Products of matrices, large enough for the tile unit or small: accuracy, cuts, odd numbers."""

import numpy as np
import pytest
import torch

from poptorch import _C, Error
from tests.helpers import run_python
from tests.ops.sample import TORCH, from_host, to_host

# Whether a and b are column-major.
in_all_layouts = pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)


def matrix(rows, columns, turned, scale=1.0):
    """A random matrix, lying in memory by rows or (`turned`) by columns."""
    shape = (columns, rows) if turned else (rows, columns)
    values = np.random.default_rng(rows + columns).standard_normal(shape) * scale
    return values.astype("f4").T if turned else values.astype("f4")


def product(a, b, threads=1):
    return _C.evaluate("matmul", [a, b], threads=threads)[0]


def eager(a, b):
    return (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()


def assert_as_good_as_eager(ours, theirs, exact):
    limit = 4 * np.abs(theirs - exact).max() + 1e-6 * np.abs(exact).max()
    assert np.abs(ours - exact).max() <= limit


# Below, at and above the blocks that the kernel cuts m, n and k into.
SIZES = [(64, 128, 512), (128, 768, 256), (97, 801, 131), (300, 130, 1057), (255, 1600, 65)]


@in_all_layouts
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_accuracy(size, turned):
    m, k, n = size
    a, b = matrix(m, k, turned[0]), matrix(k, n, turned[1])
    exact = a.astype("f8") @ b.astype("f8")
    assert_as_good_as_eager(product(a, b), eager(a, b), exact)


@in_all_layouts
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "i8"])
def test_integers_wrap(dtype, turned, isa):
    info = np.iinfo(dtype)
    random = np.random.default_rng(0)
    for m, k, n in (37, 130, 70), (3, 40, 64), (5, 2500, 66):  # few rows and long sums, too
        a, b = (random.integers(info.min, info.max, size[::-1] if by_columns else size, dtype)
                for size, by_columns in zip([(m, k), (k, n)], turned, strict=True))
        a, b = (x.T if by_columns else x for x, by_columns in zip((a, b), turned, strict=True))
        with np.errstate(over="ignore"):
            assert np.array_equal(product(a, b), a @ b)


@pytest.mark.parametrize("scale", [1e-18, 1e18])
def test_magnitudes(scale):
    a, b = matrix(128, 256, False, scale), matrix(256, 128, False)
    exact = a.astype("f8") @ b.astype("f8")
    assert_as_good_as_eager(product(a, b), eager(a, b), exact)


def test_cancellation():
    """Sums whose terms are a million times larger than they are: the error is that of the terms."""
    a, b = matrix(128, 512, False), matrix(512, 128, False)
    a[:, 256:], b[256:] = -a[:, :256], b[:256]
    a[:, 0] += 1e-6
    exact = a.astype("f8") @ b.astype("f8")
    assert (np.abs(product(a, b) - exact) <= 2.0**-22 * (np.abs(a) @ np.abs(b))).all()


# Those at which BLAS libraries sum blocks of different sizes in different orders, and large ones.
# The sums of the last two are cut, those of the last one in blocks of rows and columns, too.
SIZES = [(300, 800, 1500), (512, 144, 16), (285, 388, 29), (72, 400, 81), (766, 1700, 212),
         (130, 5003, 67), (196, 2048, 512)]


@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("sizes", [*SIZES, (530, 1600, 1100)], ids=str)
def test_bits_do_not_depend_on_threads(sizes, turned):
    m, k, n = sizes
    a, b = matrix(m, k, turned[0]), matrix(k, n, turned[1])
    one = product(a, b, 1)
    for threads in (2, 3, 7):
        np.testing.assert_array_equal(product(a, b, threads), one)


@pytest.mark.sampled
@pytest.mark.parametrize("level", ["AVX2", "AVX512"])
def test_bits_do_not_depend_on_threads_on_other_processors(level):
    """The same where the BLAS takes its kernels for older processors, in a process of its own."""
    code = f"""
import numpy as np
from poptorch import _C
for m, k, n in {SIZES}:
    a, b = np.random.randn(m, k).astype("f4"), np.random.randn(n, k).astype("f4").T
    one = _C.evaluate("matmul", [a, b], threads=1)[0]
    print(all((_C.evaluate("matmul", [a, b], threads=n)[0] == one).all() for n in (2, 3, 7)))
"""
    words = run_python(code, MKL_ENABLE_INSTRUCTIONS=level, POPTORCH_OFF="bf16x3_gemm")
    assert words.split() == ["True"] * len(SIZES)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 3.0e38])
@pytest.mark.parametrize("side", [0, 1])
def test_numbers_without_parts(special, side):
    """They reach the elements that they reach in f32, and no others."""
    operands = [np.abs(matrix(128, 256, False)) + 1, np.abs(matrix(256, 128, False)) + 1]
    operands[side][70, 90] = special
    np.testing.assert_allclose(product(*operands), eager(*operands), rtol=1e-5)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (-0.5, 2.0), (2.0, 0.0)])
def test_addmm(alpha, beta):
    """With several blocks of k, `self` counts once; with beta = 0 it is not read."""
    a, b = matrix(96, 1700, False), matrix(1700, 100, False)
    added = matrix(96, 100, False) if beta else np.full((96, 100), np.nan, "f4")
    ours = _C.evaluate("addmm", [added, a, b], {"alpha": alpha, "beta": beta})[0]
    exact = alpha * (a.astype("f8") @ b.astype("f8"))
    if beta:
        exact += beta * added
    theirs = torch.addmm(*map(torch.from_numpy, (added, a, b)), alpha=alpha, beta=beta).numpy()
    assert_as_good_as_eager(ours, theirs, exact)


def test_sums_that_are_cut():
    """As good as eager's, scaled and added to what was there; beta = 0 does not read it."""
    a, b = matrix(250, 3001, True), matrix(3001, 70, False)
    exact = a.astype("f8") @ b.astype("f8")
    assert_as_good_as_eager(product(a, b, 2), eager(a, b), exact)
    for beta, added in ((2.0, matrix(250, 70, False)), (0.0, np.full((250, 70), np.nan, "f4"))):
        ours = _C.evaluate("addmm", [added, a, b], {"alpha": -0.5, "beta": beta}, threads=2)[0]
        expected = -0.5 * exact + (beta * added if beta else 0)
        theirs = torch.addmm(*map(torch.from_numpy, (added, a, b)), alpha=-0.5, beta=beta)
        assert_as_good_as_eager(ours, theirs.numpy(), expected)


@pytest.mark.parametrize("dtype", ["f2", "f4", "i4"])
def test_large_product_of_no_terms(dtype):
    a, b = np.zeros((1100, 0), dtype), np.zeros((0, 1000), dtype)
    np.testing.assert_array_equal(product(a, b, 2), np.zeros((1100, 1000), dtype))


# Below, at and above the vectors and the groups of rows of each instruction set.
SMALL_SIZES = [(16, 128, 128), (4, 1, 4), (5, 17, 7), (16, 512, 10), (33, 40, 57), (23, 8, 31)]


def assert_exact(size, turned):
    """Of whole numbers sums are exact in any order; beta = 2 adds what was there, 0 does not."""
    m, k, n = size
    a, b, added = (np.trunc(matrix(*sides, turn, 4.0)) for *sides, turn in
                   ((m, k, turned[0]), (k, n, turned[1]), (m, n, False)))
    exact = a.astype("f8") @ b.astype("f8")
    np.testing.assert_array_equal(product(a, b), exact)
    ours = _C.evaluate("addmm", [added, a, b], {"alpha": -0.5, "beta": 2.0})[0]
    np.testing.assert_array_equal(ours, 2 * added - 0.5 * exact)
    nothing = np.full_like(added, np.nan)
    ours = _C.evaluate("addmm", [nothing, a, b], {"alpha": 1.0, "beta": 0.0})[0]
    np.testing.assert_array_equal(ours, exact)


@pytest.mark.usefixtures("isa")
@in_all_layouts
@pytest.mark.parametrize("size", SMALL_SIZES, ids=str)
def test_small_products(size, turned, monkeypatch):
    monkeypatch.setenv("POPTORCH_ALGORITHM", "gemm:small")
    assert_exact(size, turned)


@pytest.mark.usefixtures("isa")
@in_all_layouts
@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("size", SMALL_SIZES, ids=str)
def test_small_products_of_halves(size, turned, name, monkeypatch):
    """The bits of the f32 product, rounded once."""
    monkeypatch.setenv("POPTORCH_ALGORITHM", "gemm:small")
    rows, depth, columns = size
    a, b, c = (torch.from_numpy(matrix(*shape)).to(TORCH[name])
               for shape in ((rows, depth, turned[0]), (depth, columns, turned[1]),
                             (1, columns, 0)))
    attrs = {"alpha": 0.5, "beta": 2.0}
    (ours,) = _C.evaluate("addmm", [to_host(x) for x in (c, a, b)], attrs)
    (wide,) = _C.evaluate("addmm", [x.float().numpy() for x in (c, a, b)], attrs)
    rounded = torch.from_numpy(wide).to(TORCH[name])
    assert torch.equal(from_host(ours, name if name == "bf16" else None), rounded)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("turned", [0, 1])
def test_small_products_of_numbers_without_an_end(turned):
    """Infinities and NaN reach their row and column and no others; beta = 0 reads nothing."""
    a, b = matrix(20, 64, False), np.abs(matrix(64, 9, turned))
    a[3, 5], a[7, 0] = np.inf, np.nan
    added = np.full((20, 9), np.nan, "f4")
    ours = _C.evaluate("addmm", [added, a, b], {"beta": 0.0})[0]
    expected = np.zeros(20)
    expected[3], expected[7] = np.inf, np.nan
    np.testing.assert_array_equal(ours - np.where(np.isfinite(ours), ours, 0),
                                  np.repeat(expected[:, None], 9, 1))


def test_small_products_are_as_good_as_eager():
    for seed in range(20):
        random = np.random.default_rng(seed)
        a, b = (random.standard_normal(shape).astype("f4") for shape in ((16, 256), (96, 256)))
        exact = a.astype("f8") @ b.T.astype("f8")
        assert_as_good_as_eager(product(a, b.T), eager(a, b.T), exact)


# Below, at and above the groups of rows, the vectors, the terms and the columns that these pack.
LOOP_SIZES = [(48, 0, 64), (48, 257, 64), (61, 300, 529), (50, 2, 45), (49, 700, 1040),
              (260, 512, 33), (64, 5000, 48)]


@pytest.mark.sampled
@pytest.mark.usefixtures("loops")
@in_all_layouts
@pytest.mark.parametrize("size", LOOP_SIZES, ids=str)
def test_products_by_loops(size, turned):
    assert_exact(size, turned)


@pytest.mark.usefixtures("loops")
def test_bits_of_loops_depend_on_nothing_around():
    """Neither on the number of threads nor on the other rows and columns."""
    a, b = matrix(131, 700, False), matrix(700, 1100, True)
    whole = product(a, b)
    for threads in (2, 3, 7):
        np.testing.assert_array_equal(product(a, b, threads), whole)
    np.testing.assert_array_equal(product(a[7:60], b), whole[7:60])
    np.testing.assert_array_equal(product(a, b[:, 40:90]), whole[:, 40:90])


@pytest.mark.usefixtures("loops")
def test_loops_are_as_good_as_eager():
    for m, k, n in ((256, 768, 300), (48, 40_000, 40)):
        a, b = matrix(m, k, True), matrix(k, n, True)
        exact = a.astype("f8") @ b.astype("f8")
        assert_as_good_as_eager(product(a, b, 2), eager(a, b), exact)


@pytest.mark.usefixtures("loops")
def test_numbers_without_an_end_in_loops():
    """Infinities and NaN reach their row and no others."""
    a, b = matrix(70, 300, False), np.abs(matrix(300, 90, True)) + 1
    a[3, 5], a[69, 299] = np.inf, np.nan
    ours = product(a, b)
    assert (ours[3] == np.inf).all()
    assert np.isnan(ours[69]).all()
    assert np.isfinite(np.delete(ours, [3, 69], axis=0)).all()


@pytest.mark.sampled
def test_what_computes_products_is_chosen():
    code = """
import poptorch
from poptorch import _C
try:
    print(_C.gemm_by())
except poptorch.Error as error:
    print(error)
"""
    for name in ("loops", "library"):
        assert run_python(code, POPTORCH_GEMM=name).strip() == name
    assert run_python(code, POPTORCH_GEMM="").strip() in ("loops", "library")
    words = run_python(code, POPTORCH_GEMM="gpu")
    assert '[POPTORCH_GEMM] matrix products by "gpu": there are "loops"' in words
    with pytest.raises(Error, match="POPTORCH_GEMM"):
        _C.set_gemm("gpu")


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_products_that_share_the_right_hand_matrix(seed, dtype):
    """Whichever dimensions are the batch, in whatever order they lie: rows are rows."""
    rng = np.random.default_rng(seed)
    tolerance = {"f32": 1e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 1.6e-2}[dtype]
    for _ in range(60):
        rank = int(rng.integers(1, 4))
        sizes = [int(rng.choice([1, 2, 3, 5, 17])) for _ in range(rank)]
        k, n = int(rng.integers(1, 40)), int(rng.integers(1, 40))
        order = rng.permutation(rank)
        a = torch.from_numpy(rng.standard_normal([*(sizes[d] for d in order), k]))
        a = a.to(TORCH[dtype]).permute(*np.argsort(order).tolist(), rank)
        shared = [size if rng.random() < 0.2 else 1 for size in sizes[:-1]]
        b = torch.from_numpy(rng.standard_normal([*shared, k, n])).to(TORCH[dtype])
        b = b.expand(*sizes[:-1], k, n)
        operands, threads = [to_host(a), to_host(b)], int(rng.integers(1, 3))
        (ours,) = _C.evaluate("matmul", operands, threads=threads)
        exact = a.double() @ b.double()
        error = (from_host(ours, dtype).double() - exact).abs().max()
        assert error <= tolerance * exact.abs().max(), (a.shape, a.stride(), b.shape, b.stride())
