"""``poptorch train``: the losses and weights of Python and of poptorch-run."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import safetensors.torch
import torch

import poptorch
from poptorch._command.given import model_file
from poptorch._command.parser import main
from tests.helpers import quiet_options

RUNNER = Path(poptorch.__file__).parent / "lib" / "poptorch-run"
STEPS, BATCH = 3, 4


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, label = torch.randn(STEPS * BATCH, 6), torch.randint(0, 3, (STEPS * BATCH,))
    numpy.save("x.npy", x.numpy())
    numpy.save("label.npy", label.numpy())
    return x, label


@pytest.fixture
def model(data):
    net = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Dropout(0.2))
    optimizer = poptorch.optim.AdamW(net.parameters(), lr=0.01)
    loss = torch.nn.CrossEntropyLoss()
    model = poptorch.trainingModel(net, quiet_options(), optimizer, loss=loss)
    model.compileAndExport("net.poptorch", *(part[:BATCH] for part in data))
    return model


def losses(model, data, steps):
    places = [step % STEPS * BATCH for step in range(steps)]
    return [model(*(part[at:at + BATCH] for part in data))[1].item() for at in places]


def same(file, other):
    one, two = map(safetensors.torch.load_file, (file, other))
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


TRAIN = "train {} --data x.npy label.npy --steps {} --out {}"


def test_as_in_python_and_without_it(model, data, capsys):
    assert main(TRAIN.format("net.poptorch", 5, "w.safetensors").split()) == 0
    shown = capsys.readouterr().out
    assert [float(line) for line in shown.split()] == losses(model, data, 5)
    poptorch.save_weights(model, "own.safetensors")
    assert same("w.safetensors", "own.safetensors")
    words = TRAIN.format("net.poptorch", 5, "theirs.safetensors").split()
    done = subprocess.run([RUNNER, *words], check=True, capture_output=True, text=True)
    assert done.stdout == shown and same("w.safetensors", "theirs.safetensors")


def test_continued(model, data, capsys):
    words = TRAIN.format("net.poptorch", STEPS, "w.safetensors").split()
    assert main([*words, "--save", "later.poptorch", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["weights"] == "w.safetensors" and first["program"] == "later.poptorch"
    assert main([*TRAIN.format("later.poptorch", 2, "end.safetensors").split(), "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert [loss for loss, in first["losses"] + second["losses"]] == losses(model, data, STEPS + 2)


def test_other_weights(model, data, capsys):
    state = {"0.weight": torch.zeros(3, 6), "0.bias": torch.zeros(3)}
    safetensors.torch.save_file(state, "zero.safetensors")
    words = TRAIN.format("net.poptorch", 1, "w.safetensors").split()
    assert main([*words, "--weights", "zero.safetensors"]) == 0
    assert float(capsys.readouterr().out) == pytest.approx(torch.tensor(3.0).log().item())


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, value):
        return poptorch.identity_loss(self.scale * value, "none")


def test_a_number_as_input_and_a_loss_that_is_not_finite(capsys):
    model = poptorch.trainingModel(Scaled(), quiet_options())
    model.compileAndExport("net.poptorch", torch.ones(()))
    numpy.save("value.npy", numpy.array([float("inf"), 1.0], dtype=numpy.float32))
    words = "train net.poptorch --data value.npy --steps 1 --out w.safetensors --json"
    assert main(words.split()) == 0
    assert json.loads(capsys.readouterr().out)["losses"] == [["inf"]]


OWN = """
import torch

class Own(torch.optim.SGD):
    pass
"""


def test_an_optimizer_of_the_program(data, capsys):
    Path("own.py").write_text(OWN)
    kind = model_file.module_of("own.py", "test").Own
    net = torch.nn.Linear(6, 3)
    loss = torch.nn.CrossEntropyLoss()
    model = poptorch.trainingModel(net, quiet_options(), kind(net.parameters(), 0.1), loss=loss)
    model.compileAndExport("net.poptorch", *(part[:BATCH] for part in data))
    sys.modules.pop("own")
    words = TRAIN.format("net.poptorch", 2, "w.safetensors").split()
    assert main(words) == 1
    assert "import own before loading. Use --import to import a Python file" in \
        capsys.readouterr().err
    assert main([*words, "--import", "own.py"]) == 0
    assert [float(line) for line in capsys.readouterr().out.split()] == losses(model, data, 2)
    sys.modules.pop("own")


KINDS = """
import enum
import torch

class Mode(enum.Enum):
    LOW = 1

class Note:
    pass

def scaled(x):
    return 2 * x

class Outer:
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(6, 3)
            self.mode, self.note, self.function = Mode.LOW, Note(), scaled

        def forward(self, x):
            return self.function(self.fc(x))
"""


def test_continued_without_the_classes_of_the_program(data, capsys):
    Path("kinds.py").write_text(KINDS)
    net = model_file.module_of("kinds.py", "test").Outer.Net()
    loss = torch.nn.CrossEntropyLoss()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.Adam(net.parameters()),
                                   loss=loss)
    model.compileAndExport("net.poptorch", *(part[:BATCH] for part in data))
    kept = sys.modules.pop("kinds")
    words = TRAIN.format("net.poptorch", STEPS, "w.safetensors").split()
    assert main([*words, "--save", "later.poptorch"]) == 0, capsys.readouterr().err
    assert main(TRAIN.format("later.poptorch", 2, "end.safetensors").split()) == 0
    shown = capsys.readouterr().out
    assert "kinds" not in sys.modules
    assert [float(line) for line in shown.split()] == losses(model, data, STEPS + 2)
    sys.modules["kinds"] = kept
    again = poptorch.load("later.poptorch")
    assert type(again.model).__qualname__ == "Outer.Net" and again.model.function is kept.scaled
    sys.modules.pop("kinds")


@pytest.mark.parametrize("option", ["--out", "--save"])
def test_no_folder_for_what_is_written(option, model, capsys):
    words = TRAIN.format("net.poptorch", 1, "w.safetensors").split()
    assert main([*words, option, "none/file"]) == 1
    shown = capsys.readouterr()
    assert "[train] cannot write none/file: there is no folder " in shown.err
    assert shown.out == "" and not Path("w.safetensors").exists()


def test_weights_of_another_model(model, capsys):
    state = {"0.weight": torch.zeros(2, 6), "1.bias": torch.zeros(3)}
    safetensors.torch.save_file(state, "other.safetensors")
    words = TRAIN.format("net.poptorch", 1, "w.safetensors").split()
    assert main([*words, "--weights", "other.safetensors"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("[train] the weights of other.safetensors are not those of the model: "
                            "Missing key(s) in state_dict: \"0.bias\"; Unexpected key(s) in "
                            "state_dict: \"1.bias\"; size mismatch for 0.weight: ")
    assert shown.endswith(". Pass a file of the same model.\n")


@pytest.mark.parametrize("change, message", [
    ("x.npy", "[train] expected 2 arrays (args.0, args.1), got 1."),
    ("short.npy label.npy", "[train] the array for args.0 is float32[6, 6], expected batches of "
                            "float32[4, 6] one after the other. Save them as one array."),
    ("one.npy label.npy", "[train] the arrays have different numbers of batches: {'args.0': 1, "
                          "'args.1': 3}. Give all the same number."),
    ("label.npy x.npy", "[train] the array for args.0 is int64[12], expected batches of"),
    ("int.npy label.npy", "[train] a batch for args.0 is int32[4, 6], and the program takes"),
])
def test_errors(change, message, model, capsys):
    numpy.save("short.npy", numpy.ones((6, 6), dtype=numpy.float32))
    numpy.save("one.npy", numpy.ones((4, 6), dtype=numpy.float32))
    numpy.save("int.npy", numpy.ones((12, 6), dtype=numpy.int32))
    words = ["train", "net.poptorch", "--steps", "2", "--out", "w.safetensors", "--data"]
    assert main([*words, *change.split()]) == 1
    shown = capsys.readouterr().err
    assert message in shown and not Path("w.safetensors").exists(), shown


def test_a_program_for_inference(capsys):
    model = poptorch.inferenceModel(torch.nn.Linear(6, 3), quiet_options())
    model.compileAndExport("net.poptorch", torch.ones(2, 6))
    assert main(TRAIN.format("net.poptorch", 1, "w.safetensors").split()) == 1
    assert "[train] net.poptorch is a program for inference. Compile one for training" in \
        capsys.readouterr().err
