"""``python -m poptorch report``."""

import json
import textwrap

import pytest

import poptorch
from poptorch.__main__ import main
from poptorch._command.given.model_arguments import OPTIMIZERS

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

    class Modes(torch.nn.Module):
        def forward(self, x):
            return x.sin() if self.training else x.cos()

    class Plain(torch.nn.Module):
        def forward(self, index):
            return index + 1
"""


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.py"
    path.write_text(textwrap.dedent(NET))
    return path


def test_page(net):
    assert main(["report", "net.py:Net", "--input", "f32[16,64]", "-o", "report.html"]) == 0
    page = net.with_name("report.html").read_text()
    assert "<title>Net, inference</title>" in page


def test_json(net, capsys):
    words = ["report", "net.py:Net", "--input", "f32[16,64]", "-o", "r.json"]
    assert main(words) == 0 and capsys.readouterr().out == ""
    assert main([*words[:4], "--json", "--compare", "r.json"]) == 0
    found = json.loads(capsys.readouterr().out)
    changes = found.pop("changes")
    assert found == json.loads(net.with_name("r.json").read_text())
    assert changes == "no differences"


def test_text_options_and_types(net, capsys):
    words = ["report", "net.py:Plain", "--input", "i32[4]", "--options", "ipu_target=bow",
             "device_iterations=2"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert text.startswith("Plain, inference on 1 IPU (bow)") and "device_iterations=2" in text


def test_inference_is_in_evaluation_mode(net):
    words = ["report", "net.py:Modes", "--input", "f32[8]"]
    assert main([*words, "-o", "r.json"]) == 0
    report = poptorch.DeviceReport.from_json(net.with_name("r.json"))
    assert "cos" in {row.op for row in report.ops}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training(net, optimizer):
    words = ["report", "net.py:Net", "--input", "f32[8,64]", "--optimizer", optimizer]
    assert main([*words, "-o", "r.json"]) == 0
    report = poptorch.DeviceReport.from_json(net.with_name("r.json"))
    assert report.title == "Net, training"
    assert {row.part for row in report.ops} == {"forward", "backward", "update"}
    assert (report.memory["optimizer"] > 1000) == (optimizer != "sgd")


def test_comparison(net, capsys):
    words = ["report", "net.py:Net", "--input"]
    assert main([*words, "f32[8,64]", "-o", "old.json"]) == 0
    assert main([*words, "f32[16,64]", "--compare", "old.json"]) == 0
    assert "changes from old.json:\ncycles: " in capsys.readouterr().out
    assert main([*words, "f32[8,64]", "--compare", "old.json", "-o", "both.html"]) == 0
    assert "<title>Net, inference and Net, inference</title>" in \
        net.with_name("both.html").read_text()


def test_what_the_file_has(net, capsys):
    net.write_text(net.read_text() + "\ninputs = torch.ones(6, 64)\n"
                   "def options():\n    return poptorch.Options().deviceIterations(3)\n")
    assert main(["report", "net.py:Net"]) == 0
    assert "device_iterations=3" in capsys.readouterr().out
    assert main(["report", "net.py:Net", "--options", "device_iterations=2", "-o", "r.json"]) == 0
    options = json.loads(net.with_name("r.json").read_text())["options"]
    assert options == {"device_iterations": "2"}


X = ["--input", "f32[8,64]"]


@pytest.mark.parametrize("words, message", [
    (["net.py"], "expected file.py:Name, got 'net.py'"),
    (["no.py:Net"], "there is no file no.py"),
    (["net.py:Net"], "does not define inputs. It defines Net, Modes, Plain. Pass the "),
    (["net.py:Net", "--input", "8,64"], "expected an input like f32[8,3,224,224], got '8,64'"),
    (["net.py:Net", "--input", "q4[8]"], "The types are f32, f16, bf16, i64, i32, u8, bool."),
    (["net.py:Net", *X, "-o", "r.txt"], "expected an output of .html or .json, got 'r.txt'"),
    (["none.py:Net", "-o", "none/r.html"],
     "[report] cannot write none/r.html: there is no folder "),
    (["net.py:Net", *X, "--options", "x"],
     "expected an option like device_iterations=4 or file.py:name, got 'x'"),
    (["net.py:Net", *X, "--options", "device_iteration=4"], "unknown option 'device_iteration'"),
    (["net.py:Net", *X, "--options", "device_iterations=no"], "device"),
    (["net.py:Net", *X, "--compare", "net.py"], "net.py is not a JSON file"),
    (["net.py:Net", *X, "--compare", "none.json"], "none.json"),
])
def test_mistakes(words, message, net, capsys):
    assert main(["report", *words]) == 1
    assert message in capsys.readouterr().err
