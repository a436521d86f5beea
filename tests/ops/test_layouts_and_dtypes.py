"""Operands as rows allow them: strides of all kinds in every dtype, and dtypes that are mixed."""

import numpy as np
import pytest
import torch

from poptorch import _C
from poptorch.errors import Error
from tests.helpers import Cases
from tests.ops.properties import layouts
from tests.ops.sample import FLOATS, NAMES, ROWS, TORCH, evaluate
from tests.ops.subject import Subject, check_float_result, references
from tests.ops.test_ops import ROWS_SAMPLED

MOST_SAMPLES = 10  # of a row, in one run
LARGE = 100_000  # elements: what such tensors need is tested by the kernels' own tests
INDICES = ["i32", "i64"]


@pytest.fixture
def any_isa(seed):
    """One of the instruction sets of this machine."""
    before = _C.isa()
    _C.set_isa(np.random.default_rng(seed).choice(_C.machine_isas()))
    yield
    _C.set_isa(before)


def some_operands(row, rng):
    """Triples of sample, dtype and operands, of some samples of the row."""
    for number in rng.permutation(len(ROWS_SAMPLED[row]))[:MOST_SAMPLES]:
        subject = Subject(ROWS_SAMPLED[row][number], int(rng.integers(2**31)))
        for dtype in subject.dtypes():
            operands = subject.operands(dtype)
            if sum(x.numel() for x in operands if x is not None) <= LARGE:
                yield subject.sample, dtype, list(operands)


def check(sample, operands, results):
    """Each result by the rule of its dtype; where all are 0 errors have no measure."""
    if sample.check is not None:
        sample.check(operands, results)
        return
    eager32, exact = references(sample, operands)
    if not any(x is not None and (not x.is_floating_point() or x.any()) for x in exact):
        return
    for i, (ours, narrow, wide) in enumerate(zip(results, eager32, exact, strict=True)):
        if wide is None:
            continue
        assert ours.shape == wide.shape, f"result {i}: {ours.shape}, expected {wide.shape}"
        if ours.is_floating_point():
            check_float_result(sample, i, (ours, narrow, wide), NAMES[ours.dtype])
        else:
            assert torch.equal(ours, narrow.to(ours.dtype)), f"result {i}: {ours}, {narrow}"


def scattered(x, rng):
    """The same values: dimensions in any order in memory, with gaps; in 16 bits some repeated."""
    order = [int(d) for d in rng.permutation(x.dim())]
    if x.dtype in (torch.float16, torch.bfloat16) and rng.random() < 0.3:
        d = int(rng.integers(x.dim()))
        x = x.narrow(d, 0, 1).expand_as(x)
    steps = [int(rng.choice([1, 1, 1, 2])) for _ in order]
    sizes = [x.shape[d] * step for d, step in zip(order, steps, strict=True)]
    memory = torch.zeros(sizes, dtype=x.dtype)
    seen = memory[tuple(slice(None, None, step) for step in steps)]
    seen = seen.permute([order.index(d) for d in range(x.dim())])
    return seen.copy_(x) if rng.random() < 0.8 else x


def laid_out(x, kind, rng):
    """The tensor with strides that a row of this kind takes."""
    if x is None or x.dim() == 0 or x.numel() == 0:
        return x
    if kind == "all":
        return scattered(x, rng)
    choices = [x, *(seen for _, seen in layouts(x, kind))]
    return choices[rng.integers(len(choices))]


@pytest.mark.parametrize("row", [row for row, samples in ROWS_SAMPLED.items()
                                 if samples and ROWS[row]["strided"] != "none"])
def test_strides_in_every_dtype(row, any_isa, seed):
    rng = np.random.default_rng(seed)
    with Cases() as cases:
        for sample, dtype, operands in some_operands(row, rng):
            operands = [laid_out(x, ROWS[row]["strided"], rng) for x in operands]
            strides = [None if x is None else x.stride() for x in operands]
            with cases.case(f"{sample.id} in {dtype}, strides {strides}, {_C.isa()}"):
                results = evaluate(sample, operands, dtype, threads=int(rng.integers(1, 3)))
                check(sample, operands, results)


def others(x):
    """Other dtypes of the same kind, which hold the tensor's values or nearly."""
    if x is None or not (x.is_floating_point() or NAMES[x.dtype] in INDICES):
        return []
    return [TORCH[name] for name in (FLOATS if x.is_floating_point() else INDICES)
            if TORCH[name] != x.dtype]


@pytest.mark.parametrize("row", [row for row, samples in ROWS_SAMPLED.items()
                                 if samples and len(ROWS[row]["operands"]) > 1])
def test_mixed_dtypes_are_refused_or_right(row, any_isa, seed):
    """No kernel may take the bits of one dtype for those of another."""
    rng = np.random.default_rng(seed)
    with Cases() as cases:
        for sample, dtype, plain in some_operands(row, rng):
            names = ROWS[row]["operands"]
            for position, x in enumerate(plain):
                # Torch takes no beta that is rounded to 1.
                is_hyper = names[min(position, len(names) - 1)] == "hyper"
                if not others(x) or is_hyper or sample.check is not None:
                    continue
                seen = x.to(others(x)[rng.integers(len(others(x)))])
                operands = [*plain[:position], seen, *plain[position + 1:]]
                try:
                    results = evaluate(sample, operands, dtype)
                except Error:
                    continue
                dtypes = [None if x is None else NAMES[x.dtype] for x in operands]
                with cases.case(f"{sample.id} of {dtypes}, {_C.isa()}"):
                    check(sample, operands, results)
