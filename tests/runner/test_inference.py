"""poptorch-run gives the bits that Python gives, and needs no Python, no torch, no environment."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import pytest
import torch

import poptorch
from tests.helpers import ROOT, quiet_options
from tests.runner.networks import INFERENCE

RUNNER = ROOT / "poptorch" / "lib" / "poptorch-run"
EMPTY = {"PATH": "/usr/bin"}


def run(*words, status=0):
    done = subprocess.run([RUNNER, *map(str, words)], env=EMPTY, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def export(folder, model, arguments):
    """The path of a compiled model and those of its arguments."""
    path = model.compileAndExport(str(folder / "net.poptorch"), *arguments)
    files = []
    for number, argument in enumerate(arguments):
        files.append(folder / f"in{number}.npy")
        numpy.save(files[-1], argument.numpy())
    return path, files


def results(folder):
    count = len(list(folder.glob("output*.npy")))
    return [torch.from_numpy(numpy.load(folder / f"output{number}.npy"))
            for number in range(count)]


@pytest.mark.parametrize("name", INFERENCE)
def test_same_bits_as_python(name, tmp_path):
    torch.manual_seed(0)
    net, arguments = INFERENCE[name]()
    model = poptorch.inferenceModel(net, quiet_options())
    path, files = export(tmp_path, model, arguments)
    run(path, *files, "--outdir", tmp_path / "a" / "b")
    expected = torch.utils._pytree.tree_leaves(model(*arguments))
    found = results(tmp_path / "a" / "b")
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def test_torch_is_loaded_for_its_operators_alone(tmp_path):
    for name, needed in (("wide", "not needed"), ("only torch", "needed")):
        net, arguments = INFERENCE[name]()
        model = poptorch.inferenceModel(net, quiet_options())
        path, _ = export(tmp_path, model, arguments)
        assert f"torch {needed}" in run("inspect", path), name


def test_order_of_memory(tmp_path):
    model = poptorch.inferenceModel(torch.nn.Linear(4, 8), quiet_options())
    x = torch.randn(3, 4)
    path, files = export(tmp_path, model, (x,))
    numpy.save(files[0], numpy.asfortranarray(x.numpy()))
    run(path, *files, "--outdir", tmp_path / "out", "--threads", 1, "--repeat", 3)
    assert torch.equal(results(tmp_path / "out")[0], model(x))


def test_several_micro_batches_and_replicas(tmp_path):
    options = quiet_options().deviceIterations(2).replicationFactor(2)
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), options)
    x = torch.randn(8, 4)
    path, files = export(tmp_path, model, (x,))
    run(path, *files, "--outdir", tmp_path / "out")
    assert torch.equal(results(tmp_path / "out")[0], model(x))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    model = poptorch.inferenceModel(INFERENCE["words"]()[0], quiet_options())
    return export(folder, model, (torch.randint(0, 50, (4, 7)),))


def test_values_that_do_not_fit(whole, tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.full((4, 7), 2**40))
    words = run(whole[0], tmp_path / "x.npy", "--outdir", tmp_path, status=1)
    assert "[numbers] the value 1099511627776 does not fit into i32" in words


@pytest.mark.parametrize(("array", "words"), [
    (numpy.zeros((4, 8), numpy.int64), r"numbers: expected i32[4,7] but got i64[4,8]"),
    (numpy.zeros((4, 7), numpy.float32), r"numbers: expected i32[4,7] but got f32[4,7]. The "
     "program is compiled for this type and shape. Convert the tensor."),
    (numpy.zeros((4, 7), numpy.complex64), "has elements of the type <c8. Save it as bool"),
    (numpy.zeros((4, 7), numpy.uint64), "has elements of the type <u8. Save it as bool"),
    (numpy.zeros((4, 7), "<U2"), "has elements of the type <U2. Save it as bool"),
    (numpy.zeros((4, 7), object), "has elements of the type |O. Save it as bool"),
    (numpy.zeros((4, 7), [("a", "<i4")]), "has elements of the type [('a', '<i4')]. Save it as"),
])
def test_other_arrays(array, words, whole, tmp_path):
    numpy.save(tmp_path / "x.npy", array)
    found = run(whole[0], tmp_path / "x.npy", "--outdir", tmp_path, status=1)
    assert words in found and found.count("\n") == 1


def test_command_lines(whole, tmp_path):
    path, files = whole
    for words, expected in [
        ((path, *files), "--outdir is missing"),
        ((path, *files, "--outdir", tmp_path, "--often"), "there is no option --often"),
        ((path, *files, "--outdir", tmp_path, "--repeat", "0"), "--repeat is 0, expected a whole"),
        ((path, *files, "--outdir"), "--outdir needs a value"),
        ((path, *files, "--outdir", tmp_path, "--timeout", "0"), "--timeout is 0, expected a num"),
        (("inspect", path, "--json=1"), "--json takes no value"),
        (("train",), "train takes one file"),
    ]:
        assert expected in run(*words, status=2)
    assert "takes 1 tensors, got 2" in run(path, *files, *files, "--outdir", tmp_path, status=1)
    assert "cannot read" in run(tmp_path / "no", "--outdir", tmp_path, status=1)
    assert "usage:" in run("--help")


def test_a_timeout(whole, tmp_path):
    path, files = whole
    words = run(path, *files, "--outdir", tmp_path, "--timeout", 1e-6, status=1)
    assert "[call] the call was stopped after 0" in words and "Its timeout is 1e-06 s" in words
    run(path, *files, "--outdir", tmp_path / "out", "--timeout", 1000)
    assert results(tmp_path / "out")


def test_output_folder_that_cannot_be(whole, tmp_path):
    (tmp_path / "file").write_text("")
    words = run(whole[0], *whole[1], "--outdir", tmp_path / "file" / "out", status=1)
    assert "[save] cannot write" in words


def test_damaged_files(whole, tmp_path):
    """Whatever is wrong with a file: one line that says so, and no result."""
    path, files = whole
    data = Path(path).read_bytes()
    bad = tmp_path / "bad.poptorch"
    generator = torch.Generator().manual_seed(1)
    places = torch.randint(len(data), (40,), generator=generator).tolist()
    wrong = [data[:place] for place in places[:20]]
    wrong += [data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1:]
              for place in places[20:]]
    for text in (b"", b"PK", data + b"more", *wrong):
        bad.write_bytes(text)
        done = subprocess.run([RUNNER, bad, *files, "--outdir", tmp_path / "out"], env=EMPTY,
                              capture_output=True, text=True)
        # Members that only Python reads may be damaged.
        assert done.returncode == 1 and done.stderr.count("\n") == 1 or done.returncode == 0


def test_weights_that_were_changed(whole, tmp_path):
    data = bytearray(Path(whole[0]).read_bytes())
    with zipfile.ZipFile(whole[0]) as file:
        info = file.getinfo("weights.safetensors")
    data[info.header_offset + info.file_size] ^= 1
    (tmp_path / "bad").write_bytes(data)
    words = run(tmp_path / "bad", *whole[1], "--outdir", tmp_path, status=1)
    assert "weights.safetensors has another checksum than the archive says" in words


def test_other_version(tmp_path):
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), quiet_options())
    path, files = export(tmp_path, model, (torch.ones(3, 4),))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"]) | {"format_version": 99}
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    words = run(path, *files, "--outdir", tmp_path, status=1)
    assert "has format_version 99, this is" in words


def test_programs_for_python_alone(tmp_path):
    options = quiet_options().enableSyntheticData(True)
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), options)
    path, files = export(tmp_path, model, (torch.ones(3, 4),))
    words = run(path, *files, "--outdir", tmp_path, status=1)
    assert "runs in Python only: it was compiled with enableSyntheticData()" in words


def test_threads_are_those_of_python(whole):
    count = subprocess.run([sys.executable, "-c", "import torch; print(torch.get_num_threads())"],
                           env=EMPTY, capture_output=True, text=True, check=True).stdout.strip()
    assert f"inference model, {count} threads" in run("inspect", whole[0])
