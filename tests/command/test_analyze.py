"""``python -m poptorch analyze``."""

import json
import textwrap

import pytest

from poptorch.__main__ import main

NET = """
    import torch
    import poptorch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 8)

        def forward(self, x):
            y = self.fc(x)
            return y, poptorch.identity_loss(y.square(), "mean")

    class Plain(torch.nn.Linear):
        def __init__(self):
            super().__init__(64, 8)

    class Sizes(torch.nn.Module):
        def forward(self, x):
            return x.nonzero()

    inputs = torch.ones(2, 64)
"""
SETTINGS = """
    import poptorch

    four = poptorch.Options().deviceIterations(4)

    def eight():
        return poptorch.Options().deviceIterations(8)

    other = 3
"""


@pytest.fixture(autouse=True)
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(textwrap.dedent(NET))
    (tmp_path / "settings.py").write_text(textwrap.dedent(SETTINGS))


def test_the_exit_status_of_a_refused_operation(capsys):
    assert main(["analyze", "net.py:Sizes", "--input", "f32[3]"]) == 1
    assert "torch.Tensor.nonzero is refused at" in capsys.readouterr().out


def test_json_and_training(capsys):
    assert main(["analyze", "net.py:Net", "--optimizer", "adam", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["title"] == "Net, training" and "net.py:12" in found["loss"]


def test_a_wrong_input(capsys):
    assert main(["analyze", "net.py:Net", "--input", "f31[3]"]) == 1
    assert "[analyze] expected an input like f32[8,3,224,224], got 'f31[3]'" in \
        capsys.readouterr().err


def _flops(capsys, *options):
    words = ["analyze", "net.py:Plain", "--input", "f32[16,64]", "--json"]
    assert main([*words, *(["--options", *options] if options else [])]) == 0
    return sum(row["flops"] for row in json.loads(capsys.readouterr().out)["rows"])


def test_options(capsys):
    whole = _flops(capsys)
    for words, parts in ((["device_iterations=4"], 4), (["settings.py:four"], 4),
                         (["settings.py:eight"], 8),
                         (["settings.py:eight", "device_iterations=2"], 2)):
        assert _flops(capsys, *words) == whole // parts


@pytest.mark.parametrize("words, message", [
    (["settings.py:other"], "settings.py:other is an object of int. Name a poptorch.Options"),
    (["settings.py:none"], "does not define none. It defines"),
    (["settings"], "expected an option like device_iterations=4 or file.py:name, got 'settings'"),
    (["settings.py:four", "settings.py:eight"], "expected one file.py:name with options"),
    (["device_iteration=4"], "device_iteration"),
    (["gradient_accumulation=4"], "gradientAccumulation must be 1 for inference"),
])
def test_wrong_options(capsys, words, message):
    assert main(["analyze", "net.py:Plain", "--input", "f32[16,64]", "--options", *words]) == 1
    assert message in capsys.readouterr().err
