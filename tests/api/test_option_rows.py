"""One more option: a row and its setter are all that printing, copies, files and pages need."""

import copy
from dataclasses import replace

import pytest
import torch

import poptorch
from poptorch import Options
from poptorch._base.checks import Int
from poptorch._runtime import settings
from poptorch.options._group import Row
from tests.docs.reference_pages import _table
from tests.helpers import quiet_options

ROWS = (Row("rounds", 1, "How often a call runs its steps.", Int(1, 8), "setRounds"),
        Row("spin", 1, "No more than a row.", Int(1), "setSpin", later="cache"),
        Row("pace", 1, "Of the host alone.", Int(1), "setPace", is_run_time=True))


def setter_of(row):
    return lambda self, value: self._set(row.name, value)


@pytest.fixture(autouse=True)
def more_options(monkeypatch):
    monkeypatch.setattr(Options, "_ROWS", (*Options._ROWS, *ROWS))
    for row in ROWS:
        monkeypatch.setattr(Options, row.setter, setter_of(row), raising=False)


def test_what_the_row_gives(tmp_path, monkeypatch):
    options = Options().setRounds(3)
    assert options.rounds == 3 and repr(options) == "Options(rounds=3)"
    assert options != Options() and copy.deepcopy(options) == options == options.clone()
    assert options.toDict()["rounds"] == 3 and Options.fromDict(options.toDict()) == options
    path = tmp_path / "options.cfg"
    path.write_text("setRounds(3)\n")
    assert Options().loadFromFile(path) == options
    assert "| `rounds` | `setRounds` | `1` | an int from 1 to 8 | How often" in _table(Options)
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", '{"setRounds": 3}')
    assert Options() == options


def test_what_is_refused():
    for bad, kind in ((0, ValueError), (9, ValueError), ("2", TypeError), (True, TypeError)):
        with pytest.raises(kind, match=r"\[setRounds\] expected an int from 1 to 8, got"):
            Options().setRounds(bad)
    with pytest.raises(AttributeError, match=r"are set by calling their method: setRounds\(3\)"):
        Options().rounds = 3
    with pytest.raises(AttributeError, match="Did you mean rounds or setRounds"):
        Options().round  # noqa: B018
    used = quiet_options()
    poptorch.inferenceModel(torch.nn.ReLU(), used)
    with pytest.raises(AttributeError, match=r"Can't modify frozen Options \(setRounds\)"):
        used.setRounds(3)


def test_an_option_without_effect_says_so_once(capsys):
    Options().setSpin(2).setSpin(3)
    assert capsys.readouterr().err.count("[setSpin] has no effect yet") == 1


def test_the_effect_and_a_file(monkeypatch, tmp_path):
    original = settings.step_spec

    def step_spec(options, *more):
        found = original(options, *more)
        return replace(found, device_iterations=found.device_iterations * options.rounds)

    monkeypatch.setattr(settings, "step_spec", step_spec)
    model = poptorch.inferenceModel(torch.nn.ReLU(), quiet_options(setRounds=3))
    x = torch.randn(6, 2)
    assert torch.equal(model(x), x.relu()) and "count=3" in model.ir("translate")
    again = poptorch.load(model.save(str(tmp_path / "net.poptorch")))
    assert again.options.rounds == 3 and torch.equal(again(x), x.relu())
    path = str(tmp_path / "net.poptorch")
    edited = poptorch.load(path, edit_opts_fn=lambda options: options.setPace(2))
    assert edited.options.pace == 2
    with pytest.raises(poptorch.Error, match="edit_opts_fn changed rounds from 3 to 4"):
        poptorch.load(path, edit_opts_fn=lambda options: options.setRounds(4))
    with pytest.raises(poptorch.Error, match="compiled with device_iterations=3, .*specifies "
                                             "device_iterations=6"):
        poptorch.inferenceModel(torch.nn.ReLU(), quiet_options(setRounds=6)).loadExecutable(path)
