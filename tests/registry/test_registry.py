"""Every public name has the test that fails when it does nothing, and that test is there."""

import ast
import enum
import inspect
import subprocess
import sys

import pytest

import poptorch
from tests.helpers import ROOT, run_python
from tests.registry.effects import EFFECTS, setters, test_of
from tests.registry.names import ELSEWHERE, NAMES


def _exported():
    """Public names of the package and of profiling, with what they name."""
    imported = {name for name in vars(poptorch) if not name.startswith("_")}
    shown = {name: thing for name, thing in vars(poptorch).items() if name in imported
             and not inspect.ismodule(thing) and name not in ELSEWHERE}
    return {**shown, "profiling.Channel": poptorch.profiling.Channel}


def _methods(name, kind):
    """Public methods and properties that poptorch's own classes define."""
    parts = [part for part in kind.__mro__ if part.__module__.startswith("poptorch")]
    for part in parts:
        for member, thing in vars(part).items():
            if not member.startswith("_") and not inspect.isclass(thing) and (
                    callable(thing) or isinstance(thing, property | classmethod)):
                yield f"{name}.{member}"


def _public():
    found = set()
    for name, thing in _exported().items():
        if inspect.isclass(thing) and issubclass(thing, enum.Enum):
            continue
        found.add(name)
        if inspect.isclass(thing):
            found |= set(_methods(name, thing))
    return found


def _functions(path):
    return {node.name for node in ast.walk(ast.parse((ROOT / path).read_text()))
            if isinstance(node, ast.FunctionDef)}


def test_every_public_name_has_a_test():
    known = set(NAMES) | {f"Options.{name}" for name in setters()} | set(setters())
    missing = sorted(_public() - known)
    assert not missing, f"names without a line in tests/registry/names.py: {missing}"


def test_no_line_without_a_name():
    gone = sorted(set(NAMES) - _public())
    assert not gone, f"lines of tests/registry/names.py for names that are not there: {gone}"
    assert set(EFFECTS) <= set(setters())


def test_every_named_test_is_there():
    wanted = {*NAMES.values(), *(test_of(name) for name in setters())}
    functions = {path: _functions(path) for path in {test.split("::")[0] for test in wanted}}
    for test in wanted:
        path, _, name = test.partition("::")
        assert name.split("[")[0] in functions[path], test


@pytest.mark.parametrize("names", [
    ["deviceIterations", "Jit.traceModel", "PoplarExecutor.isCompiled", "Stage.ipu"]])
def test_names_that_do_nothing_are_noticed(names):
    """Some of `make registry`, which tries all."""
    done = subprocess.run([sys.executable, "-m", "tests.registry", *names], cwd=ROOT,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": noticed by") == len(names)


def test_a_test_that_does_not_look_is_found():
    """An enumeration's page notices nothing when a model's name does nothing."""
    blind = "tests/api/test_signatures.py::test_members"
    code = ("from tests.registry.__main__ import passes_without as passes; "
            f"print(passes('modelName', {blind!r}), passes('Options.clone', {blind!r}))")
    assert run_python(code).split() == ["True", "True"]
