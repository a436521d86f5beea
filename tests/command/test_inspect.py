"""``poptorch inspect``: what a file holds, without the classes of its model."""

import json

import pytest
import torch

import poptorch
from poptorch._command.parser import main
from tests.helpers import quiet_options


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, words):
        return {"y": self.fc(x).half(), "airy": torch.special.airy_ai(x), "n": words.sum()}


@pytest.fixture
def file(tmp_path):
    model = poptorch.inferenceModel(Net(), quiet_options(deviceIterations=2))
    model.compile(torch.ones(6, 4), torch.ones(8, 3, dtype=torch.int64))
    return model, model.save(str(tmp_path / "net.poptorch"), export_model=False)


def test_json(file, capsys):
    model, path = file
    assert main(["inspect", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"] == [{"name": "x", "shape": [6, 4], "dtype": "float32"},
                               {"name": "words", "shape": [8, 3], "dtype": "int32"}]
    assert found["outputs"] == [{"name": "output0", "shape": [6, 2], "dtype": "float16"},
                                {"name": "output1", "shape": [6, 4], "dtype": "float32"},
                                {"name": "output2", "shape": [2], "dtype": "int32"}]
    assert found["weights"] == [
        {"name": "calls", "shape": [], "dtype": "int64", "bytes": 8},
        {"name": "fc.weight", "shape": [2, 4], "dtype": "float32", "bytes": 32},
        {"name": "fc.bias", "shape": [2], "dtype": "float32", "bytes": 8}]
    assert found["options"] == json.loads(json.dumps(model.options.toDict()))
    assert found["memory"] == json.loads(json.dumps(model.memory_report()))
    assert found["operators"] == model.op_report()
    assert found["torch"] == {"version": torch.__version__,
                              "operators": ["aten::special_airy_ai"]}
    assert found["target"]["ipus"] == 1 and not found["training"] and found["model"] == "Net"


def test_text(file, capsys):
    assert main(["inspect", file[1]]) == 0
    shown = capsys.readouterr().out
    for line in ("model      Net, inference", "input      x float32[6, 4]",
                 "output     output2 int32[2]", "weights    3 tensors, 48 bytes",
                 "option     device_iterations=2", "option     show_compilation_progress_bar=False",
                 "memory     parameters: 40 bytes"):
        assert f"{line}\n" in shown, shown
    assert "operators: aten::special_airy_ai\n" in shown and "num_io_tiles" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_another_file(tmp_path, capsys):
    (tmp_path / "x.poptorch").write_text("text")
    assert main(["inspect", str(tmp_path / "x.poptorch")]) == 1
    shown = capsys.readouterr().err
    assert "x.poptorch" in shown and "Traceback" not in shown
