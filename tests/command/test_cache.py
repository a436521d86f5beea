"""``python -m poptorch cache``."""

import json
import shlex
import sys
from pathlib import Path

import pytest
import torch

import poptorch
from poptorch.__main__ import main
from poptorch._command.given import model_file
from tests.helpers import quiet_options


class Net(torch.nn.Module):
    def __init__(self, activation=torch.relu):
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)
        self.activation = activation

    def forward(self, x):
        return self.activation(self.fc(x))


def compiled(rows=2, activation=torch.relu, **settings):
    opts = quiet_options(enableExecutableCaching="cache", **settings)
    poptorch.inferenceModel(Net(activation), opts).compile(torch.ones(rows, 8))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compiled()
    return tmp_path / "cache"


def run(words, capsys):
    assert main(["cache", *shlex.split(words)]) == 0
    return capsys.readouterr().out


def test_list(folder, capsys, monkeypatch):
    compiled(rows=3)
    text = run("list --dir cache", capsys)
    assert text.count("Net, inference") == 2 and "    x: float32[3, 8]" in text
    assert "\n2 entries, " in text and all(len(line) <= 80 for line in text.splitlines())
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(folder))
    rows = json.loads(run("list --json", capsys))
    assert {row["arguments"] for row in rows} == {"x: float32[2, 8]", "x: float32[3, 8]"}
    assert all((folder / f"{row['name']}.cached").stat().st_size == row["bytes"] for row in rows)


@pytest.mark.parametrize("change, words", [
    ({"rows": 3}, ["arguments: x: float32[2, 8] -> x: float32[3, 8]"]),
    ({"deterministic": True}, ["option deterministic is_deterministic: default -> True",
                               "deterministic: False -> True"]),
    ({"activation": torch.tanh}, ["test_cache.py:", "- %", "relu", "+ %", "tanh"]),
])
def test_why(change, words, capsys):
    assert "was compiled first" in run("why --dir cache", capsys)
    compiled(**change)
    text = run("why --dir cache", capsys)
    assert "was compiled because it differs from " in text
    assert all(word in text for word in words), text
    found = json.loads(run("why --dir cache --json", capsys))
    assert found["nearest"] and all(line in text for line in found["differences"])
    assert run(f"why {found['name'][:6]} --dir cache", capsys) == text


def test_why_compares_with_the_nearest(capsys):
    compiled(deterministic=True, rows=5)
    compiled(rows=5)
    text = run("why --dir cache", capsys)
    assert "deterministic" not in text and "arguments: x: float32[2, 8] -> " in text


SOURCE = """
import torch

class Written(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)

    def forward(self, x):
        y = torch.tanh(self.fc(x))
        return y * 0.5
"""


@pytest.mark.parametrize("line, changed, words", [
    ("def forward", "# comment\n    def forward", [
        "the operations are the same, at other lines of your files: ", "written.py:10 fc -> ",
        "written.py:11 fc"]),
    ("y = torch", "x = x.abs()\n        y = torch", ["written.py:10:", "+ %0 = abs %x "]),
    ("y * 0.5", "y * 0.25", ["written.py:11:", "- %3 = constant {data=[0.5], ",
                             "+ %3 = constant {data=[0.25], "]),
    ("y * 0.5", "x[:, 1:5] + 0.5 * y", ["written.py:11:", " = slice %x ",
                                        " = add %"]),
])
def test_why_shows_the_lines_that_differ_alone(line, changed, words, capsys, monkeypatch):
    for source in (SOURCE, SOURCE.replace("tanh", "sigmoid"), SOURCE.replace(line, changed)):
        Path("written.py").write_text(source)
        module = model_file.module_of("written.py", "test")
        opts = quiet_options(enableExecutableCaching="cache")
        poptorch.inferenceModel(module.Written(), opts).compile(torch.ones(2, 8))
    sys.modules.pop("written")
    text = run("why --dir cache", capsys)
    assert all(word in text for word in words), text
    assert not any(word in text for word in ("sigmoid", "permute", "more lines")), text


def test_prune(folder, capsys):
    compiled(rows=3)
    first = next(folder.iterdir())
    first.write_bytes(b"damaged")
    (folder / ".poptorch-0-1.part").touch()
    (folder / ".poptorch-2.lock").touch()
    (folder / "other").touch()
    text = run("prune --dir cache", capsys)
    assert "\n3 files removed, 1 entries left" in text and not first.exists()
    assert len(list(folder.iterdir())) == 2 and (folder / "other").exists()
    found = json.loads(run("prune --dir cache --max-bytes 0 --json", capsys))
    assert len(found["removed"]) == 1 and found["left"] == 0


@pytest.mark.parametrize("words, message", [
    ("list", "[cache] no folder is given. Pass --dir"),
    ("list --dir nothing", "[cache] nothing is not a folder. Pass"),
    ("why zz --dir cache", "[cache] cache has no entry 'zz'. `python -m poptorch cache list`"),
    ("why damaged --dir cache", "[cache] the entry damaged is damaged. `python -m poptorch cache "
                                "prune` removes it; the next compilation writes it again."),
])
def test_errors(words, message, folder, capsys, monkeypatch):
    (folder / "damaged.cached").write_bytes(b"damaged")
    monkeypatch.delenv("POPTORCH_CACHE_DIR", raising=False)
    assert main(["cache", *words.split()]) == 1
    assert capsys.readouterr().err.startswith(message)


def test_a_limit_below_zero(folder, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["cache", "prune", "--dir", "cache", "--max-bytes", "-1"])
    assert "expected a whole number of at least 0, got '-1'" in capsys.readouterr().err
    assert len(list(folder.iterdir())) == 1


def test_list_shows_sizes_and_damage(folder, capsys):
    (folder / "bad.cached").write_bytes(b"damaged")
    lines = run("list --dir cache", capsys).splitlines()
    damaged = next(line for line in lines if line.startswith("bad "))
    assert damaged.endswith("damaged") and "  7 bytes  used " in damaged
    assert any(" KiB  used " in line for line in lines) and all(line.strip() for line in lines)
