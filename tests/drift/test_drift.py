"""The report on small wheels that are made here."""

import re
import zipfile
from pathlib import Path

import pytest
import torch

from poptorch._base.torch_private import basic
from tests.drift.__main__ import compare, compare_names, main, used_names
from tests.drift.wheel import Wheel

SCHEMAS = "torchgen/packaged/ATen/native/native_functions.yaml"
OLD = {
    "torch/version.py": "__version__ = '2.13.0+cpu'\n",
    "torch/__init__.py": "from torch.nn import Module\nfrom ._parts import *\n",
    "torch/_parts.py": "def kept(x): pass\ndef renamed(grad): pass\ndef gone(): pass\nflag = 1\n"
                       "def body(): return 1\n",
    "torch/nn/__init__.py": "class Module:\n    def _load(self, state): pass\n",
    "torch/_C/__init__.pyi": "def _enabled() -> bool: ...\nclass Key:\n    FAKE: int = ...\n",
    "torch/_decomp/decompositions.py":
        "@register_decomposition(aten.add)\ndef add(x): return x * x.sigmoid()\n"
        "@register_decomposition([aten.fill.Scalar, aten.fill.Tensor])\ndef fill(x, y): ...\n",
    SCHEMAS: "- func: add(Tensor self) -> Tensor\n- func: qr(Tensor self) -> (Tensor, Tensor)\n",
}
NEW = {
    **OLD,
    "torch/version.py": "__version__ = '2.14.1'\n",
    "torch/_parts.py": "try:\n    from torch._others import kept\nexcept ImportError:\n    pass\n"
                       "def renamed(grad_output): pass\nflag = 2\ndef body(): return 2\n",
    "torch/_others.py": "def kept(x): pass\n",
    "torch/_decomp/decompositions.py":
        "@register_decomposition(aten.add)\ndef add(x): return x / (1 + (-x).exp())\n"
        "@register_decomposition(aten.gelu)\ndef gelu(x): ...\n",
    SCHEMAS: "- func: add(Tensor self, *, bool exact=True) -> Tensor\n- func: new(int a) -> int\n",
}


def _wheel(folder, files):
    version = re.search(r"'(.*)'", files["torch/version.py"]).group(1)
    path = folder / f"torch-{version}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


@pytest.fixture
def wheels(tmp_path):
    return [_wheel(tmp_path, files) for files in (OLD, NEW)]


def test_names(wheels):
    old, new = map(Wheel, wheels)
    names = ["torch._parts.kept", "torch._parts.renamed", "torch.gone", "torch._C._enabled",
             "torch._parts.flag", "torch._parts.body", "torch.nn.Module._load", "torch._C.Key.FAKE",
             "torch._C._generated"]
    assert compare_names(old, new, names) == {
        "gone": ["torch.gone"],
        "signature": ["torch._parts.renamed: (grad) -> (grad_output)"],
        "code": ["torch._parts.flag", "torch._parts.body"],
        "compiled": ["torch._C._generated"]}


def test_operators(wheels):
    old, new = map(Wheel, wheels)
    assert compare(old.schemas, new.schemas) == {"gone": ["qr"], "new": ["new"],
                                                 "changed": ["add"]}
    assert compare(old.decompositions, new.decompositions) == {
        "gone": ["fill.Scalar", "fill.Tensor"], "new": ["gelu"], "changed": ["add"]}


def test_report(wheels, capsys, monkeypatch):
    monkeypatch.setattr("tests.drift.__main__.used_names", lambda: ["torch.gone"])
    assert main([str(path) for path in wheels]) == 1
    said = capsys.readouterr().out
    assert said.startswith("torch 2.13.0+cpu -> 2.14.1; poptorch uses 1 names of torch")
    assert "\nnames that are gone: 1\n  torch.gone\n" in said
    assert "\noperators with another schema: 1\n  * add(Tensor self) -> Tensor\n      now" in said
    assert "\noperators that are gone: 1\n    qr\n" in said
    monkeypatch.setattr("tests.drift.__main__.used_names", lambda: ["torch._parts.body"])
    assert main([str(path) for path in wheels]) == 0


def test_what_is_no_wheel_of_torch(tmp_path):
    path = _wheel(tmp_path, {"torch/version.py": "version = 'x'"})
    with pytest.raises(SystemExit, match=r"\[drift\] .*is not a wheel of torch"):
        Wheel(path)


def test_names_of_the_installed_torch():
    """Most of them are in its files: a report says something about them."""
    names = used_names()
    assert f"torch.{basic.is_all_true.__name__}" in names
    assert "torch._subclasses.fake_tensor.FakeTensor" in names and "torch" not in names
    installed = Wheel(Path(torch.__file__).resolve().parents[1])
    found = compare_names(installed, installed, names)
    assert not found["gone"] and len(found["compiled"]) <= len(names) // 10
