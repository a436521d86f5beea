"""Mutants: listed where they stand, absent from what is shipped, and found (`make mutants`)."""

import ast
import io
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

from poptorch import _C
from tests.fuzz.mutants import libraries, trials
from tests.fuzz.mutants.edits import EDITS
from tests.fuzz.mutants.trials import Trials
from tests.helpers import ROOT


def test_shipped_extension_knows_no_mutant():
    assert not hasattr(_C, "mutants")
    shipped = Path(_C.__file__).read_bytes()
    names = [*libraries.mistakes(), "POPTORCH_MUTANT"]
    assert [name for name in names if name.encode() in shipped] == []


def test_each_mistake_stands_in_one_place():
    files = [path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".cpp", ".h", ".inl")]
    used = Counter(name for path in files if path.name != "mutant.h"
                   for name in re.findall(r"\bMUTANT\((\w+)\)", path.read_text()))
    assert used == Counter(dict.fromkeys(libraries.mistakes(), 1))


def test_each_row_of_the_list_is_read():
    rows = [line for line in libraries.LIST.read_text().splitlines()
            if line.startswith(("MISTAKE", "IGNORED"))]
    assert len(rows) == len(libraries.mistakes()) >= 20


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_each_edit_applies_once(edit):
    text = (ROOT / "poptorch" / edit.file).read_text()
    assert text.count(edit.old) == 1 and edit.name not in libraries.mistakes()
    changed = ast.dump(ast.parse(text.replace(edit.old, edit.new)))
    assert changed != ast.dump(ast.parse(text))


@pytest.mark.parametrize(("mutant", "test"), [
    *libraries.tests().items(), *((e.name, e.judge) for e in EDITS if "::" in e.judge)])
def test_each_test_of_a_setting_exists(mutant, test):
    file, name = test.split("::")
    assert f"def {name}(" in (ROOT / file).read_text()


def test_names_are_unique():
    assert len({edit.name for edit in EDITS}) == len(EDITS)


def test_unknown_names_are_refused():
    command = [sys.executable, "-m", "tests.fuzz.mutants", "--only", "nothing", "else_"]
    result = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    assert result.returncode == 1
    assert result.stderr == ("[mutants] no such mutants: else_, nothing. --list shows all of "
                             "them.\n")


@pytest.fixture(scope="module")
def built():
    libraries.build()


@pytest.mark.slow
def test_test_build_lists_its_mutants(built):
    for mutant in ("", "cse_ignores_strides", EDITS[0].name):
        command = [sys.executable, "-c", "from poptorch import _C; print(dict(_C.mutants()))"]
        result = subprocess.run(command, cwd=libraries.folder_of(mutant), text=True, check=True,
                                env=libraries.environment_of(mutant), capture_output=True)
        assert ast.literal_eval(result.stdout) == libraries.mistakes()


@pytest.mark.slow
def test_test_build_refuses_an_unknown_name(built):
    environment = {**libraries.environment_of(""), "POPTORCH_MUTANT": "nothing"}
    result = subprocess.run([sys.executable, "-c", "import poptorch"], env=environment, text=True,
                            cwd=libraries.folder_of(""), capture_output=True)
    assert result.returncode == 1
    assert 'POPTORCH_MUTANT is "nothing", which is no row of csrc/support/mutants.def. Set it to ' \
        "the name of one of its" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ["view_of_view_drops_offset", "correction_is_never_zero"])
def test_a_coarse_mutant_is_found_soon(built, mutant, seed):
    assert Trials(seed, 1000).run(mutant).found is not None


class Ended:
    """A process that prints lines and ends."""

    def __init__(self, status, *notes):
        self.stdout, self.stderr = [json.dumps(note) for note in notes], io.StringIO()
        self.wait = lambda: status


@pytest.mark.parametrize(("is_ours", "found"), [(False, None), (True, (5, "crash"))])
def test_processes_that_eager_ends_are_no_findings(is_ours, found):
    ends = [Ended(-11, {"seed": 4, "is_ours": False}, {"seed": 5, "is_ours": is_ours}),
            Ended(0, {"seed": 6, "is_ours": False})]
    with mock.patch.object(trials.subprocess, "Popen", side_effect=ends):
        result = Trials(4, 3).run("")
    assert result.found is None if found is None else result.found[:2] == found
