"""Every public name has the test that fails when it does nothing, and that test is there."""

import ast
import enum
import inspect
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import poptorch
from tests.api.names.documented import FUNCTIONS, MEMBERS, PROPERTIES, find
from tests.helpers import ROOT, run_python
from tests.registry import replacements
from tests.registry.effects import EFFECTS, setters, test_of
from tests.registry.names import NAMES
from tests.registry.trial import Result, Verdict


def _exported():
    """Public names of the package, of optim and of profiling, with what they name."""
    shown = {prefix + name: thing
             for prefix, module in (("", poptorch), ("optim.", poptorch.optim))
             for name, thing in vars(module).items()
             if not name.startswith("_") and not inspect.ismodule(thing)}
    return {**shown, "profiling.Channel": poptorch.profiling.Channel}


def _methods(name, kind):
    """Public methods and properties that poptorch's own classes define."""
    parts = [part for part in kind.__mro__ if part.__module__.startswith("poptorch")]
    for part in parts:
        for member, thing in vars(part).items():
            is_public = member == "__call__" or not member.startswith("_")
            # torch wraps the method `step` of a class when its first optimizer is made.
            is_own = getattr(thing, "__module__", kind.__module__).startswith("poptorch")
            if is_public and is_own and not inspect.isclass(thing) and (
                    callable(thing) or isinstance(thing, property | classmethod)):
                yield f"{name}.{member}"


def _public():
    found = set()
    for name, thing in _exported().items():
        found.add(name)
        if inspect.isclass(thing) and not issubclass(thing, enum.Enum):
            found |= set(_methods(name, thing))
    return found


def _functions(path):
    return {node.name for node in ast.walk(ast.parse((ROOT / path).read_text()))
            if isinstance(node, ast.FunctionDef)}


def test_every_public_name_has_a_test():
    known = set(NAMES) | {f"Options.{name}" for name in setters()} | set(setters())
    missing = sorted(_public() - known)
    assert not missing, f"names without a line in tests/registry/names.py: {missing}"


def test_every_documented_name_has_a_test():
    known = {replacements.owner_of(name) for name in NAMES} | set(setters().values())
    missing = [name for name in (*FUNCTIONS, *PROPERTIES, *MEMBERS) if find(name) not in known]
    assert not missing, f"documented names without a line in tests/registry: {missing}"


def _is_there(name):
    owner, last = replacements.owner_of(name)
    return hasattr(owner, last)


def test_no_line_without_a_name():
    gone = [name for name in NAMES if not _is_there(name)]
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


def _verdicts(tests):
    code = ("from tests.registry.trial import trials\n"
            f"for result in trials({tests!r}, jobs=1): print(result.verdict)")
    return run_python(code).splitlines()


@pytest.mark.sampled
def test_a_test_that_does_not_look_is_found():
    """An enumeration's page notices nothing when a model's name does nothing."""
    blind = "tests/api/names/test_signatures.py::test_members"
    assert _verdicts({"modelName": blind, "Options.clone": blind}) == ["NOT NOTICED"] * 2


@pytest.mark.sampled
def test_a_test_that_fails_with_nothing_replaced_is_found(tmp_path):
    (tmp_path / "test_wrong.py").write_text("def test_wrong():\n    assert False\n")
    wrong = f"{tmp_path}/test_wrong.py::test_wrong"
    assert _verdicts({"modelName": wrong, "logDir": f"{wrong}_name"}) == ["FAILS ANYWAY"] * 2


_LIMITED = """
import time
from tests.registry import trial
trial._LIMIT_S = {limit_s}
print("begins", flush=True)
print(trial._in_child(lambda: time.sleep({seconds}) or 0) in trial._FAILED)
"""


@pytest.mark.sampled
def test_what_waits_for_what_never_comes_has_failed():
    assert run_python(_LIMITED.format(limit_s=1, seconds=600)).split() == ["begins", "True"]


@pytest.mark.sampled
def test_a_run_that_is_stopped_for_a_while_is_not_late():
    code = _LIMITED.format(limit_s=4, seconds=2)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE,
                          text=True, start_new_session=True) as run:
        try:
            assert run.stdout.readline() == "begins\n"
            time.sleep(0.5)
            os.killpg(run.pid, signal.SIGSTOP)
            time.sleep(5)
            os.killpg(run.pid, signal.SIGCONT)
            assert run.communicate(timeout=60)[0] == "False\n"
        finally:
            run.kill()


@pytest.mark.sampled
def test_a_run_is_resumed(tmp_path):
    """What is noted as noticed, by the test that is meant now, is left out."""
    state, known = tmp_path / "state.jsonl", replacements.tests()
    lines = [Result(name, test, Verdict.NOTICED, 1.0) for name, test in known.items()]
    left = lines.pop(list(known).index("Stage.ipu"))
    lines += [left._replace(verdict=Verdict.NOT_NOTICED), left._replace(test="tests/a.py::test")]
    state.write_text("".join(json.dumps(line._asdict()) + "\n" for line in lines))
    done = subprocess.run([sys.executable, "-m", "tests.registry", "--resume", "--state", state],
                          cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"\n{len(known)} names in " in done.stdout
    assert f"({len(known) - 1} noted earlier): {len(known)} noticed, 0 not noticed" in done.stdout
    assert done.stdout.splitlines()[0].startswith("Stage.ipu: noticed by")
    assert json.loads(state.read_text().splitlines()[-1])["name"] == "Stage.ipu"


@pytest.mark.sampled
def test_names_that_are_not_there():
    done = subprocess.run([sys.executable, "-m", "tests.registry", "logDyr"], cwd=ROOT,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "[registry] no such names: logDyr." in done.stderr
