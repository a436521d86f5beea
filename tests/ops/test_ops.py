"""Every row of the op table against PyTorch on the CPU, from the samples of its family."""

import importlib
from pathlib import Path

import pytest
import torch

from poptorch import _C
from poptorch.errors import Error
from tests.helpers import check_equal_bits, check_op_sample
from tests.ops.sample import FLOATS, NAMES, ROWS, evaluate, expected, infer, to_attrs, to_host

FAMILIES = [importlib.import_module(f"tests.ops.samples.{path.stem}")
            for path in sorted((Path(__file__).parent / "samples").glob("*.py"))]
SAMPLES = [sample for family in FAMILIES for sample in family.SAMPLES]
BADS = [bad for family in FAMILIES for bad in family.BADS]

WITHOUT_SAMPLES = {
    "constant": "data, not computation", "state": "data, not computation",
    "input": "data, not computation", "assign": "the engine binds states",
    "stream_in": "the engine streams", "stream_out": "the engine streams",
    "loop": "the engine loops", "view": "an alias, made and tested by the pass",
    "all_reduce": "the engine reduces over replicas",
    "strategy": "the partition, not computation",
    "tensor_location": "the partition, not computation", "ipu_copy": "an alias, tested with place",
    "remote_store": "an alias, tested with place", "remote_load": "an alias, tested with place",
    "aten": "tests/kernels/test_aten_opaque.py has its own cases",
}
# One rounding to a 16-bit float: relative, and absolute (half the smallest subnormal).
ROUNDING = {"f16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134)}
F64_TOLERANCE = 1e-11
FEW = 16  # different numbers


@pytest.fixture(autouse=True)
def one_thread():
    """References run on one thread: their own parallelism costs more than it saves here."""
    torch.set_num_threads(1)


def by_id(cases):
    """Parameters of a test, named by the cases; equal names get a number."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.id)


def is_rounded(ours, exact, eager32, dtype):
    """Whether ``ours`` is at most one rounding to ``dtype`` off a result that the rule allows."""
    relative, absolute = ROUNDING[dtype]
    rounded = exact.to(ours.dtype)
    finite = torch.isfinite(exact) & torch.isfinite(rounded)
    if not torch.equal(ours[~finite].nan_to_num(), rounded[~finite].nan_to_num()):
        return False
    exact, eager32 = exact[finite], eager32.double()[finite]
    if exact.numel() == 0:
        return True
    rule = 4 * (eager32 - exact).abs().max() + 1e-6 * exact.abs().max()
    error = (ours.double()[finite] - exact).abs()
    return bool((error <= relative * exact.abs() + absolute + rule * (1 + relative)).all())


def with_more_draws(sample, index, values, dtype):
    """The triple (ours, eager f32, exact) of one result, joined with those of other operands.

    Of one number eager's error can be far below what it usually is, by luck; so a rule about few
    different numbers is about those of several draws.
    """
    draws = [values]
    for _ in range(7):
        operands = sample.operands(dtype)
        results = (evaluate(sample, operands, dtype), expected(sample, operands, "f32"),
                   expected(sample, operands, "f64"))
        draws.append([result[index] for result in results])
    return [torch.cat([x.reshape(-1) for x in column]) for column in zip(*draws)]


def check_float_result(sample, index, values, dtype):
    """The rule of the dtype, for the triple (ours, eager f32, exact) of one result."""
    def check(ours, narrow, wide):
        name = f"result {index}"
        if dtype == "f32":
            check_op_sample(ours, narrow, wide, name)
        elif dtype == "f64":
            size = wide[wide.isfinite()].abs().max().item() if wide.isfinite().any() else 0.0
            torch.testing.assert_close(ours, wide, rtol=0, atol=F64_TOLERANCE * size,
                                       equal_nan=True)
        else:
            assert is_rounded(ours, wide, narrow, dtype), f"{name}: {ours}, expected {wide}"

    try:
        check(*values)
    except AssertionError:
        if values[2].unique().numel() > FEW:
            raise
        check(*with_more_draws(sample, index, values, dtype))


def check_values(sample, operands, results, dtype):
    """Results against the reference, by the numeric rule of their dtype."""
    if sample.check is not None:
        sample.check(operands, results)
        return
    exact = expected(sample, operands, "f64")
    eager32 = expected(sample, operands, "f32")
    assert len(results) == len(exact)
    for i, (ours, wide, narrow) in enumerate(zip(results, exact, eager32, strict=True)):
        if wide is None:
            continue
        name = f"result {i}"
        assert ours.shape == wide.shape, f"{name}: {ours.shape}, expected {wide.shape}"
        if not ours.is_floating_point():
            check_op_sample(ours, narrow, wide, name)
        else:
            check_float_result(sample, i, (ours, narrow, wide), dtype)


def has_floats(operands):
    """Whether the choice of a floating-point dtype changes the operands."""
    return any(x is not None and x.is_floating_point() for x in operands)


@pytest.mark.parametrize("dtype", FLOATS)
@by_id(SAMPLES)
def test_values(case, dtype):
    if dtype not in case.dtypes:
        pytest.skip("the sample says that it has no such dtype")
    operands = case.operands(dtype)
    if dtype != "f32" and not has_floats(operands) and torch.float32 not in case.attrs.values():
        pytest.skip("no floating-point operand")
    results = evaluate(case, operands, dtype)
    inferred = [(name, list(sizes)) for name, sizes in infer(case, operands, dtype)]
    assert inferred == [(NAMES[r.dtype], list(r.shape)) for r in results]
    check_values(case, operands, results, dtype)


@by_id(SAMPLES)
def test_instruction_sets(case, isa):
    operands = case.operands()
    check_values(case, operands, evaluate(case, operands), "f32")


@by_id(SAMPLES)
def test_thread_counts_give_equal_bits(case):
    operands = case.operands()
    one, two, three = (evaluate(case, operands, threads=n) for n in (1, 2, 3))
    for results in (two, three):
        if case.equal_bits:
            check_equal_bits(results, one)
        else:
            check_values(case, operands, results, "f32")


def stepped(x):
    """The same values, every second place of its memory unused."""
    return torch.stack([x, x], dim=-1)[..., 0]


def transposed(x, first, second):
    """The same values, two dimensions swapped in memory."""
    return x.transpose(first, second).contiguous().transpose(first, second)


def layouts(x, kind):
    """The tensor with the strides that a row of this kind takes."""
    if kind == "all":
        yield stepped(x)
        yield x[..., :1].expand_as(x)
        if x.dim() >= 2:
            yield transposed(x, 0, -1)
    elif x.dim() >= 2:
        yield transposed(x, -1, -2)
        yield torch.cat([x, x], dim=-1)[..., : x.shape[-1]]
        if x.dim() > 3:
            yield transposed(x, 0, 1)


def is_laid_out(x):
    return x is not None and x.dim() > 0 and x.numel() > 0


def is_degenerate(case, operands):
    """Whether all results are 0, as the variance of equal numbers: errors have no measure."""
    if case.check is not None:
        return False
    exact = [x for x in expected(case, operands, "f64") if x is not None]
    return all(x.is_floating_point() and not x.any() for x in exact)


@by_id([sample for sample in SAMPLES if ROWS[sample.op]["strided"] != "none"])
def test_strides(case):
    kind = ROWS[case.op]["strided"]
    plain = case.operands()
    for position, x in enumerate(plain):
        for seen in layouts(x, kind) if is_laid_out(x) else ():
            operands = [*plain[:position], seen, *plain[position + 1:]]
            if is_degenerate(case, operands):
                continue
            check_values(case, operands, evaluate(case, operands), "f32")


@by_id([sample for sample in SAMPLES if ROWS[sample.op]["inplace"]])
def test_inplace_gives_equal_bits(case):
    operands = case.operands()
    types = [(name, list(sizes)) for name, sizes in infer(case, operands)]
    expected = evaluate(case, operands)
    for result, candidates in enumerate(ROWS[case.op]["inplace"][: len(types)]):
        for i in candidates:
            x = operands[i] if i < len(operands) else None
            if x is None or types[result] != (NAMES[x.dtype], list(x.shape)):
                continue
            inplace = [i if k == result else -1 for k in range(len(types))]
            check_equal_bits(evaluate(case, operands, inplace=inplace), expected)


@by_id(BADS)
def test_bad_inputs(case):
    operands = [to_host(x) for x in case.inputs()]
    with pytest.raises(Error) as caught:
        _C.evaluate(case.op, operands, to_attrs(case.attrs))
    message = str(caught.value)
    assert case.words in message
    assert message.startswith("["), message
    assert message.endswith("."), message


@pytest.mark.parametrize("row", ROWS)
def test_row_has_samples(row):
    sampled = any(sample.op == row for sample in SAMPLES)
    assert sampled != (row in WITHOUT_SAMPLES), WITHOUT_SAMPLES.get(row, "add one")
