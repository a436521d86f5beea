"""``poptorch run``: the results of poptorch.load, from arrays in files."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy
import pytest
import torch

import poptorch
from poptorch._command.parser import main
from tests.helpers import quiet_options

RUNNER = Path(poptorch.__file__).parent / "lib" / "poptorch-run"
NETS = """
    import collections
    import enum
    from typing import NamedTuple

    import torch

    class Kind(enum.Enum):
        TWICE = 1

    class Config:
        width = 3

    def activation(x):
        return x.relu()

    class Layer(torch.nn.Module):
        scale = 2.0

        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 3)
            self.config = Config()
            self.activation = activation
            self.kind = Kind.TWICE

        def forward(self, x):
            y = self.activation(self.fc(x)) * self.scale
            return y * 2 if self.kind is Kind.TWICE else y

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer()

        def forward(self, x, rest, *, extra=0.5):
            return {"y": self.layer(x) * extra, "n": (rest[0] - rest[1], rest[1].bfloat16())}

    class Outer:
        class Inner(torch.nn.Module):
            def forward(self, x, *more):
                return x - sum(more)

    class Pair(NamedTuple):
        a: torch.Tensor
        b: torch.Tensor

    class Pairs(torch.nn.Module):
        def forward(self, x):
            return Pair(x, x + 1)

    inputs = torch.ones(2, 4), [torch.ones(3), torch.ones(3)]
    inner = Outer.Inner
"""
X = torch.randn(2, 4)
REST = torch.randn(3), torch.randn(3)


@pytest.fixture
def compiled(tmp_path, monkeypatch, capsys):
    """Compiles a class of the file; its module is not imported afterwards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(textwrap.dedent(NETS))
    numpy.save("x.npy", X.numpy())
    for number, tensor in enumerate(REST):
        numpy.save(f"r{number}.npy", tensor.numpy())

    def compile(name, *words):
        assert main(["compile", f"nets.py:{name}", *words, "-o", "net.poptorch"]) == 0
        capsys.readouterr()
        sys.modules.pop("nets")
        sys.path.remove(str(tmp_path))

    return compile


def results(folder="out"):
    return [numpy.load(path) for path in sorted(Path(folder).glob("output*.npy"))]


def test_without_the_classes_of_the_model(compiled, capsys):
    compiled("Net")
    before = torch.get_num_threads()
    assert main("run net.poptorch x.npy r0.npy r1.npy --outdir a/out --threads 1".split()) == 0
    assert "nets" not in sys.modules and torch.get_num_threads() == before
    assert capsys.readouterr().out == ("output0 float32[2, 3] -> a/out/output0.npy\n"
                                       "output1 float32[3] -> a/out/output1.npy\n"
                                       "output2 bfloat16[3] -> a/out/output2.npy\n")
    subprocess.run([RUNNER, "net.poptorch", "x.npy", "r0.npy", "r1.npy", "--outdir", "theirs",
                    "--threads", "1"], check=True)
    assert len(results("a/out")) == 3
    for path in Path("a/out").iterdir():
        assert path.read_bytes() == (Path("theirs") / path.name).read_bytes()
    assert numpy.array_equal(results("a/out")[1], (REST[0] - REST[1]).numpy())


def test_with_the_classes(compiled, capsys):
    compiled("Net")
    words = "run net.poptorch x.npy r0.npy r1.npy --outdir".split()
    assert main([*words, "out"]) == 0
    assert main([*words, "again", "--import", "nets.py"]) == 0
    assert all(map(numpy.array_equal, results(), results("again"))) and len(results()) == 3
    sys.modules.pop("nets")


@pytest.mark.parametrize("write", [
    lambda: numpy.savez("all.npz", x=X, **{"rest.1": REST[1], "rest.0": REST[0]}),
    lambda: numpy.savez("all.npz", X, *REST),
    lambda: torch.save([X, *REST], "all.pt"),
    lambda: torch.save({"rest.1": REST[1], "rest.0": REST[0], "x": X}, "all.pt"),
    lambda: torch.save({"rest.1": REST[1]}, "all.pt"),
    lambda: numpy.save("x.npy", X.double().numpy().T.copy().T),
])
def test_kinds_of_arrays(write, compiled):
    compiled("Net")
    assert main("run net.poptorch x.npy r0.npy r1.npy --outdir out".split()) == 0
    expected = results()
    write()
    name = next((name for name in ("all.npz", "all.pt") if Path(name).exists()), None)
    arrays = ["x.npy", "r0.npy", "r1.npy"] if name is None else [name]
    if name == "all.pt" and len(torch.load(name, weights_only=True)) == 1:
        arrays = ["x.npy", "r0.npy", name]
    assert main(["run", "net.poptorch", *arrays, "--outdir", "again"]) == 0
    assert all(map(numpy.array_equal, expected, results("again"))) and len(expected) == 3


def test_other_signatures_and_latency(compiled, capsys):
    compiled("inner", *["--input", "f32[3]"] * 3)
    assert main("run net.poptorch r0.npy r1.npy r1.npy --outdir out --repeat 5 --json".split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert numpy.array_equal(results()[0], (REST[0] - (REST[1] + REST[1])).numpy())
    assert found["outputs"] == [{"name": "output0", "shape": [3], "dtype": "float32",
                                 "file": "out/output0.npy"}]
    latency = found["latency"]
    assert latency["runs"] == 5 and 0 < latency["median_ms"] <= latency["p90_ms"] \
        <= latency["p99_ms"]
    assert main("run net.poptorch r0.npy r1.npy r1.npy --repeat 5".split()) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("output0 float32[3]\n5 runs: median ") and "99% " in shown


def test_results_of_own_classes(compiled, capsys):
    compiled("Pairs", "--input", "f32[3]")
    assert main("run net.poptorch r0.npy --outdir out".split()) == 1
    assert "import nets before loading. Use --import to import" in capsys.readouterr().err
    assert main("run net.poptorch r0.npy --outdir out --import nets.py".split()) == 0
    assert numpy.array_equal(results()[1], (REST[0] + 1).numpy())
    sys.modules.pop("nets")


def test_a_program_of_a_bundle(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    numpy.save("x.npy", X.numpy())
    net = torch.nn.Linear(4, 2)
    train = poptorch.trainingModel(net, quiet_options(), loss=torch.nn.MSELoss())
    train.compile(X, torch.zeros(2, 2))
    serve = poptorch.inferenceModel(net, quiet_options())
    serve.compile(X)
    poptorch.save_bundle({"train": train, "serve": serve}, "both.poptorch")
    assert main("run both.poptorch x.npy --outdir out --program serve".split()) == 0
    assert numpy.array_equal(results()[0], serve(X).detach().numpy())
    for words, message in (("", "has several programs: train, serve"),
                           ("--program own", "[run] both.poptorch has no program 'own'. It has "
                                             "train, serve."),
                           ("--program train", "is a program for training. Use `poptorch train`")):
        assert main(f"run both.poptorch x.npy {words}".split()) == 1
        assert message in capsys.readouterr().err


def test_a_file_without_a_module(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    numpy.save("x.npy", X.numpy())
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), quiet_options())
    model.compileAndExport("bare.poptorch", X, export_model=False)
    assert main("run bare.poptorch x.npy".split()) == 1
    assert capsys.readouterr().err == (
        "[run] bare.poptorch was written with export_model=False and has no module. Write it with "
        "export_model=True, or use poptorch-run.\n")


@pytest.mark.parametrize("arrays, message", [
    ("x.npy", "[run] expected 3 arrays (x, rest.0, rest.1), got 1. Pass one array for each"),
    ("r0.npy x.npy r1.npy", "[run] the array for x is float32[3], and the program takes x: "
                            "float32[2, 4]. Change the array."),
    ("x.txt r0.npy r1.npy", "[run] expected a file of arrays that ends with .npy, .npz or .pt, got "
                            "x.txt. Convert it."),
    ("text.npy r0.npy r1.npy", "[run] text.npy cannot be read: "),
    ("text.pt r0.npy r1.npy", "[run] text.pt"),
    ("objects.pt", "[run] objects.pt"),
    ("number.pt", "[run] number.pt cannot be read: it has int, expected tensors. Write it with"),
    ("names.npz", "[run] names.npz has y, and the program takes x, rest.0, rest.1. Use the names"),
    ("none.npy r0.npy r1.npy", "none.npy"),
])
def test_errors(arrays, message, compiled, capsys):
    compiled("Net")
    for name in ("text.npy", "text.pt", "x.txt"):
        Path(name).write_text("text")
    torch.save({"x": json.JSONDecoder}, "objects.pt")
    torch.save(3, "number.pt")
    numpy.savez("names.npz", x=X, y=X)
    assert main(["run", "net.poptorch", *arrays.split(), "--outdir", "out"]) == 1
    shown = capsys.readouterr().err
    assert message in shown and "Traceback" not in shown and not Path("out").exists(), shown
