"""``poptorch convert``: settings from options and from a JSON file."""

import json
import sys
from pathlib import Path

import pytest
import torch

import poptorch
from poptorch._command.parser import main

pytestmark = pytest.mark.usefixtures("folder")
X = torch.randn(4, 64)


def convert(capsys, model, *words, config=None):
    if config is not None:
        Path("own.json").write_text(json.dumps(config))
        words = (*words, "--config-file", "own.json")
    assert main(["convert", model, *words, "-o", "out.poptorch", "--json"]) == 0
    return json.loads(capsys.readouterr().out), poptorch.load("out.poptorch")


def test_precision(capsys):
    words = "--precision-mode FP16 --exclude ^head"
    _, model = convert(capsys, "net.py:Deep", *words.split())
    kinds = {name: value.dtype for name, value in model.state_dict().items()}
    assert kinds == {"encoder.0.weight": torch.half, "encoder.0.bias": torch.half,
                     "head.weight": torch.float32, "head.bias": torch.float32}
    _, same = convert(capsys, "net.py:Deep", config={
        "precision_mode": "FP16", "precision_conversion_excluded_nodes": ["^head"]})
    x = torch.ones(16, 64)
    assert torch.equal(model(x), same(x)) and model(x).dtype is torch.half


def test_numbers(capsys):
    config = {"batch_size": 2, "batch_per_step": 3, "matmul_amp": 0.25, "conv_amp": 0.25,
              "conv_partial_type": "half"}
    _, model = convert(capsys, "net.py:Deep", "--batch-per-step", "2", config=config)
    options = model.options
    assert options.device_iterations == 2  # the command line is stronger
    assert options.available_memory_proportion == {0: 0.25}
    assert options.Precision.partials_type is torch.half
    assert model(X).shape == (4, 8)


def test_a_compiled_model(capsys):
    assert main("compile net.py:Deep --options device_iterations=4 -o net.poptorch".split()) == 0
    sys.modules.pop("net")
    capsys.readouterr()
    assert main("convert net.poptorch --batch-size 2 -o out.poptorch".split()) == 1
    assert "import net before loading. Use --import" in capsys.readouterr().err
    words = ["--import", "net.py"]
    _, model = convert(capsys, "net.poptorch", *words, "--batch-per-step", "1")
    assert model(X).shape == (4, 8) and model.options.device_iterations == 1
    _, model = convert(capsys, "net.poptorch", *words, "--batch-size", "1")
    assert model(X).shape == (4, 8) and model.options.device_iterations == 4
    assert torch.allclose(model(X), poptorch.load("net.poptorch").model(X), atol=1e-5)


def test_sharding(capsys):
    expected = convert(capsys, "net.py:Deep", "--batch-size", "4")[1](X)
    config = {"manual_sharding": [["^encoder"], ["head"]], "num_ipus": 2, "batch_size": 4,
              "matmul_amp": 0.5}
    found, model = convert(capsys, "net.py:Deep", config=config)
    assert found["ipus"] == 2 and torch.equal(model(X), expected)
    assert isinstance(model.options.execution_strategy, poptorch.ShardedExecution)
    assert model.options.available_memory_proportion == {0: 0.5, 1: 0.5}
    rows = model.partition_summary().rows
    assert [(row["ipu"], row["blocks"]) for row in rows] == [(0, ["stage0"]), (1, ["stage1"])]
    words = "--manual-sharding ^encoder --manual-sharding head --batch-size 4".split()
    assert convert(capsys, "net.py:Deep", *words)[0]["ipus"] == 2


def test_pipeline(capsys):
    stages = [["^encoder.0"], ["^encoder.1"], ["head"]]
    config = {"pipeline_cfg": {"converter": "manual", "manual_pipeline_config": stages,
                               "device_info": [0, 1, 0]}, "batch_per_step": 4, "batch_size": 1}
    found, model = convert(capsys, "net.py:Deep", config=config)
    assert found["ipus"] == 2 and model(X).shape == (4, 8)
    assert [row["ipu"] for row in model.partition_summary().rows] == [0, 1, 0]
    words = "--pipeline-stage ^encoder.0 --pipeline-stage ^encoder.1 --pipeline-stage head " \
            "--device-info 0 1 0 --batch-per-step 4 --batch-size 1"
    assert torch.equal(convert(capsys, "net.py:Deep", *words.split())[1](X), model(X))


def test_a_pipeline_that_is_found_and_loaded(capsys):
    expected = convert(capsys, "net.py:Deep", "--batch-size", "1", "--batch-per-step", "4")[1](X)
    config = {"pipeline_cfg": {"converter": "auto", "solution_dir": "solution"},
              "batch_per_step": 4, "batch_size": 1}
    found, model = convert(capsys, "net.py:Deep", config=config)
    assert found["ipus"] == 2 and torch.equal(model(X), expected)
    solution = Path("solution/greedy_search.pipeconfig")
    assert json.loads(solution.read_text()) == {
        "device_mapping": [0, 1], "pipeline_mapping": {"encoder.0": 0, "head": 1}}
    rows = model.partition_summary().rows
    assert [(row["ipu"], row["blocks"]) for row in rows] == [(0, ["stage0"]), (1, ["stage1"])]
    solution.write_text(json.dumps({
        "device_mapping": [1, 0, 1], "pipeline_mapping": {"encoder.0": 0, "encoder.1": 1,
                                                          "head": 2}}))
    config["pipeline_cfg"] = {"converter": "load", "solution_path": str(solution)}
    found, model = convert(capsys, "net.py:Deep", config=config)
    assert found["ipus"] == 2 and torch.equal(model(X), expected)
    assert [row["ipu"] for row in model.partition_summary().rows] == [1, 0, 1]


def test_a_pipeline_takes_more_ipus_until_it_fits(capsys):
    Path("long.py").write_text("""
import torch

def make():
    return torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)])

inputs = torch.ones(4, 512)
""")
    tiny = "ipu_target=" + json.dumps({"name": "tiny", "base": "bow", "tile_bytes": 4000,
                                       "interleaved_start": 1000})
    config = {"pipeline_cfg": {"converter": "auto"}, "batch_per_step": 4}
    assert convert(capsys, "long.py:make", "--options", tiny, config=config)[0]["ipus"] == 4
    config["pipeline_cfg"]["max_ipu_quantity"] = 2
    Path("own.json").write_text(json.dumps(config))
    assert main(["convert", "long.py:make", "--config-file", "own.json", "-o", "none.poptorch",
                 "--options", tiny]) == 1
    assert "[convert] the model does not fit 2 IPUs: the fullest tile needs " in \
        capsys.readouterr().err


TWO = [["^encoder"], ["head"]]


@pytest.mark.parametrize("config, message", [
    ({"precision_mod": "FP16"}, "[convert] own.json has an unknown key 'precision_mod'. Did you "
                                "mean precision_mode? The keys are num_ipus, "),
    ({"precision_mode": "FP8"}, '[convert] precision_mode must be "FP32", "FP16" or "BF16", got '
                                "'FP8'. Change it."),
    ({"num_ipus": 0}, "[convert] num_ipus must be a whole number of at least 1, got 0. Change"),
    ({"num_ipus": 2}, "[convert] num_ipus is 2, and the program needs 1. Give a list of layers"),
    ({"matmul_amp": 2}, "[convert] matmul_amp must be a number from 0 to 1, got 2."),
    ({"matmul_amp": 0.5, "conv_amp": 0.25}, "[convert] matmul_amp is 0.5 and conv_amp is 0.25. "
                                            "poptorch has one value"),
    ({"matmul_partial_type": "double"}, '[convert] matmul_partial_type must be "float" or "half"'),
    ({"batch_per_step": -1}, "[convert] batch_per_step must be a whole number; 0 is the same"),
    ({"precision_conversion_excluded_nodes": ["head"]}, "[convert] precision_conversion_excluded_"
                                                        "nodes is set and precision_mode is not."),
    ({"precision_mode": "FP16", "precision_conversion_excluded_nodes": "head"},
     "must be a list of regular expressions, got 'head'"),
    ({"manual_sharding": TWO, "num_ipus": 3}, "[convert] manual_sharding has 2 lists and num_ipus "
                                              "is 3. Give a list for each IPU."),
    ({"manual_sharding": [["^encoder"], ["tail"]]}, "[convert] no layer matches ['tail'], the list "
                                                    "number 1. The layers are encoder, encoder.0"),
    ({"manual_sharding": [["("]]}, "[convert] '(' is not a regular expression: "),
    ({"manual_sharding": TWO, "pipeline_cfg": {"converter": "manual",
                                               "manual_pipeline_config": TWO}},
     "[convert] both manual_sharding and pipeline_cfg are set. Leave one out."),
    ({"pipeline_cfg": {"converter": "manual", "manual_pipeline_config": TWO,
                       "device_info": [0]}},
     "[convert] manual_pipeline_config has 2 lists and device_info 1 IPUs. Give an IPU for each"),
    ({"pipeline_cfg": {"converter": "best"}}, '[convert] pipeline_cfg must be {"converter": '
                                              '"manual"'),
    ({"pipeline_cfg": {"converter": "auto", "priority": "cycle"}}, "pipeline_cfg must be"),
    ({"pipeline_cfg": {"converter": "auto", "min_ipu_quantity": 3, "max_ipu_quantity": 2}},
     "[convert] min_ipu_quantity is 3 and max_ipu_quantity 2. Change one of them."),
    ({"pipeline_cfg": {"converter": "auto", "min_ipu_quantity": 9}},
     "[convert] the layers of the model cannot be cut into 9 stages. Set max_ipu_quantity to "),
    ({"pipeline_cfg": {"converter": "load"}}, "[convert] pipeline_cfg must be"),
    ({"pipeline_cfg": {"converter": "load", "solution_path": "none"}},
     "[convert] cannot read the solution none: FileNotFoundError: "),
    ({"pipeline_cfg": {"converter": "load", "solution_path": "config.json"}},
     "[convert] cannot read the solution config.json: KeyError: 'device_mapping'. Give a file"),
    ({"pipeline_cfg": {"converter": "load", "solution_path": "bad.pipeconfig"}},
     "[convert] bad.pipeconfig maps layers to the stages [0, 2] and stages to the IPUs [0, 1]."),
    ([1], "[convert] own.json has a list, expected an object such as"),
    ("{", "[convert] own.json is not JSON: "),
])
def test_wrong_settings(config, message, capsys):
    Path("own.json").write_text(config if config == "{" else json.dumps(config))
    Path("bad.pipeconfig").write_text(json.dumps({
        "device_mapping": [0, 1], "pipeline_mapping": {"encoder": 0, "head": 2}}))
    words = "convert net.py:Deep --config-file own.json -o out.poptorch".split()
    assert main(words) == 1
    shown = capsys.readouterr().err
    assert message in shown and not Path("out.poptorch").exists(), shown


@pytest.mark.parametrize("words, message", [
    ("net.py:Deep --device-info 0 1", "[convert] --device-info is set without --pipeline-stage."),
    ("net.py:Deep --import net.py", "[convert] --import net.py is for a compiled model, and "
                                    "net.py:Deep is not one. Leave it out."),
    ("train.poptorch", "[convert] train.poptorch is a program for training. Compile the model"),
])
def test_wrong_words(words, message, capsys):
    if words.startswith("train"):
        assert main("compile net.py:Net --optimizer sgd -o train.poptorch".split()) == 0
    assert main(["convert", *words.split(), "-o", "out.poptorch"]) == 1
    assert message in capsys.readouterr().err
