"""Runners that have what some programs need, and no more."""

import os
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import ROOT, quiet_options
from tests.runner.test_inference import export, run

SMALL = ROOT / "build" / "runner" / "small" / "poptorch-run"
MOST_BYTES = 2 << 20


class Images(nn.Sequential):
    """A small CNN."""

    def __init__(self):
        super().__init__(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 64, 10),
                         nn.Softmax(-1))


def exported(folder, net, *tensors):
    folder.mkdir()
    return export(folder, poptorch.inferenceModel(net.eval(), quiet_options()), tensors)


def test_needs(tmp_path):
    path, _ = exported(tmp_path / "net", Images(), torch.randn(2, 3, 32, 32))
    names = set(run("needs", path).split())
    assert {"kernel._softmax", "kernel.max_pool2d", "ops.softmax", "function.rsqrt",
            "algorithm.gemm.blocked", "algorithm.conv.winograd"} <= names
    assert not {"kernel.gelu", "kernel.sort", "ops.loss", "functions.integer",
                "algorithm.gemm.bf16_loops", "algorithm.conv.im2col"} & names
    assert "needs takes files" in run("needs", status=2)


def build(cpu, *programs):
    """The small runner for programs, in the checkout."""
    subprocess.run([sys.executable, "setup.py", "-q", "build_runner", f"--cpu={cpu}",
                    f"--program={' '.join(map(str, programs))}"], cwd=ROOT, check=True,
                   env={**os.environ, "MAX_JOBS": "2"})
    return ROOT / "build" / "runner" / cpu / "poptorch-run", SMALL


def bits(runner, folder, path, files, *words):
    done = subprocess.run([runner, path, *files, "--outdir", folder, *words], env={"HOME": "/"},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return (folder / "output0.npy").read_bytes()


@pytest.mark.slow
def test_small_cnn(tmp_path):
    """At most 2 MB, the bits of the runner that has everything, an error for what is missing."""
    torch.manual_seed(0)
    path, files = exported(tmp_path / "net", Images(), torch.randn(4, 3, 32, 32))
    other, inputs = exported(tmp_path / "other", nn.GELU(), torch.randn(3))
    whole, small = build("avx2", path)
    assert small.stat().st_size <= MOST_BYTES
    for threads in ("1", "2"):
        words = ["--threads", threads]
        assert bits(whole, tmp_path / "a", path, files, *words) == \
            bits(small, tmp_path / "b", path, files, *words)
    done = subprocess.run([small, other, *inputs, "--outdir", tmp_path], capture_output=True,
                          text=True)
    assert done.returncode == 1 and re.search(
        r"\[runner\] this binary has no (kernel|function|op) gelu: it was built for other "
        r"programs. Build one for this file: make runner PROGRAM=FILE", done.stderr), done.stderr


def test_unknown_cpu():
    done = subprocess.run([sys.executable, "setup.py", "-q", "build_runner", "--cpu=mmx",
                           "--program=net"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "[setup] CPU is mmx. Give native or one of base, avx2, avx512, amx." in done.stderr
