"""A sample with operands drawn, and the rule by which results are compared with PyTorch's."""

import torch

from tests.helpers import check_op_sample
from tests.ops.sample import FLOATS, evaluate, expected

# One rounding to a 16-bit float: relative, and absolute (half the smallest subnormal).
ROUNDING = {"f16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134)}
F64_TOLERANCE = 1e-11
FEW = 16  # different numbers


class Subject:
    """Operands of one sample, the same in all checks, and PyTorch's results, computed once.

    Attributes:
        sample: the sample.
        seed: what the random numbers of the operands depend on.
        threads: for how many threads packed operands are packed.
        inputs: its operands; floating-point ones are f32.
    """

    def __init__(self, sample, seed, threads=1):
        self.sample = sample
        self.seed = seed
        torch.manual_seed(seed)
        self.inputs = sample.inputs(threads) if sample.is_packed else sample.inputs()
        self._operands = {}
        self._references = {}
        self._results = {}

    def again(self, threads=1):
        """The same with new operands; different ones only where settings change them."""
        other = Subject(self.sample, self.seed, threads)
        pairs = zip(self.inputs, other.inputs, strict=True)
        if all(a is b is None or torch.equal(a, b) for a, b in pairs):
            other._operands, other._references = self._operands, self._references
        return other

    def operands(self, dtype):
        """The operands, floating-point ones rounded to ``dtype``."""
        if dtype not in self._operands:
            self._operands[dtype] = self.sample.rounded(self.inputs, dtype)
        return self._operands[dtype]

    def references(self, dtype):
        """What PyTorch gives for the operands of ``dtype``: in f32, and in f64."""
        values = "f32" if dtype == "f64" else dtype  # the numbers of these two are the same
        if values not in self._references:
            self._references[values] = references(self.sample, self.operands(values))
        return self._references[values]

    def results(self, dtype):
        """What the kernel gives on one thread, with the instruction set in use."""
        if dtype not in self._results:
            self._results[dtype] = evaluate(self.sample, self.operands(dtype), dtype)
        return self._results[dtype]

    def has_floats(self):
        """Whether the choice of a floating-point dtype changes the operands."""
        return any(x is not None and x.is_floating_point() for x in self.inputs)

    def dtypes(self):
        """The floating-point dtypes in which the sample is computed; f32 always is."""
        if self.has_floats() or torch.float32 in self.sample.attrs.values():
            return self.sample.dtypes
        return tuple(dtype for dtype in self.sample.dtypes if dtype == "f32")

    def halves(self):
        """The 16-bit dtypes in which there are operands."""
        names = [dtype for dtype in self.sample.dtypes if dtype in ROUNDING]
        return names if self.has_floats() else []

    def check(self, results, dtype):
        """Results for the operands of ``dtype`` against PyTorch's."""
        if self.sample.check is not None:
            self.sample.check(self.operands(dtype), results)
        else:
            check_results(self.sample, results, self.references(dtype), dtype)


def references(sample, operands):
    """What PyTorch gives in f32 and in f64, from copies of the operands."""
    copies = [None if x is None else x.clone() for x in operands]
    return expected(sample, copies, "f32"), expected(sample, operands, "f64")


def check_results(sample, results, references, dtype):
    """Results against those of PyTorch in f32 and f64."""
    eager32, exact = references
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
            rounds_within = dtype in sample.rounded_within
            is_right = is_rounded(ours, wide, narrow, dtype, rounds_within)
            assert is_right, f"{name}: {ours}, expected {wide}"

    try:
        check(*values)
    except AssertionError:
        if values[2].unique().numel() > FEW:
            raise
        check(*with_more_draws(sample, index, values, dtype))


def with_more_draws(sample, index, values, dtype):
    """The triple (ours, eager f32, exact) of one result, joined with those of other operands.

    Of one number eager's error can be far below what it usually is, by luck; so a rule about few
    different numbers is about those of several draws.
    """
    draws = [values]
    for _ in range(7):
        operands = sample.operands(dtype)
        results = (evaluate(sample, operands, dtype), *references(sample, operands))
        draws.append([result[index] for result in results])
    return [torch.cat([x.reshape(-1) for x in column]) for column in zip(*draws)]


def is_rounded(ours, exact, eager32, dtype, rounds_within=False):
    """Whether ``ours`` is at most one rounding to ``dtype`` off a result that the rule allows.

    Or, if the row ``rounds_within``, that and two roundings of the largest result.
    """
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
    # Rounded terms may cancel each other.
    sizes = exact.abs() + (2 * exact.abs().max() if rounds_within else 0)
    return bool((error <= relative * sizes + absolute + rule * (1 + relative)).all())
