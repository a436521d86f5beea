"""What `make wheel` refuses in a wheel; on small ones that are made here."""

import zipfile

import pytest

from tests.wheel.__main__ import LIMIT_BYTES, problems_of

NAME = "poptorch-0.1.0-cp311-cp311-manylinux_2_35_x86_64.whl"
FILES = {
    "poptorch/__init__.py": "", "popart/__init__.py": "", "pytest_poptorch.py": "",
    "poptorch/lib/torch2_13/_C.cpython-311-x86_64-linux-gnu.so": "",
    "poptorch/lib/libpoptorch.so": "",
    "poptorch-0.1.0.data/data/bin/poptorch-run": "",
    "poptorch-0.1.0.dist-info/licenses/LICENSE": "",
    "poptorch-0.1.0.dist-info/licenses/csrc/python/LICENSE.pybind11": "",
}
EXTENSION = "poptorch/lib/torch2_13/_C.cpython-311-x86_64-linux-gnu.so"


def _problems(folder, name=NAME, **changes) -> str:
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**FILES, **changes.get("files", {})}.items():
            if file not in changes.get("without", ()):
                archive.writestr(file, text)
    return "; ".join(problems_of(path, ("2.13.0",)))


def test_a_wheel_that_is_right(tmp_path):
    assert _problems(tmp_path) == ""


@pytest.mark.parametrize("changes, words", [
    ({"name": "poptorch-0.1.0-cp311-cp311-linux_x86_64.whl"}, "without manylinux_2_"),
    ({"files": {"poptorch/large": "x" * (LIMIT_BYTES + 1)}}, f"the limit is {LIMIT_BYTES}"),
    ({"without": [EXTENSION]}, "it has no extension for torch 2.13.0"),
    ({"without": ["poptorch/lib/libpoptorch.so"]}, "it has no poptorch/lib/libpoptorch.so"),
    ({"without": ["poptorch-0.1.0.data/data/bin/poptorch-run"]}, "it has no poptorch-run"),
    ({"files": {"tests/conftest.py": ""}}, "it holds ['popart', 'poptorch', 'pytest_poptorch.py', "
                                           "'tests']"),
    ({"files": {"poptorch.libs/libgomp-1.so": ""}}, "it holds a library of torch"),
    ({"without": ["poptorch-0.1.0.dist-info/licenses/LICENSE"]}, "it has no LICENSE"),
    ({"without": ["poptorch-0.1.0.dist-info/licenses/csrc/python/LICENSE.pybind11"]},
     "it has no csrc/python/LICENSE.pybind11"),
], ids=lambda value: value if isinstance(value, str) else None)
def test_what_is_wrong_is_said(tmp_path, changes, words):
    assert words in _problems(tmp_path, **changes)
