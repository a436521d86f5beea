"""poptorch-run with files of several programs, and what it shows of a program as JSON."""

import json

import numpy
import pytest
import safetensors.torch
import torch

import poptorch
from tests.helpers import quiet_options
from tests.runner.networks import Classifier
from tests.runner.test_inference import results, run

STEPS, BATCH = 3, 8


@pytest.fixture
def bundle(tmp_path):
    """A network, its models, the file and the arrays that both take."""
    torch.manual_seed(0)
    net = Classifier()
    serve = poptorch.inferenceModel(net, quiet_options())
    optimizer = poptorch.optim.AdamW(net.parameters(), lr=0.01)
    train = poptorch.trainingModel(net, quiet_options(), optimizer)
    x, label = torch.randn(STEPS * BATCH, 6), torch.randint(0, 3, (STEPS * BATCH,))
    serve.compile(x[:BATCH], label[:BATCH])
    train.compile(x[:BATCH], label[:BATCH])
    path = poptorch.save_bundle({"serve": serve, "train": train}, tmp_path / "net.poptorch")
    for name, value in (("x", x), ("label", label)):
        numpy.save(tmp_path / f"{name}.npy", value[:BATCH].numpy())
        numpy.save(tmp_path / f"{name}s.npy", value.numpy())
    return net, serve, train, path, x, label


def test_programs_have_the_bits_of_python(bundle, tmp_path):
    net, serve, train, path, x, label = bundle
    run(path, tmp_path / "x.npy", tmp_path / "label.npy", "--program", "serve",
        "--outdir", tmp_path / "out")
    expected = serve(x[:BATCH], label[:BATCH])
    assert all(map(torch.equal, results(tmp_path / "out"), expected))
    words = run("train", path, "--program", "train", "--data", tmp_path / "xs.npy",
                tmp_path / "labels.npy", "--steps", STEPS, "--out", tmp_path / "w.safetensors")
    losses = [train(x[at:at + BATCH], label[at:at + BATCH])[1].item()
              for at in range(0, len(x), BATCH)]
    assert [float(word) for word in words.split()] == losses
    train.copyWeightsToHost()
    weights = safetensors.torch.load_file(tmp_path / "w.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in net.state_dict().items())


def test_names_of_programs(bundle, tmp_path):
    path = bundle[3]
    words = run("inspect", path, status=1)
    assert "has the programs serve, train, not one without a name" in words
    words = run("inspect", path, "--program", "surf", status=1)
    assert "has the programs serve, train, not surf. Give the name of one" in words
    words = run("train", path, "--program", "serve", "--data", tmp_path / "xs.npy",
                tmp_path / "labels.npy", "--steps", 1, "--out", tmp_path / "w", status=1)
    assert "is a model of inferenceModel" in words
    assert "training model" in run("inspect", path, "--program", "train")
    alone = bundle[1].save(tmp_path / "alone")
    words = run("inspect", alone, "--program", "serve", status=1)
    assert "has one program without a name, not serve. Leave the name out" in words


def test_inspect_as_json(bundle):
    found = json.loads(run("inspect", bundle[3], "--program", "train", "--json"))
    assert found["training"] is True
    assert found["inputs"] == [{"name": "x", "shape": [8, 6], "dtype": "float32"},
                               {"name": "label", "shape": [8], "dtype": "int32"}]
    assert found["outputs"] == [{"name": "output0", "shape": [8, 3], "dtype": "float32"},
                                {"name": "output1", "shape": [], "dtype": "float32"}]
    assert found["weights"] == [
        {"name": name, "shape": list(value.shape), "dtype": "float32", "bytes": value.nbytes}
        for name, value in sorted(bundle[0].state_dict().items())]
    assert found["options"]["replicas"] == 1 and found["target"]["ipus"] == 1
    assert found["operators"] and sum(found["memory"].values()) > 0
    assert found["torch"]["version"] == torch.__version__
