"""Every sample is checked in every way, and each check finds its kind of error."""

import pytest
import torch

from poptorch import _C
from tests.helpers import Cases
from tests.ops import properties, subject
from tests.ops.properties import checks_of
from tests.ops.sample import FLOATS, ROWS, Sample, evaluate, randn
from tests.ops.subject import Subject
from tests.ops.test_ops import SAMPLES

OTHER_ISAS = [isa for isa in _C.machine_isas() if isa != _C.isa()]
EXTRA = 0.5  # what a wrong result is off


def demanded(sample, operands):
    """The checks of a sample but those of strides, from what it and its row say."""
    has_floats = any(x is not None and x.is_floating_point() for x in operands)
    converts = torch.float32 in sample.attrs.values()
    checks = {("values", dtype) for dtype in sample.dtypes
              if dtype == "f32" or has_floats or converts}
    isas = OTHER_ISAS if "f32" in sample.dtypes else _C.machine_isas()
    checks |= {("instruction sets", isa) for isa in isas}
    checks |= {("threads", "f32")}
    if sample.equal_bits and has_floats:
        checks |= {("threads", dtype) for dtype in ("f16", "bf16") if dtype in sample.dtypes}
    if ROWS[sample.op]["inplace"]:
        checks |= {("in place", "f32")}
    return checks


def layouts_demanded(sample, operands):
    """How many checks of strides a sample has."""
    kind = ROWS[sample.op]["strided"]
    sizes = [x.dim() for x in operands if x is not None and x.dim() > 0 and x.numel() > 0]
    if kind == "none":
        return 0
    if kind == "all":
        return sum(2 + (dims >= 2) for dims in sizes)
    return sum((dims >= 2) * (2 + (dims > 3)) for dims in sizes)


def test_all_samples_have_all_checks(seed):
    with Cases() as cases:
        for sample in SAMPLES:
            with cases.case(sample.id):
                drawn = Subject(sample, seed)
                names = [(name, detail) for name, detail, _ in checks_of(drawn)]
                plain = [name for name in names if name[0] != "strides"]
                assert len(set(names)) == len(names)
                assert sorted(plain) == sorted(demanded(sample, drawn.inputs))
                assert len(names) - len(plain) == layouts_demanded(sample, drawn.inputs)


def is_strided(operands):
    return any(not x.is_contiguous() for x in operands)


# When the kernel goes wrong, and the checks that are to notice it.
WRONG = {
    "threads f32": lambda operands, dtype, how: dtype == "f32" and how.get("threads") == 3,
    "threads f16": lambda operands, dtype, how: dtype == "f16" and how.get("threads") == 2,
    "threads bf16": lambda operands, dtype, how: dtype == "bf16" and how.get("threads") == 3,
    "in place f32": lambda operands, dtype, how: how.get("inplace") == [1],
    "strides": lambda operands, dtype, how: is_strided(operands),
    **{f"values {name}": lambda operands, dtype, how, name=name: dtype == name and not how
       for name in FLOATS if name != "f32"},
    **{f"instruction sets {isa}": lambda operands, dtype, how, isa=isa: _C.isa() == isa
       for isa in OTHER_ISAS},
}


@pytest.mark.parametrize("noticed", WRONG)
def test_checks_notice_wrong_results(noticed, seed, monkeypatch):
    """With a row that has all of them; checks of other things than the wrong one pass."""
    def wrong(sample, operands, dtype="f32", **how):
        results = evaluate(sample, operands, dtype, **how)
        is_wrong = WRONG[noticed](operands, dtype, how)
        return [x + EXTRA for x in results] if is_wrong else results

    for module in (properties, subject):
        monkeypatch.setattr(module, "evaluate", wrong)
    failed, passed = set(), set()
    for name, detail, check in checks_of(Subject(Sample("add", lambda: [randn(5, 7)] * 2), seed)):
        try:
            check()
            passed.add(f"{name} {detail}")
        except AssertionError:
            failed.add(f"{name} {detail}")
    missed = {x for x in passed if x.startswith(noticed)}
    assert not missed and any(x.startswith(noticed) for x in failed)
    also = noticed.replace("values", "threads")  # the result of one thread is the one compared
    assert all(x.startswith((noticed, also)) for x in failed)
    assert passed


def test_every_failure_is_named():
    with pytest.raises(AssertionError) as caught, Cases() as cases:
        for number in range(5):
            with cases.case("add", number):
                assert number % 2 == 0, f"{number} is odd"
            with cases.case("div", number):
                1 / number
    words = str(caught.value)
    assert words.startswith("3 of 10 cases failed")
    assert all(part in words for part in ("add 1 (test_properties.py:", "3 is odd", "add 3",
                                          "div 0", "ZeroDivisionError"))
    assert "add 2" not in words


def test_what_ends_a_loop_keeps_the_failures_before():
    with pytest.raises(KeyError) as caught, Cases() as cases:
        with cases.case("add"):
            raise ValueError("wrong")
        raise KeyError("not of a case")
    assert "ValueError: wrong" in "".join(caught.value.__notes__)
