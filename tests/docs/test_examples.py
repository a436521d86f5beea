"""The programs in examples/ run and do what they promise."""

import functools
import importlib.util
import os
import re
import subprocess
import sys

import pytest
import torch

from tests.helpers import ROOT, check_narrow

FOLDER = ROOT / "examples"
EXAMPLES = [str(path.relative_to(FOLDER)) for path in sorted(FOLDER.rglob("*.py"))]


def _run(name, *words, cwd=ROOT):
    command = [sys.executable, str(FOLDER / name), *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@functools.cache
def _load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _eager_accuracy(digits, seed, epochs):
    """What the digits example reaches when eager trains it in the same way."""
    args = digits.parse_arguments(["--seed", str(seed), "--epochs", str(epochs)])
    torch.manual_seed(seed)
    net = digits.DigitNet()
    train, test = digits.load_data()
    optimizer = torch.optim.Adam(net.parameters(), lr=args.learning_rate)
    # The device drops what does not fill a call.
    drop = len(train) % (args.batch_size * args.device_iterations)
    for epoch in range(args.epochs):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - epoch / args.epochs)
        order = torch.randperm(len(train))[: len(train) - drop]
        for rows in order.split(args.batch_size):
            optimizer.zero_grad()
            net(*train[rows])[1].backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        return digits.accuracy(net(test.tensors[0]), test.tensors[1])


@pytest.mark.sampled
@pytest.mark.parametrize("name", EXAMPLES)
def test_help_shows_examples(name):
    assert f"python examples/{name}" in _run(name, "--help")


def test_digits_reaches_its_accuracy():
    last = _run("digits.py").splitlines()[-1]
    found = re.fullmatch(r"test accuracy (\d+\.\d\d) %", last)
    assert found, last
    assert float(found[1]) >= 98.0


@pytest.mark.slow
def test_digits_is_as_good_as_eager():
    digits = _load("digits")
    ours, eager = [], []
    for seed in range(5):
        last = _run("digits.py", "--seed", str(seed)).splitlines()[-1]
        ours.append(float(last.split()[-2]))
        eager.append(_eager_accuracy(digits, seed, epochs=12))
    assert abs(sum(ours) - sum(eager)) / 5 <= 0.5, f"ours {ours}, eager {eager}"


def _accuracies(out):
    found = re.findall(r"^([\w-]+): test accuracy ([\d.]+) %$", out, re.MULTILINE)
    return {name: float(percent) for name, percent in found}


@pytest.mark.sampled
def test_digits_in_each_precision(tmp_path):
    found = _accuracies(_run("precisions.py", "--epochs", "1", cwd=tmp_path))
    assert list(found) == ["float32", "float16", "float16-stochastic", "bfloat16"]
    assert min(found.values()) > 85, found
    assert (tmp_path / "precisions.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_digits_are_as_good_in_each_precision(tmp_path):
    found = _accuracies(_run("precisions.py", cwd=tmp_path))
    assert max(found.values()) - min(found.values()) <= 1, found


@pytest.mark.sampled
def test_half_bert_follows_float32(tmp_path):
    out = _run("half_bert.py", "--steps", "60", "--batch-size", "8", "--length", "32",
               cwd=tmp_path)
    losses = re.findall(r"^(\w+): loss [\d.]+ -> ([\d.]+) .* loss scale (\d+)$", out, re.MULTILINE)
    (wide, loss32, one), (narrow, loss16, scale) = losses
    assert (wide, narrow, one) == ("float32", "float16", "1")
    assert float(scale) != 2**14, "the scale was never changed"
    assert float(loss16) == pytest.approx(float(loss32), abs=0.05) and float(loss32) < 4
    assert (tmp_path / "half_bert.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.sampled
@pytest.mark.parametrize("optimizer", ["adamw", *(
    pytest.param(name, marks=pytest.mark.slow) for name in ("lamb", "rmsprop"))])
def test_char_gpt_follows_eager(tmp_path, optimizer):
    words = ["--steps", "40", "--batch-size", "8", "--length", "32", "--sample", "5",
             "--optimizer", optimizer]
    out = _run("char_gpt.py", *words, cwd=tmp_path)
    assert (tmp_path / "char_gpt.png").read_bytes().startswith(b"\x89PNG")
    losses = dict(re.findall(r"^(\w+): loss [\d.]+ -> ([\d.]+)", out, flags=re.MULTILINE))
    assert float(losses["poptorch"]) == pytest.approx(float(losses["eager"]), abs=0.01)
    assert float(losses["eager"]) < 4.5


@pytest.mark.slow
def test_char_gpt_learns(tmp_path):
    out = _run("char_gpt.py", cwd=tmp_path)
    losses = dict(re.findall(r"^(\w+): loss [\d.]+ -> ([\d.]+)", out, flags=re.MULTILINE))
    assert float(losses["poptorch"]) < 2.6
    assert float(losses["poptorch"]) == pytest.approx(float(losses["eager"]), abs=0.02)


@pytest.mark.sampled
def test_image_classification_agrees_with_eager():
    out = _run("ports/image_classification.py", "--epochs", "2")
    accuracies = re.findall(r"^epoch \d: validation accuracy ([\d.]+) %$", out, re.MULTILINE)
    assert len(accuracies) == 2 and float(accuracies[1]) > 60
    same, total = re.search(r"predicts the same for (\d+) of (\d+) images", out).groups()
    # Two scores that are nearly equal may come in either order.
    assert total == "360" and int(same) >= 357


@pytest.mark.sampled
def test_bert_fine_tuning_follows_eager():
    out = _run("ports/bert_fine_tuning.py", "--steps", "12", "--accumulation", "2",
               "--micro-batch", "4")
    assert re.search(r"^accuracy on new sentences [\d.]+ %$", out, re.MULTILINE)
    assert float(out.split()[-1]) < 1e-4, out.splitlines()[-1]


@pytest.mark.sampled
@pytest.mark.parametrize("strategy", ["stages", "auto"])
def test_sharded_blocks_change_no_bit(strategy):
    out = _run("ports/sharded_blocks.py", "--steps", "10", "--layers", "4", "--ipus", "4",
               "--strategy", strategy)
    ipus = re.findall(r"^ +\d +(\d)  (\S.*?)  ", out, re.MULTILINE)
    assert ipus == [("0", "embed, layer0, head"), ("1", "layer1"), ("2", "layer2"),
                    ("3", "layer3")]
    assert out.endswith("weights bit-equal to those without blocks: True\n")


@pytest.mark.sampled
def test_custom_loss_goes_on_in_another_process():
    out = _run("ports/custom_loss_export.py", "--steps", "60")
    assert out.endswith("the new process computed the same bits: True\n")


@pytest.mark.sampled
def test_custom_ops_train_as_pytorch():
    out = _run("custom_ops/train.py", "--steps", "40")
    names = ("AddScalar", "Cube", "LeakyRelu", "Reduce")
    assert all(f"'com.example::{name}{kind}': 1" in out for name in names
               for kind in ("", "Gradient"))
    assert float(out.split()[-1]) < 1e-6


@pytest.fixture
def one_thread():
    """Eager threads that wait for one another take most of the time of a small network."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# The ports that compare with PyTorch, and arguments with which they are fast.
BESIDE_PYTORCH = {
    "beam_search": ["--steps", "12", "--batch", "20", "--width", "16"],
    "ctc_reader": ["--steps", "12", "--batch", "8"],
    "matching_on_host": ["--steps", "12", "--batch", "8", "--width", "16", "--points", "3"],
    "octave_convolution": ["--steps", "4", "--batch", "8"],
    "pipelined_encoder": ["--steps", "3", "--layers", "3", "--ipus", "3", "--micro-batch", "2",
                          "--accumulation", "5"],
    "snake_op": ["--steps", "12", "--batch", "16"],
}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", BESIDE_PYTORCH)
def test_results_and_weights_are_those_of_pytorch(name):
    port = _load(f"ports/{name}")
    args = port.parse_arguments(BESIDE_PYTORCH[name])
    if name == "snake_op":
        port.load_op(args.compiler)
    ours, eager, reference = (port.results(args, way)[0]
                              for way in ("poptorch", torch.float32, torch.float64))
    check_narrow(ours, [eager], reference)


@pytest.mark.usefixtures("one_thread")
def test_ports_say_what_their_training_gave(capsys):
    words = {}
    for name, arguments in BESIDE_PYTORCH.items():
        _load(f"ports/{name}").main(arguments)
        words[name] = capsys.readouterr().out
        assert float(words[name].split()[-1]) < 1e-5, words[name]
    assert "same answers: True\n" in words["beam_search"]
    assert "same texts: True\n" in words["ctc_reader"]
    assert "'com.example::Snake': 2" in words["snake_op"]
    assert "'com.example::SnakeGradient': 2" in words["snake_op"]
    encoder = words["pipelined_encoder"]
    stages = re.findall(r"^ +(\d) +(\d)  (\S.*?)  ", encoder, re.MULTILINE)
    assert stages[:3] == [("0", "0", "-"), ("1", "1", "from IPU 1"), ("2", "2", "from IPU 2")]
    assert "recomputation changes no bit: True; memory" in encoder


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_ports_learn():
    def trained(name, words):
        port = _load(f"ports/{name}")
        return port.results(port.parse_arguments(words), "poptorch")
    assert trained("beam_search", ["--steps", "400"])[2] > 0.9
    assert trained("octave_convolution", ["--steps", "40"])[2] > 0.95
    assert trained("ctc_reader", ["--steps", "150"])[2] > 0.95
    assert trained("matching_on_host", ["--steps", "300"])[2] < 0.12
    assert trained("pipelined_encoder", ["--steps", "80"])[1][-1] < 0.4
