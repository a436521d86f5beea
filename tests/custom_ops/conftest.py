"""The libraries of custom ops that the tests of this folder load."""

import ctypes
import subprocess

import pytest

import poptorch
from tests.helpers import ROOT

EXAMPLES = sorted((ROOT / "examples" / "custom_ops").glob("*.cpp"))
TRIAL = ROOT / "tests" / "custom_ops" / "trial.cpp"


def build(folder, name, *sources):
    """Compiles sources as the guide shows it; returns the path of the library."""
    path = folder / name
    subprocess.run(["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
                    f"-I{poptorch.include_path()}", *map(str, sources), "-o", str(path)],
                   check=True)
    return path


@pytest.fixture(scope="session", autouse=True)
def library(tmp_path_factory):
    """The path of one library with the examples and the ops of trial.cpp, which is loaded."""
    path = build(tmp_path_factory.mktemp("custom_ops"), "libtrial.so", *EXAMPLES, TRIAL)
    ctypes.cdll.LoadLibrary(str(path))
    return path
