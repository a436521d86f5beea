"""What ``import poptorch`` costs and says."""

import os
import shutil
import subprocess
import sys

import pytest

import poptorch
from tests.helpers import ROOT, run_python

ADDED = """
import sys
import torch
before = set(sys.modules)
import poptorch
print(*sorted(name for name in set(sys.modules) - before if not name.startswith("poptorch")))
"""


def test_private_parts_of_torch_come_at_the_first_capture():
    heavy = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx.experimental")
    added = run_python(ADDED).split()
    assert not [name for name in added if name.startswith(heavy)]


NONE = ("import sys; sys.meta_path[:] = [finder for finder in sys.meta_path if 'editable' not "
        "in getattr(finder, '__module__', '')]; import poptorch")
# What the finder of an editable installation of another checkout does.
ANOTHER = """
import sys
from importlib.util import spec_from_file_location

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return spec_from_file_location(name, "{file}") if name == "poptorch._C" else None

sys.meta_path.append(Finder)
import poptorch
"""


@pytest.mark.sampled
@pytest.mark.parametrize("code", [NONE, ANOTHER], ids=["nowhere", "in another checkout"])
def test_a_checkout_that_is_not_built(tmp_path, code):
    shutil.copytree(ROOT / "poptorch", tmp_path / "poptorch",
                    ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "setup.py").touch()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code.replace("{file}", poptorch._C.__file__)],
                          cwd=tmp_path, env=environment, capture_output=True, text=True,
                          check=False)
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("ImportError: [poptorch] the extension poptorch._C is not built")
    assert f"Run `make build` in {tmp_path}" in said and "circular" not in said
