"""poptorch-run train: the same losses and weights as Python, and it continues a training."""

import numpy
import pytest
import safetensors.torch
import torch

import poptorch
from tests.helpers import quiet_options
from tests.runner.test_inference import run
from tests.runner.training_networks import NETWORKS, Classifier, Normed

BATCH, STEPS = 8, 6
OPTIMIZERS = {
    "SGD": lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: poptorch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "RMSprop": lambda p: poptorch.optim.RMSprop(p, lr=0.01),
    "LAMB": lambda p: poptorch.optim.LAMB(p, lr=0.01),
}


@pytest.fixture
def data(tmp_path):
    torch.manual_seed(0)
    x, label = torch.randn(STEPS * BATCH, 6), torch.randint(0, 3, (STEPS * BATCH,))
    numpy.save(tmp_path / "x.npy", x.numpy())
    numpy.save(tmp_path / "label.npy", label.numpy())
    return x, label


def train(path, folder, *options):
    words = run("train", path, "--data", folder / "x.npy", folder / "label.npy", *options)
    return [float(word) for word in words.split()]


def exported(folder, network, optimizer, **options):
    net = network()
    opts = quiet_options()
    for name, value in options.items():
        getattr(opts.Training if name == "gradientAccumulation" else opts, name)(value)
    model = poptorch.trainingModel(net, opts, optimizer(net.parameters()))
    calls = opts.replication_factor * opts.Training.gradient_accumulation
    batch = torch.zeros(BATCH, 6), torch.zeros(BATCH, dtype=torch.int64)
    return net, model, model.compileAndExport(str(folder / "net.poptorch"), *batch), calls


def losses_of(model, data):
    x, label = data
    return [model(x[at:at + BATCH], label[at:at + BATCH])[1].flatten().tolist()
            for at in range(0, len(x), BATCH)]


@pytest.mark.sampled
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_same_bits_as_python(network, optimizer, data, tmp_path):
    net, model, path, _ = exported(tmp_path, NETWORKS[network], OPTIMIZERS[optimizer])
    found = train(path, tmp_path, "--steps", STEPS, "--out", tmp_path / "w.safetensors")
    assert found == [loss for losses in losses_of(model, data) for loss in losses]
    model.copyWeightsToHost()
    weights = safetensors.torch.load_file(tmp_path / "w.safetensors")
    expected = net.state_dict()
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        assert weights[name].dtype == value.dtype and torch.equal(weights[name], value), name


def test_replicas_and_accumulation(data, tmp_path):
    net, model, path, _ = exported(tmp_path, Normed, OPTIMIZERS["SGD"], replicationFactor=2,
                                   broadcastBuffers=False, gradientAccumulation=2)
    found = train(path, tmp_path, "--steps", STEPS, "--out", tmp_path / "w.safetensors")
    assert found == [loss for losses in losses_of(model, data) for loss in losses]
    model.copyWeightsToHost()
    weights = safetensors.torch.load_file(tmp_path / "w.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in net.state_dict().items())


def test_two_halves_are_a_whole(data, tmp_path):
    _, _, path, _ = exported(tmp_path, Normed, OPTIMIZERS["AdamW"])
    out, state = tmp_path / "w.safetensors", tmp_path / "state.safetensors"
    whole = train(path, tmp_path, "--steps", 2 * STEPS, "--out", tmp_path / "whole.safetensors")
    first = train(path, tmp_path, "--steps", STEPS, "--out", out, "--out-state", state)
    second = train(path, tmp_path, "--steps", STEPS, "--weights", out, "--state", state,
                   "--out", out)
    assert [*first, *second] == whole
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_python_goes_on_with_the_weights(data, tmp_path):
    net, _, path, _ = exported(tmp_path, Classifier, OPTIMIZERS["SGD"])
    train(path, tmp_path, "--steps", 2, "--out", tmp_path / "w.safetensors")
    net.load_state_dict(safetensors.torch.load_file(tmp_path / "w.safetensors"))


def test_mistakes(data, tmp_path):
    _, _, path, _ = exported(tmp_path, Classifier, OPTIMIZERS["SGD"])
    out = ["--steps", 1, "--out", tmp_path / "w.safetensors"]
    x, label = tmp_path / "x.npy", tmp_path / "label.npy"
    assert "takes 2 tensors, got 1 files" in run("train", path, "--data", x, *out, status=1)
    numpy.save(tmp_path / "short.npy", numpy.zeros(BATCH, numpy.int64))
    assert "has 1 batches" in run("train", path, "--data", x, tmp_path / "short.npy", *out,
                                  status=1)
    numpy.save(tmp_path / "odd.npy", numpy.zeros(BATCH + 1, numpy.int64))
    assert "is i64[9], expected batches of i32[8]" in run(
        "train", path, "--data", x, tmp_path / "odd.npy", *out, status=1)
    safetensors.torch.save_file({"hidden.wait": torch.ones(1)}, tmp_path / "bad")
    assert "has hidden.wait, which is not in the state_dict" in run(
        "train", path, "--data", x, label, *out, "--weights", tmp_path / "bad", status=1)
    safetensors.torch.save_file({"hidden.bias": torch.ones(1)}, tmp_path / "bad")
    assert "hidden.bias is f32[1], the model has f32[16]" in run(
        "train", path, "--data", x, label, *out, "--weights", tmp_path / "bad", status=1)
    safetensors.torch.save_file({"hidden.bias": torch.ones(16)}, tmp_path / "bad")
    assert "bad does not have hidden.weight, which is in the state_dict of the model. Give all" in \
        run("train", path, "--data", x, label, *out, "--weights", tmp_path / "bad", status=1)
    safetensors.torch.save_file({"momentum": torch.ones(1)}, tmp_path / "bad")
    assert "has the state momentum, which the program does not have" in run(
        "train", path, "--data", x, label, *out, "--state", tmp_path / "bad", status=1)
    train(path, tmp_path, *out, "--out-state", tmp_path / "state")
    state = safetensors.torch.load_file(tmp_path / "state")
    missing = sorted(state)[0]
    safetensors.torch.save_file({name: state[name] for name in state if name != missing},
                                tmp_path / "bad")
    assert f"bad does not have the state {missing}, which the program has" in run(
        "train", path, "--data", x, label, *out, "--state", tmp_path / "bad", status=1)


@pytest.mark.parametrize("option", ["--out", "--out-state"])
def test_no_folder_for_what_is_written(option, data, tmp_path):
    """An error before the training, not after it."""
    _, _, path, _ = exported(tmp_path, Classifier, OPTIMIZERS["SGD"])
    words = ["train", path, "--data", tmp_path / "x.npy", tmp_path / "label.npy", "--steps", 1]
    if option != "--out":
        words += ["--out", tmp_path / "w.safetensors"]
    shown = run(*words, option, tmp_path / "none" / "file", status=1)
    assert "none/file: there is no folder " in shown and "that may be written to. Create" in shown
    assert not (tmp_path / "w.safetensors").exists()


class Sized(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 3)

    def forward(self, x, label):
        loss = torch.nn.functional.cross_entropy(self.layer(x), label)
        return torch.full((1,), 7.0), loss


def test_the_loss_is_a_number_not_a_tensor_of_one_element(data, tmp_path):
    _, model, path, _ = exported(tmp_path, Sized, OPTIMIZERS["SGD"])
    found = train(path, tmp_path, "--steps", STEPS, "--out", tmp_path / "w.safetensors")
    assert found == [loss for losses in losses_of(model, data) for loss in losses]


def test_inference_models_do_not_train(tmp_path):
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), quiet_options())
    path = model.compileAndExport(str(tmp_path / "net"), torch.ones(3, 4))
    numpy.save(tmp_path / "x.npy", numpy.ones((3, 4), numpy.float32))
    words = run("train", path, "--data", tmp_path / "x.npy", "--steps", 1,
                "--out", tmp_path / "w", status=1)
    assert "is a model of inferenceModel" in words
