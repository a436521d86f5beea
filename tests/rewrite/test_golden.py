"""Golden cases of the passes: ``<pass>/<behaviour>.ir`` says what to run and what comes out.

Those that begin with ``amx_`` hold where products run on the CPU's unit for bfloat16, those that
begin with ``loops_`` where they are computed by loops of our own, and those that begin with
``wide_`` where the CPU has no instructions for bfloat16 products, or may not use them.
"""

from pathlib import Path

import pytest

from poptorch import _C
from tests.helpers import check_case, read_case

FOLDER = Path(__file__).parent
CASES = sorted(FOLDER.glob("*/*.ir"))


@pytest.fixture(params=CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def path(request):
    """A case, with products computed as it wants them."""
    if request.param.stem.startswith("amx_") and not _C.has_bf16x3_gemm():
        pytest.skip("this machine has no unit for bfloat16 products")
    before, isa = _C.gemm_by(), _C.isa()
    if request.param.stem.startswith("wide_"):
        _C.set_isa("base")
    _C.set_gemm("loops" if request.param.stem.startswith("loops_") else "library")
    yield request.param
    _C.set_gemm(before)
    _C.set_isa(isa)


def test_case(path, update):
    passes, source, _ = read_case(path)
    module = _C.parse(source)
    before = module.text()
    changes = _C.run_passes(module, passes.split(","))
    check_case(path, module.text(), update)
    if len(changes) == 1:
        assert changes[0][1] == (module.text() != before), "a pass must say whether it changed"


def test_second_run_changes_nothing(path):
    passes, source, _ = read_case(path)
    module = _C.parse(source)
    _C.run_passes(module, passes.split(","))
    text = module.text()
    changes = _C.run_passes(module, passes.split(","))
    assert module.text() == text
    assert not any(changed for _, changed, _ in changes)


def test_every_pass_has_cases():
    assert {path.parent.name for path in CASES} == {name for name, _ in _C.passes()}
