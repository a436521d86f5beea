"""Which extension is taken, and what is said where none fits."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from poptorch._base import extension_check
from tests.helpers import ROOT
from tests.package_links import link_shared_files

IMPORT = """
import sys
import warnings
import torch
torch.__version__ = "{version}"
sys.meta_path[:] = [finder for finder in sys.meta_path
                    if "editable" not in getattr(finder, "__module__", "")]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import poptorch
    import poptorch.options
print(*[str(w.message) for w in caught], sep="|")
print(poptorch._C.__file__)
"""


@pytest.fixture
def package(tmp_path):
    """A function that makes a package with the extension of this torch named as that of others."""
    def make(*folders: str) -> Path:
        link_shared_files(tmp_path / "poptorch")
        for folder in folders:
            place = tmp_path / "poptorch" / "lib" / folder
            place.mkdir(parents=True, exist_ok=True)
            for file in extension_check._FOLDER.iterdir():
                (place / file.name).unlink(missing_ok=True)
                (place / file.name).symlink_to(file)
        return tmp_path
    return make


def _said(folder: Path, version: str) -> list[str]:
    """What an import says, as lines; the last one is the extension's file or the error."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", IMPORT.format(version=version)], cwd=folder,
                          env=environment, capture_output=True, text=True, check=False)
    return (done.stderr or done.stdout).rstrip("\n").splitlines()


@pytest.mark.parametrize("version", ["2.13.0", "2.13.1+cpu", "2.14.1", "2.15.0"])
def test_supported_releases_are_silent(package, version):
    folder = package("torch2_13", "torch2_14", "torch2_15")
    chosen = f"torch2_{version[2:4]}"
    assert _said(folder, version) == ["", str(folder / "poptorch/lib" / chosen
                                              / extension_check._FILE)]


@pytest.mark.parametrize("version", ["2.16.0.dev20261129", "2.1.3"])
def test_one_warning_for_another_release(package, version):
    major, minor, *_ = version.split(".")
    said, _ = _said(package(f"torch{major}_{minor}"), version)
    assert said == (f"poptorch supports torch 2.13, 2.14 and 2.15; this is torch {version}. "
                    f"Capture uses torch's internals, so another version may fail.")


def test_a_wheel_without_the_extension_of_this_release(package):
    *_, said = _said(package("torch2_13", "torch2_14", "torch2_15"), "2.16.0")
    assert said == ("ImportError: [poptorch] the extension poptorch._C is not built for torch "
                    "2.16.0, only for torch 2.13, 2.14 and 2.15. "
                    "Run `pip install \"torch>=2.13,<2.16\"`.")


def test_a_wheel_without_extensions(package):
    *_, said = _said(package(), "2.13.0")
    assert said == ("ImportError: [poptorch] the extension poptorch._C is not built for torch "
                    "2.13.0, for no release of torch. "
                    "Install the wheel again, or build poptorch from its sources.")


def test_a_checkout_that_is_not_built(package):
    folder = package()
    (folder / "setup.py").touch()
    *_, said = _said(folder, "2.13.0")
    assert said.startswith("ImportError: [poptorch] the extension poptorch._C is not built for")
    assert said.endswith(f"Run `make build` in {folder}, or install the wheel.")


def test_an_extension_that_does_not_load(package):
    folder = package("torch2_13")
    (folder / "poptorch/lib/torch2_14").mkdir(exist_ok=True)
    (folder / "poptorch/lib/torch2_14" / extension_check._FILE).write_text("nothing")
    *_, said = _said(folder, "2.14.0")
    assert said.startswith("ImportError: [poptorch] the extension ")
    assert "does not load with torch 2.14.0" in said and "pip install" in said


def test_requirements_name_the_supported_releases():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    first, last = extension_check.SUPPORTED[0], extension_check.SUPPORTED[-1]
    wanted = f"torch>={first},<2.{int(last.split('.')[1]) + 1}"
    assert wanted in project["project"]["dependencies"]
    assert wanted in project["build-system"]["requires"]
