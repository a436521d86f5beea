"""``poptorch compile`` and ``poptorch estimate``."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch

import poptorch
from poptorch._command.parser import main

pytestmark = pytest.mark.usefixtures("folder")


def test_inference_with_weights(capsys):
    words = "compile net.py:Net --weights net.safetensors -o net.poptorch --json"
    assert main(words.split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == "net.poptorch" and found["ipus"] == 1 and not found["training"]
    assert found["bytes"] == Path("net.poptorch").stat().st_size and found["seconds"] > 0
    state = safetensors.torch.load_file("net.safetensors")
    model, x = poptorch.load("net.poptorch"), torch.randn(16, 64)
    expected = torch.nn.functional.linear(x, state["fc.weight"], state["fc.bias"]) * 2
    assert torch.allclose(model(x)[0], expected, atol=1e-4)
    assert not model.model.training


def test_training(capsys):
    words = "compile net.py:Plain --input f32[8,64] --input i64[8] --optimizer adam " \
            "--learning-rate 0.125 --loss CrossEntropyLoss -o net.poptorch " \
            "--options gradient_accumulation=2"
    assert main(words.split()) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("wrote net.poptorch: training, 1 IPU, ")
    model = poptorch.load("net.poptorch")
    assert model.training and model.options.Training.gradient_accumulation == 2
    (group,) = model._optimizer.optimizer.param_groups
    assert group["lr"] == 0.125
    output, loss = model(torch.randn(8, 64), torch.zeros(8, dtype=torch.int64))
    assert output.shape == (4, 8) and loss.shape == ()


@pytest.mark.parametrize("words, message", [
    ("net.py:Plain --loss MSELoss", "[compile] --loss is for training, and there is no "
                                    "--optimizer. Add one."),
    ("net.pt2", "[compile] net.pt2 is a torch.export program, and commands take Python files. In "
                "Python, pass torch.export.load('net.pt2') to inferenceModel()"),
    ("net.py:Non", "net.py does not define Non. It defines"),
    ("net.py:Plain --weights none.safetensors", "none.safetensors"),
    ("net.py:Plain --weights net.safetensors", "[compile] the weights of net.safetensors are not "
                                               "those of the model: Missing key(s) in state_dict: "
                                               "\"weight\", \"bias\"; Unexpected key(s) in "
                                               "state_dict: \"fc.bias\", \"fc.weight\". Pass a "
                                               "file of the same model."),
    ("net.py:Plain --input f32[2,3]", "[linear] mat1 and mat2 shapes"),
])
def test_errors(words, message, capsys):
    assert main(["compile", *words.split(), "-o", "out.poptorch"]) == 1
    shown = capsys.readouterr().err
    assert message in shown and "Traceback" not in shown and not Path("out.poptorch").exists()


LARGE = """
import torch

net = torch.nn.Sequential(*[
    torch.nn.Linear(8192, 8192, dtype=torch.float16, device="meta") for _ in range(8)])
inputs = torch.zeros(16, 8192, dtype=torch.float16)
"""


def test_no_folder_for_the_file(capsys, monkeypatch):
    monkeypatch.setattr("poptorch._command.given.model_file.read", None)
    assert main("compile net.py:Plain -o none/out.poptorch".split()) == 1
    assert "[compile] cannot write none/out.poptorch: there is no folder " in \
        capsys.readouterr().err


def test_estimate(capsys):
    assert main("estimate net.py:Net --json".split()) == 0
    found = json.loads(capsys.readouterr().out)
    report = poptorch.estimate(torch.nn.Linear(64, 8), poptorch.Options(), torch.ones(16, 64))
    assert found["fits"] and found["ipus"] == 1 and found["target"] == "gc200"
    assert found["memory"]["parameters"] == report.memory["parameters"]
    assert found["tile_bytes"] < found["tile_limit_bytes"] and "changes" not in found


def test_estimate_of_a_model_that_does_not_fit(capsys):
    Path("large.py").write_text(LARGE)
    words = "estimate large.py:net --options device_iterations=4".split()
    assert main(words) == 1
    shown = capsys.readouterr().out
    assert "\nfits                 no\n" in shown
    assert main([*words, "--fit", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] and found["changes"] and found["ipus"] == 2
    assert main([*words, "--fit"]) == 0
    shown = "".join(capsys.readouterr().out.split())
    assert f"change{''.join(found['changes'][0].split())}" in shown
