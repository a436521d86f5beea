"""The file that keeps what was measured: damage, other machines, writers at once, no permission."""

import itertools
import os
import shutil
import subprocess
import sys

import pytest

from poptorch import _C
from tests import helpers

HEADER = "poptorch algorithms 1 "


@pytest.fixture
def measures(monkeypatch):
    monkeypatch.setenv("POPTORCH_MEASURE", "1")


def answer(problem="problem"):
    """Which is chosen; b is the faster. None: the tables choose."""
    found = _C.measured(problem, ["a", "b"], [lambda: sum(range(10000)), lambda: None])
    return found and found[0][0]


@pytest.fixture
def folder(measures, monkeypatch, tmp_path):
    """Where the file is."""
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path / "0"))
    return tmp_path / "0"


@pytest.fixture
def move(folder, monkeypatch):
    """A function that moves the file into a new folder, of which this process knows nothing yet,
    and changes its text."""
    numbers = itertools.count(1)

    def to_new(edit=lambda text: text):
        old, new = os.environ["POPTORCH_CACHE_DIR"], folder.parent / str(next(numbers))
        shutil.copytree(old, new)
        monkeypatch.setenv("POPTORCH_CACHE_DIR", str(new))
        file_of(new).write_text(edit(file_of(new).read_text()))
        return new

    return to_new


def file_of(folder):
    """The one file that was written."""
    (file,) = folder.glob("algorithms_*.txt")
    return file


def line_of(folder, problem="problem"):
    (line,) = [line for line in file_of(folder).read_text().splitlines()
               if line.startswith(f"{problem} {_C.isa()} of a b\t")]
    return line


def test_another_process_chooses_what_the_first_one_measured(folder, move):
    assert answer() == "b"
    move(lambda text: text.replace(line_of(folder).split("\t", 1)[1], "a=5.0\tb=900.0"))
    assert answer() == "a"


@pytest.mark.parametrize("edit", [
    lambda text: "",
    lambda text: text[:len(text) - 3],
    lambda text: "\0\xff" * 500,
    lambda text: text.replace("=", " "),
    lambda text: text.replace("b=", "b=-"),
    lambda text: text.replace("b=", "b=nan"),
    lambda text: text.replace(HEADER, "poptorch algorithms 2 "),
    lambda text: text.replace(HEADER, HEADER + "another processor "),
], ids=["empty", "cut", "binary", "no times", "negative", "nan", "version", "machine"])
def test_what_is_damaged_is_measured_again(folder, move, edit):
    assert answer() == "b"
    new = move(edit)
    assert answer() == "b"
    headers = [file_of(one).read_text().splitlines()[0] for one in (folder, new)]
    assert headers[0] == headers[1]
    assert line_of(new).startswith(line_of(folder).split("\t")[0])


def test_damage_leaves_other_lines_alone(folder, move):
    answer("first")
    answer("second")
    new = move(lambda text: text.replace(line_of(folder, "second"), "second\tx"))
    assert answer("third") == "b"
    assert line_of(new, "first") == line_of(folder, "first")


def test_algorithms_of_other_names_are_not_taken(folder, move):
    """As after an edit: the tables choose, and the line stays."""
    answer()
    move(lambda text: text.replace("\tb=", "\tc="))
    assert answer() is None


def test_a_file_that_is_only_read_is_used(folder, move):
    """Only what it does not have is left to the tables."""
    answer()
    new = move()
    lock = file_of(new).with_suffix(".lock")
    lock.unlink()
    lock.mkdir()  # root may write whatever its permissions say
    assert answer() == "b"
    assert answer("another problem") is None


@pytest.mark.sampled
def test_processes_that_write_at_once_lose_nothing(folder):
    code = """
import sys
from poptorch import _C
for i in range(12):
    _C.measured(f"{i % 6} {sys.argv[1] if i % 2 else ''}", ["a", "b"], [lambda: None] * 2)
    print(_C.measured("shared", ["a", "b"], [lambda: None] * 2))
"""
    env = os.environ | {"PYTHONPATH": str(helpers.ROOT)}
    running = [subprocess.Popen([sys.executable, "-c", code, str(i)], env=env, cwd=helpers.ROOT,
                                stdout=subprocess.PIPE, text=True) for i in range(4)]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    assert len({line for output in outputs for line in output.splitlines()}) == 1
    lines = file_of(folder).read_text().splitlines()
    assert len(lines) == 1 + 1 + 3 + 4 * 3  # header, shared, of all processes, of each
    assert len(list(folder.iterdir())) == 2  # the file and its lock


def test_a_folder_that_cannot_be_written_leaves_the_choice_to_the_tables(measures, monkeypatch,
                                                                         tmp_path):
    """Else runs would choose by measurements of their own, and compute other bits."""
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file / "below", "/proc/no_such_folder"):
        monkeypatch.setenv("POPTORCH_CACHE_DIR", str(folder))
        assert answer() is None


def test_without_a_home_nothing_is_measured(measures, monkeypatch):
    for name in ("POPTORCH_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, "")
    assert answer() is None


@pytest.mark.parametrize(("variable", "below"), [("XDG_CACHE_HOME", "poptorch"),
                                                 ("HOME", ".cache/poptorch")])
def test_the_default_folder(measures, variable, below, monkeypatch, tmp_path):
    for name in ("POPTORCH_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv(variable, str(tmp_path))
    assert answer() == "b"
    assert file_of(tmp_path / below).exists()
