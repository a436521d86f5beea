"""Golden cases of the passes: ``<pass>/<behavior>.ir`` says what to run and what comes out. Those
of other steps are ``<behavior>.ir``.

Those that begin with ``amx_`` hold where products run on the CPU's unit for bfloat16, those that
begin with ``loops_`` where they are computed by loops of our own, and those that begin with
``wide_`` where the CPU has no instructions for bfloat16 products, or may not use them.
"""

import contextlib
import re

import pytest

from poptorch import _C
from tests.helpers import check_case, read_case

_PLACES = re.compile(r"\b(ipu|stage)=0(, )?")


def case_id(path):
    """``pass/behavior``."""
    return f"{path.parent.name}/{path.stem}"


@contextlib.contextmanager
def conditions(path):
    """Products are computed as the case wants them."""
    if path.stem.startswith("amx_") and not _C.has_bf16x3_gemm():
        pytest.skip("this machine has no unit for bfloat16 products")
    before, isa = _C.gemm_by(), _C.isa()
    if path.stem.startswith("wide_"):
        _C.set_isa("base")
    _C.set_gemm("loops" if path.stem.startswith("loops_") else "library")
    try:
        yield
    finally:
        _C.set_gemm(before)
        _C.set_isa(isa)


def check(path, update):
    """The passes give what the case says, and tell whether they changed something."""
    passes, source, _ = read_case(path)
    module = _C.parse(source)
    before = module.text()
    changes = _C.run_passes(module, passes.split(","))
    check_case(path, module.text(), update)
    if len(changes) == 1:
        assert changes[0][1] == (module.text() != before), "a pass must say whether it changed"


def check_steps(path, update):
    """The steps of a compilation give what the case says."""
    steps, source, _ = read_case(path)
    module = _C.parse(source)
    for step in steps.split(","):
        getattr(_C, step)(module)
    check_case(path, module.text(), update)


def check_second_run(path):
    """A second run changes nothing and says so."""
    passes, source, _ = read_case(path)
    module = _C.parse(source)
    _C.run_passes(module, passes.split(","))
    text = module.text()
    changes = _C.run_passes(module, passes.split(","))
    assert module.text() == text
    assert not any(changed for _, changed, _ in changes)


def check_placed(path):
    """Of a program that is on one IPU the passes make the same, and every op has its place."""
    passes, source, _ = read_case(path)
    if "ipu=" in source or "block=" in source:
        pytest.skip("it says where ops are")
    expected = _C.parse(source)
    _C.run_passes(expected, passes.split(","))
    if "graph main " not in source:
        source = source.replace("graph net ", "graph main ", 1)
    module = _C.parse(source)
    _C.place(module)
    _C.run_passes(module, passes.split(","))
    module.verify("lowered")
    text = _PLACES.sub("", module.text()).replace(", }", "}").replace(" {}", "")
    assert text.replace("graph main ", "graph net ") == \
        expected.text().replace("graph main ", "graph net ")
