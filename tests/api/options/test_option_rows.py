"""One more option: its row is all that setters, printing, copies, files and pages need."""

import copy
import inspect
from dataclasses import replace
from typing import Self

import pytest
import torch

import poptorch
from poptorch import Options
from poptorch._base.checks import Int
from poptorch._runtime import settings
from poptorch.options._group import OptionGroup
from poptorch.options._row import option
from tests.docs.reference_pages import _table
from tests.helpers import quiet_options


class More(OptionGroup, part_of="Options"):
    @option("rounds", 1, Int(1, 8), example=3)
    def setRounds(self, rounds: int, /) -> Self:
        """Sets how often a call runs its steps.

        Args:
            rounds: 1 to 8.
        """

    @option("spin", 1, Int(1), example=2, later="devices")
    def setSpin(self, spin: int) -> Self:
        """Sets no more than a row."""

    @option("pace", 1, Int(1), example=2, is_run_time=True)
    def setPace(self, pace: int) -> Self:
        """Sets an option of the host alone."""

    @option("low", 0, Int(0), doc="The lower end.")
    @option("high", 9, Int(0), doc="The upper end.")
    def setEnds(self, low: int, high: int = 5) -> Self:
        """Sets two options at once."""


@pytest.fixture(autouse=True)
def more_options(monkeypatch):
    monkeypatch.setattr(Options, "_ROWS", (*Options._ROWS, *More._ROWS))
    for row in More._ROWS:
        monkeypatch.setattr(Options, row.setter, getattr(More, row.setter), raising=False)


def test_the_setter_that_a_row_gives():
    assert str(inspect.signature(Options.setRounds)) == "(self, rounds: int, /) -> Self"
    assert Options.setRounds.__qualname__ == "Options.setRounds"
    assert inspect.getdoc(Options.setRounds) == """Sets how often a call runs its steps.

Args:
    rounds: 1 to 8.

Returns:
    This object, so that calls can be chained.

Raises:
    TypeError, ValueError: ``rounds`` is not an int from 1 to 8.

Example:
    >>> import poptorch
    >>> poptorch.Options().setRounds(3)
    Options(rounds=3)"""
    for arguments, words in (((), "missing 1 required"), ((1, 2), "takes 2 positional")):
        with pytest.raises(TypeError, match=rf"Options.setRounds\(\) {words}"):
            Options().setRounds(*arguments)


def test_a_setter_of_two_options():
    for options in (Options().setEnds(1), Options().setEnds(low=1), Options().setEnds(1, high=5)):
        assert repr(options) == "Options(low=1, high=5)"
    unchanged = Options()
    with pytest.raises(ValueError, match=r"\[setEnds high\] expected an int of at least 0, got -1"):
        unchanged.setEnds(3, -1)
    assert unchanged == Options()


def test_what_the_row_gives(tmp_path, monkeypatch):
    options = Options().setRounds(3)
    assert options.rounds == 3 and repr(options) == "Options(rounds=3)"
    assert options != Options() and copy.deepcopy(options) == options == options.clone()
    assert options.toDict()["rounds"] == 3 and Options.fromDict(options.toDict()) == options
    path = tmp_path / "options.cfg"
    path.write_text("setRounds(3)\n")
    assert Options().loadFromFile(path) == options
    assert "| `rounds` | `setRounds` | `1` | an int from 1 to 8 | Sets how often" in _table(Options)
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", '{"setRounds": 3}')
    assert Options() == options


def test_what_is_refused():
    for bad, kind in ((0, ValueError), (9, ValueError), ("2", TypeError), (True, TypeError)):
        with pytest.raises(kind, match=r"\[setRounds\] expected an int from 1 to 8, got"):
            Options().setRounds(bad)
    with pytest.raises(ValueError, match=r"\[setRounds\] expected an int from 1 to 8, got 0"):
        Options().rounds = 0
    with pytest.raises(AttributeError, match=r"are set by calling their method: setRounds\(3\)"):
        Options().setRounds = 3
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
