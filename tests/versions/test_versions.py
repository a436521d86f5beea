"""Files go from one release of torch or Python to another, with equal bits.

``POPTORCH_TEST_PYTHONS`` has the paths of other Pythons, with ``:`` between, for which the
extension is built: ``make versions PYTHONS="..."``. Without it, another process of this Python
takes their place.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.versions.networks import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
OTHERS = [path for path in os.environ.get("POPTORCH_TEST_PYTHONS", "").split(os.pathsep) if path]


def exchange(python: str, what: str, folder: Path) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run([python, "-m", "tests.versions.exchange", what, folder], cwd=ROOT,
                          env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{python}: {done.stderr[-4000:]}"
    return done.stdout.splitlines()


@pytest.mark.sampled
@pytest.mark.parametrize("writer, reader", [
    pair for other in OTHERS or [sys.executable]
    for pair in dict.fromkeys([(sys.executable, other), (other, sys.executable)])])
def test_files_of_another_python(writer, reader, tmp_path):
    exchange(writer, "write", tmp_path)
    assert exchange(reader, "read", tmp_path) == [f"{name}: equal" for name in PROGRAMS]
