"""Custom ops that lines of random programs call as ``custom.<name>``: in Python, and in C++.

Those in C++ (``custom_ops.cpp``) run where poptorch compiles; eager computes their formulas. Their
library is built once for each state of its sources, in the folder ``build``, when a program is the
first one to call them.
"""

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import torch

import poptorch

_SOURCE = Path(__file__).with_suffix(".cpp")
_FOLDER = Path(__file__).resolve().parents[3] / "build" / "custom_ops"


@functools.cache
def _load() -> None:
    """Loads the ops in C++; builds them where they are not built."""
    include = Path(poptorch.include_path())
    text = _SOURCE.read_bytes() + (include / "poptorch" / "custom_op.h").read_bytes()
    library = _FOLDER / f"{hashlib.sha256(text).hexdigest()[:16]}.so"
    if not library.exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
            built = Path(folder) / library.name
            subprocess.run(["g++", "-std=c++17", "-O2", "-fPIC", "-shared", f"-I{include}",
                            str(_SOURCE), "-o", str(built)], check=True)
            os.replace(built, library)  # other processes may build it, too
    ctypes.cdll.LoadLibrary(str(library))


def _in_cpp(name: str, inputs: list, count: int, **attributes) -> list:
    _load()
    return poptorch.custom_op(inputs, name, "tests.fuzz", 1, example_outputs=inputs[:1] * count,
                              attributes=attributes)


def cube(x, factor: float):
    """``factor * x ** 3``, an op in C++."""
    if poptorch.isRunningOnIpu():
        return _in_cpp("Cube", [x], 1, factor=factor)[0]
    return (factor * x * x * x).contiguous()  # results of custom ops are row-major


class _Pair(torch.autograd.Function):
    """The formula of ``pair``; a result that nothing reads has a gradient of zeros, as in C++."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return (a * b).contiguous(), (a * a + b * b).sum()

    @staticmethod
    def backward(ctx, product, total):
        a, b = ctx.saved_tensors
        return product * b + 2 * total * a, product * a + 2 * total * b


def pair(a, b):
    """The product, and the sum of all squares: an op in C++ with two inputs and results."""
    if poptorch.isRunningOnIpu():
        return _in_cpp("Pair", [a, b], 2)
    return _Pair.apply(a, b)


def named(name: str, version: int, inputs: list, **attributes):
    """The one result of an operation of ONNX."""
    return poptorch.custom_op(inputs, name, "ai.onnx", version, example_outputs=inputs[:1],
                              attributes=attributes)[0]


# -- in Python -----------------------------------------------------------------------------------


@torch.library.custom_op("tests_fuzz::wave", mutates_args=())
def wave(x: torch.Tensor, factor: float) -> torch.Tensor:
    """``sin(factor * x)``."""
    return torch.sin(x * factor)


@wave.register_fake
def _(x, factor):
    return torch.empty_like(x)


def _wave_gradient(ctx, gradient):
    x, = ctx.saved_tensors
    return gradient * ctx.factor * torch.cos(x * ctx.factor), None


def _keep_wave(ctx, inputs, output):
    x, ctx.factor = inputs
    ctx.save_for_backward(x)


wave.register_autograd(_wave_gradient, setup_context=_keep_wave)


@torch.library.custom_op("tests_fuzz::sums", mutates_args=())
def sums(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums of the rows, and twice the tensor, which does not lie row by row."""
    return x.sum(-1), (x.transpose(0, -1).contiguous() * 2).transpose(0, -1)


@sums.register_fake
def _(x):
    return x.sum(-1), (x.transpose(0, -1).contiguous() * 2).transpose(0, -1)


sums.register_autograd(
    lambda ctx, of_sums, of_twice: of_sums.unsqueeze(-1).expand_as(of_twice) + 2 * of_twice)


@torch.library.custom_op("tests_fuzz::increase_", mutates_args={"x"})
def _increase(x: torch.Tensor, by: float) -> None:
    x += by


@_increase.register_fake
def _(x, by):
    return None


def increased(x, by: float):
    """A copy that an op in Python changes in place."""
    copy = x.detach().clone()
    _increase(copy, by)
    return copy
