"""``python -m poptorch cache``."""

import json
import shlex

import pytest
import torch

import poptorch
from poptorch.__main__ import main
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
])
def test_errors(words, message, capsys, monkeypatch):
    monkeypatch.delenv("POPTORCH_CACHE_DIR", raising=False)
    assert main(["cache", *words.split()]) == 1
    assert capsys.readouterr().err.startswith(message)
