"""What every sample of an op must fulfil: lists of checks, made of a sample with operands drawn.

A check is ``(property, detail, function)``; the detail is a dtype, an instruction set or a layout.
"""

import torch

from poptorch import _C
from tests.helpers import check_equal_bits
from tests.ops.sample import NAMES, ROWS, evaluate, infer
from tests.ops.subject import check_results, references


def checks_of(subject):
    """All checks of a sample."""
    for dtype in subject.dtypes():
        yield "values", dtype, lambda dtype=dtype: check_dtype(subject, dtype)
    for isa in _C.machine_isas():
        if isa != _C.isa() or "f32" not in subject.dtypes():  # else one of `values`
            yield "instruction sets", isa, lambda isa=isa: check_isa(subject, isa)
    yield "threads", "f32", lambda: check_threads(subject, "f32")
    for dtype in subject.halves() if subject.sample.equal_bits else ():
        yield "threads", dtype, lambda dtype=dtype: check_threads(subject, dtype)
    if ROWS[subject.sample.op]["strided"] != "none":
        yield from strides_checks(subject)
    if ROWS[subject.sample.op]["inplace"]:
        yield "in place", "f32", lambda: check_inplace(subject)


def check_dtype(subject, dtype):
    """Types are as inferred, and values as the rule of the dtype has it."""
    results = subject.results(dtype)
    types = infer(subject.sample, subject.operands(dtype), dtype)
    inferred = [(name, list(sizes)) for name, sizes in types]
    assert inferred == [(NAMES[r.dtype], list(r.shape)) for r in results]
    subject.check(results, dtype)


def check_isa(subject, isa):
    """Values with an instruction set, on which the layout of packed weights depends."""
    before = _C.isa()
    _C.set_isa(isa)
    try:
        subject = subject.again()
        subject.check(subject.results("f32"), "f32")
    finally:
        _C.set_isa(before)


def check_threads(subject, dtype):
    """Two and three threads give the bits of one, or right values where bits may differ."""
    for threads in (2, 3):
        operands = subject.again(threads).operands(dtype)
        results = evaluate(subject.sample, operands, dtype, threads=threads)
        if subject.sample.equal_bits:
            check_equal_bits(results, subject.results(dtype))
        else:
            subject.check(results, dtype)


def stepped(x):
    """The same values, every second place of its memory unused."""
    return torch.stack([x, x], dim=-1)[..., 0]


def cut(x):
    """The same values, rows of twice the length in memory."""
    return torch.cat([x, x], dim=-1)[..., : x.shape[-1]]


def transposed(x, first, second):
    """The same values, two dimensions swapped in memory."""
    return x.transpose(first, second).contiguous().transpose(first, second)


def layouts(x, kind):
    """Strides that a row of this kind takes: pairs of a name and the tensor that has them."""
    if kind == "all":
        yield "stepped", stepped(x)
        yield "expanded", x[..., :1].expand_as(x)
        if x.dim() >= 2:
            yield "transposed", transposed(x, 0, -1)
    elif x.dim() >= 2:
        yield "columns first", transposed(x, -1, -2)
        yield "cut", cut(x)
        if x.dim() > 3:
            yield "batches swapped", transposed(x, 0, 1)


def strides_checks(subject):
    """A check for each operand and layout."""
    for position, x in enumerate(subject.operands("f32")):
        if x is not None and x.dim() > 0 and x.numel() > 0:
            for name, seen in layouts(x, ROWS[subject.sample.op]["strided"]):
                detail = f"{name} operand {position}"
                yield "strides", detail, lambda i=position, seen=seen: check_strides(
                    subject, i, seen)


def check_strides(subject, position, seen):
    """Values with an operand that has other strides, and where expanded other values."""
    sample, operands = subject.sample, list(subject.operands("f32"))
    same = torch.equal(operands[position], seen)
    operands[position] = seen
    if sample.check is not None:
        sample.check(operands, evaluate(sample, operands))
        return
    expected = subject.references("f32") if same else references(sample, operands)
    # Where all results are 0, as the variance of equal numbers is, errors have no measure.
    if not any(x is not None and (not x.is_floating_point() or x.any()) for x in expected[1]):
        return
    results = evaluate(sample, operands)
    try:
        check_results(sample, results, expected, "f32")
    except AssertionError:
        if same:
            raise
        # All results may be next to 0, as the slope of GELU where it turns: of one number in each
        # line, as in `with_more_draws`. Those of the sample are a measure then, too.
        usual = subject.results("f32"), *subject.references("f32")
        joined = map(_joined, (results, *expected), usual)
        check_results(sample, next(joined), tuple(joined), "f32")


def _joined(results, others):
    """Each result and another as one row."""
    return [x if x is None else torch.cat([x.reshape(-1), other.reshape(-1)])
            for x, other in zip(results, others, strict=True)]


def check_inplace(subject):
    """A result in the memory of an operand has the same bits, wherever the row allows that."""
    sample, operands = subject.sample, subject.operands("f32")
    types = [(name, list(sizes)) for name, sizes in infer(sample, operands)]
    for result, candidates in enumerate(ROWS[sample.op]["inplace"][: len(types)]):
        for i in candidates:
            x = operands[i] if i < len(operands) else None
            if x is None or types[result] != (NAMES[x.dtype], list(x.shape)):
                continue
            inplace = [i if k == result else -1 for k in range(len(types))]
            check_equal_bits(evaluate(sample, operands, inplace=inplace), subject.results("f32"))
