"""Messages for files whose checksums are right and whose contents are not, and for torch."""

import shutil
import subprocess
import zipfile

import numpy
import pytest
import torch

import poptorch
from tests.helpers import quiet_options
from tests.runner.networks import INFERENCE
from tests.runner.test_inference import EMPTY, RUNNER, export, run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    model = poptorch.inferenceModel(INFERENCE["words"]()[0], quiet_options())
    return export(folder, model, (torch.randint(0, 50, (4, 7)),))


@pytest.mark.parametrize(("member", "old", "new", "words"), [
    ("manifest.json", b"poptorch executable", b"popcorn", "its format is popcorn"),
    ("runtime.json", b'"replicas"', b'"copies"', "has the option copies, which this version"),
    ("runtime.json", b'"replicas":1', b'"replicas":0', "has 0 replicas in groups of 1"),
    ("runtime.json", b'"replicas":1', b'"replicas":9999',
     "has 9999 replicas, a system has at most 64 IPUs"),
    ("runtime.json", b'"seed"', b'"sed"', "the file has no entry seed"),
    ("runtime.json", b'"refused":null', b'"refused":3', "an entry of the file is not a string"),
    ("runtime.json", b'"refused":null', b'"refused":', "is not JSON: expected a value at byte 11"),
    ("runtime.json", b'"input.numbers"', b'"input.x"', "has no tensor in runtime.json"),
    ("runtime.json", b"[4,7]", b"[4,8]", "has 28 elements of i32, runtime.json says 32 of i32"),
    ("runtime.json", b'"stream":"output.0"', b'"stream":"o"', "the stream o is not one of the"),
    ("runtime.json", b'"table.weight":"table.weight"', b'"table.weight":"wait"',
     "has no weight wait"),
    ("runtime.json", b'"out.bias":"out.bias"', b'"out.bias":"norm.bias"',
     "out.bias is f32[4] in the program and f32[32] in the file"),
    ("runtime.json", b'"state_dict":{', b'"state_dict":{"more":"wait",', "has no weight wait"),
    ("plan.ir", b"graph ", b"grph ", "bad is damaged: its plan.ir is not what poptorch writes "
                                     "([ir text] line "),
    ("plan.ir", b"order=1", b"order=2", "bad is damaged: its plan.ir is not what poptorch writes "
                                        "([verify] "),
    ("weights.safetensors", b'"F32"', b'"F99"', "has the type F99"),
    ("weights.safetensors", b"[32]", b"[33]", "does not fit its shape"),
])
def test_contents(member, old, new, words, whole, tmp_path):
    with zipfile.ZipFile(whole[0]) as file:
        members = {name: file.read(name) for name in file.namelist()}
    assert old in members[member]
    members[member] = members[member].replace(old, new, 1)
    with zipfile.ZipFile(tmp_path / "bad", "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    assert words in run(tmp_path / "bad", *whole[1], "--outdir", tmp_path, status=1)


def test_compressed_files(whole, tmp_path):
    with zipfile.ZipFile(whole[0]) as file, \
            zipfile.ZipFile(tmp_path / "bad", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in file.namelist():
            packed.writestr(name, file.read(name))
    assert "is compressed" in run(tmp_path / "bad", *whole[1], "--outdir", tmp_path, status=1)


def test_arrays(whole, tmp_path):
    bad = tmp_path / "x.npy"
    assert "cannot read" in run(whole[0], bad, "--outdir", tmp_path, status=1)
    bad.write_bytes(b"text")
    assert "is not a .npy file" in run(whole[0], bad, "--outdir", tmp_path, status=1)
    numpy.save(bad, numpy.zeros((4, 7), numpy.int32))
    bad.write_bytes(bad.read_bytes()[:-1])
    assert "is cut off or damaged: its header says i32[4,7], its data has 111 bytes" in run(
        whole[0], bad, "--outdir", tmp_path, status=1)


def test_without_torch(tmp_path):
    """A folder with libpoptorch.so alone, and one with a library of torch's that is none."""
    folder = tmp_path / "lib"
    folder.mkdir()
    for name in ("poptorch-run", "libpoptorch.so"):
        shutil.copy(RUNNER.parent / name, folder / name)
    for net, x in ((torch.nn.Conv1d(2, 6, 3), torch.randn(3, 2, 5)),
                   (INFERENCE["only torch"]()[0], torch.randn(5, 4, dtype=torch.float64))):
        path, files = export(tmp_path, poptorch.inferenceModel(net, quiet_options()), (x,))
        words = [folder / "poptorch-run", path, *files, "--outdir", tmp_path]
        done = subprocess.run(words, env=EMPTY, capture_output=True, text=True)
        assert done.returncode == 1 and "which this build of poptorch does not have" in done.stderr
    (folder / "torch2_13").mkdir()
    (folder / "torch2_13" / "libpoptorch_aten.so").write_text("no library")
    done = subprocess.run(words, env=EMPTY, capture_output=True, text=True)
    assert done.returncode == 1 and "PyTorch cannot be loaded" in done.stderr
