"""The command line as a whole: help, examples, exit status, near names."""

import json
import os
import shlex
import subprocess
import sys

import pytest

from poptorch._command.given import model_file
from poptorch._command.parser import COMMANDS, commands_of, main, parser
from tests.command.folder import fill
from tests.helpers import ROOT

EXAMPLES = [example for module in COMMANDS.values() for example in module.EXAMPLES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("command")
    fill(path)
    return path


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(example, folder, monkeypatch, capsys):
    """The first ones write files for the others, which are made if a test runs alone."""
    monkeypatch.chdir(folder)
    words = shlex.split(example.replace("\\\n", " "))
    while words[0] != "poptorch":
        monkeypatch.setenv(*words.pop(0).split("="))
    for name in ("net.poptorch", "train.poptorch", "old.json"):
        if name in words[2:] and not (folder / name).exists():
            made = next(one for one in EXAMPLES if one.endswith(f"-o {name}"))
            assert main(shlex.split(made.replace("\\\n", " "))[1:]) == 0
            capsys.readouterr()
    assert main(words[1:]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    if "--json" in words:
        assert json.loads(shown) is not None
    elif words[1] not in ("analyze", "how", "include", "opt", "report"):
        assert all(len(line) <= 80 for line in shown.splitlines()), shown
    assert shown or "-o" in words


@pytest.mark.parametrize("name", COMMANDS)
def test_help(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and f"usage: poptorch {name}" in shown
    assert all(example in shown for example in COMMANDS[name].EXAMPLES)
    assert all(len(line) <= 80 for line in shown.splitlines()), shown


def test_the_list_of_commands(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"\n    {name} " in shown for name in COMMANDS)
    assert all(len(line) <= 80 for line in shown.splitlines()), shown
    assert commands_of(parser()).keys() == COMMANDS.keys()


@pytest.mark.parametrize("words, message", [
    ([], "the following arguments are required: COMMAND"),
    (["complie", "net.py"], "there is no command 'complie'. Did you mean compile"),
    (["estimat"], "Did you mean estimate"),
    (["zzz"], "there is no command 'zzz'."),
    (["run", "net.poptorch", "--outdr", "out"], "unrecognized arguments: --outdr out. Did you mean "
                                                "--outdir?"),
    (["run", "net.poptorch", "--repeat", "0"], "expected a whole number of at least 1, got '0'"),
    (["run"], "the following arguments are required: file"),
    (["compile", "net.py:Net"], "the following arguments are required: -o/--output"),
    (["version", "more"], "unrecognized arguments: more."),
    (["cache", "lst"], "Did you mean list?"),
    (["compile", "net.py:Net", "-o", "x", "--optimizer", "adamm"], "Did you mean adam or adamw?"),
])
def test_wrong_command_lines(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    shown = capsys.readouterr().err
    assert ended.value.code == 2 and message in shown and "Traceback" not in shown, shown


def test_errors(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text("1 / 0\n")
    words = ["compile", "bad.py:Net", "-o", "x.poptorch"]
    assert main(words) == 1
    assert capsys.readouterr().err == ("[compile] ZeroDivisionError: division by zero. Run the "
                                       "command again with --debug to see the traceback.\n")
    assert main([*words, "--debug"]) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown and "bad.py" in shown
    assert main(["inspect", "none.poptorch"]) == 1
    shown = capsys.readouterr().err
    assert "none.poptorch" in shown and "Traceback" not in shown


def test_an_interrupt(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(model_file, "read", interrupted)
    assert main(["compile", "net.py:Net", "-o", "x.poptorch"]) == 130


def test_the_process():
    """Both names of the program; a reader that has enough is no error."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "poptorch", "version", "--json"], env=env,
                          capture_output=True, text=True, check=True)
    assert {"poptorch", "torch", "python"} <= json.loads(done.stdout).keys()
    script = 'poptorch = "poptorch._command.parser:main"'
    assert script in (ROOT / "pyproject.toml").read_text()
    done = subprocess.run(f"{sys.executable} -m poptorch ops --json | head -1", shell=True, env=env,
                          capture_output=True, text=True, check=True)
    assert done.stdout == "[\n" and done.stderr == ""
