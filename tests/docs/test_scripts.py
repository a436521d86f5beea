"""examples/script: an ordinary PyTorch training script, and the same with few edits."""

import ast
import difflib
import re

import pytest

from tests.helpers import ROOT, run_python

FOLDER = ROOT / "examples" / "script"
# How many places differ from eager.py, as docs/guide/start/from_pytorch.md says.
EDITS = {"torch_compile": 1, "poptorch_api": 4}


def _lines(name):
    """The lines of a script after its docstring."""
    text = (FOLDER / f"{name}.py").read_text()
    return text.splitlines()[ast.parse(text).body[0].end_lineno:]


def _edits(name):
    matcher = difflib.SequenceMatcher(None, _lines("eager"), _lines(name), autojunk=False)
    return [change for change in matcher.get_opcodes() if change[0] != "equal"]


@pytest.mark.parametrize("name", EDITS)
def test_the_number_of_edits(name):
    assert len(_edits(name)) == EDITS[name]


def test_the_guide_shows_the_edits():
    guide = (ROOT / "docs" / "guide" / "start" / "from_pytorch.md").read_text()
    for name, count in EDITS.items():
        assert re.search(rf"`examples/script/{name}.py`.* {count} edits?", guide)
        new = _lines(name)
        for _, _, _, begin, end in _edits(name):
            for line in filter(str.strip, new[begin:end]):
                assert line.strip() in guide, line


def _accuracy(name, *words):
    path = str(FOLDER / f"{name}.py")
    out = run_python(f"import runpy, sys; sys.argv = {[path, *words]}; "
                     f"runpy.run_path(sys.argv[0], run_name='__main__')", OMP_NUM_THREADS="1")
    return float(re.search(r"best checkpoint: accuracy ([\d.]+) %", out)[1])


@pytest.mark.sampled
def test_the_script_with_the_api_learns():
    assert _accuracy("poptorch_api", "--epochs", "3") > 90


@pytest.mark.slow
def test_all_forms_reach_the_same_accuracy():
    found = {name: _accuracy(name) for name in ("eager", *EDITS)}
    assert min(found.values()) > 98 and max(found.values()) - min(found.values()) < 1, found
