"""poptorch/runtime.h from a C++ program, and the files with which CMake finds the library."""

import shutil
import subprocess

import pytest
import torch

import poptorch
from tests.helpers import ROOT, quiet_options

PACKAGE = ROOT / "poptorch"


class Loss(torch.nn.Linear):
    def forward(self, x):
        return poptorch.identity_loss(super().forward(x), "sum")


def built(name, folder):
    """The program of a source in this folder."""
    program = folder / name
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Werror", "-pthread",
                    f"-I{PACKAGE / 'include'}", str(ROOT / "tests" / "runner" / f"{name}.cpp"),
                    "-o", str(program), f"-L{PACKAGE / 'lib'}", "-lpoptorch",
                    f"-Wl,-rpath,{PACKAGE / 'lib'}"], check=True)
    return program


def test_threads_and_timeout(tmp_path):
    program = built("serve", tmp_path)
    model = poptorch.inferenceModel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(),
                                                        torch.nn.Linear(64, 64)), quiet_options())
    path = model.compileAndExport(str(tmp_path / "net"), torch.ones(32, 64))
    net = Loss(4, 2)
    training = poptorch.trainingModel(net, quiet_options())
    trained = training.compileAndExport(str(tmp_path / "training"), torch.ones(3, 4))
    lines = subprocess.run([program, path, trained], capture_output=True, text=True, env={},
                           check=True).stdout.splitlines()
    assert lines[0] == "0 wrong"
    assert lines[1].startswith("1 [call] the call was stopped after 0")
    assert "Its timeout is 1e-06 s" in lines[1]
    assert lines[-3] == "1 0"
    assert lines[-2].startswith("[timeout] expected a positive number of seconds, got 0")
    assert lines[-1].startswith("[timeout] each call changes bias, and a call that is stopped")


def test_all_of_the_interface(tmp_path):
    program = built("trial", tmp_path)
    torch.manual_seed(0)
    net = Loss(4, 2)
    model = poptorch.trainingModel(net, quiet_options(),
                                   poptorch.optim.SGD(net.parameters(), lr=0.5))
    path = model.compileAndExport(str(tmp_path / "net"), torch.ones(3, 4))
    lines = subprocess.run([program, path], capture_output=True, text=True, env={},
                           check=True).stdout.splitlines()
    with torch.no_grad():
        net.bias[0] = 5
    model.copyWeightsToDevice()
    loss = model(torch.ones(3, 4))
    model.copyWeightsToHost()
    assert lines[0].startswith("[load] cannot read /no/such/file: No such file")
    assert lines[1] == "1 x"
    assert lines[2].startswith("[arguments] the program takes 1 tensors, got 0")
    assert lines[3].startswith("[arguments] tensor 0 has 47 bytes for the shape f32[3,4]")
    assert lines[4].startswith("[load] weights has wait, which is not in the state_dict")
    found = torch.tensor([float(word) for word in lines[5].split()])
    assert torch.equal(found, torch.stack([loss, net.bias[0].detach()]))


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
def test_the_example(tmp_path):
    subprocess.run(["cmake", "-S", str(ROOT / "examples" / "deploy"), "-B", str(tmp_path),
                    f"-DCMAKE_PREFIX_PATH={PACKAGE}"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(tmp_path)], check=True, capture_output=True)
    net = torch.nn.Linear(4, 2)
    model = poptorch.inferenceModel(net, quiet_options())
    path = model.compileAndExport(str(tmp_path / "net"), torch.ones(1, 4))
    done = subprocess.run([tmp_path / "classify", path], capture_output=True, text=True, env={},
                          check=True)
    score, best = net.bias.max(0)
    assert done.stdout.startswith(f"row 0: class {best}, score {score.item():.9g}")
