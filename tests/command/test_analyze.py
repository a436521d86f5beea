"""``python -m poptorch analyze``."""

import json
import shlex
import textwrap

import pytest

from poptorch.__main__ import main
from poptorch._command.report_parser import ANALYZE_EXAMPLE

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

    class Sizes(torch.nn.Module):
        def forward(self, x):
            return x.nonzero()

    inputs = torch.ones(2, 64)
"""


@pytest.fixture(autouse=True)
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(textwrap.dedent(NET))


def test_the_example_of_the_help(capsys):
    assert main(shlex.split(ANALYZE_EXAMPLE)[3:]) == 0
    assert capsys.readouterr().out.startswith("Net, inference: ")


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
