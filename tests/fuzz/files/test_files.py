"""Damaged files: refused by an error that names the file, or as good as before."""

import re
from pathlib import Path

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.fuzz.files import file_models
from tests.fuzz.files.damage import damages, moved, packed, unpacked
from tests.fuzz.files.file_runner import Runner, Task
from tests.fuzz.judge import ACCIDENT, budget

MOST_BYTES = 3 << 29
TIMEOUT_S = 120  # only a hang takes that long, on a slow machine, too
MEMBER = re.compile(r"\w+\.(json|ir|safetensors)|bytes|zip")
INTERNAL = re.compile(r"internal|please report", re.IGNORECASE)


@pytest.fixture(scope="module")
def runner():
    runner = Runner()
    yield runner
    runner.stop()


@pytest.fixture(scope="module")
def saved(tmp_path_factory, runner):
    """Files by the name of their model, and the result that they lead to."""
    folder = tmp_path_factory.mktemp("saved")
    out = {}
    for name in file_models.MAKERS:
        model = file_models.make(name)
        path = model.compileAndExport(folder / name, *file_models.arguments(name))
        model.destroy()
        results = {runner.ask(Task(path, name, with_module), TIMEOUT_S).result
                   for with_module in (False, True)}
        assert len(results) == 1 and None not in results
        out[name] = Path(path).read_bytes(), results.pop()
    return out


def check_refused(answer, path):
    """The error says which file and what of it is wrong, and is no unexpected one."""
    kind, message = answer.error
    assert kind == "poptorch.Error", f"{kind}: {message}"
    if answer.is_loaded:  # the run found it out
        assert not ACCIDENT.search(message), message
        return
    assert str(path) in message and not INTERNAL.search(message), message
    assert "is damaged" not in message or MEMBER.search(message), message


@budget(80)
@given(st.randoms(use_true_random=False))
def test_damaged_files(saved, runner, tmp_path_factory, draw):
    name = draw.choice(sorted(saved))
    good, result = saved[name]
    others = {member: content for other in saved if other != name
              for member, content in unpacked(saved[other][0]).items()}
    bad, what, is_signed = damages(draw, good, others)
    note(what)
    path = tmp_path_factory.getbasetemp() / "bad.poptorch"
    path.write_bytes(bad)
    answer = runner.ask(Task(str(path), name, draw.random() < 0.5), TIMEOUT_S)
    assert answer.peak_bytes < MOST_BYTES
    if answer.error is not None:
        check_refused(answer, path)
    else:  # a program that was changed and signed again is a different program
        assert is_signed or answer.result == result


@budget(30)
@given(st.randoms(use_true_random=False))
def test_other_addresses(saved, runner, tmp_path_factory, draw):
    name = draw.choice(sorted(saved))
    good, result = saved[name]
    members = unpacked(good)
    members["plan.ir"] = moved(draw, members["plan.ir"].decode()).encode()
    path = tmp_path_factory.getbasetemp() / "moved.poptorch"
    path.write_bytes(packed(members, [], True))
    answer = runner.ask(Task(str(path), name, False), TIMEOUT_S)
    if answer.error is not None:
        check_refused(answer, path)
        assert not answer.is_loaded, answer.error
    else:
        assert answer.result == result
