"""``poptorch.testing.assert_budget`` and the plug-in for pytest."""

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import poptorch
from poptorch.testing import assert_budget
from tests.helpers import ROOT, quiet_options


class Net(nn.Module):
    """Two layers, and an operation that has no rule."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(64, 512), nn.Linear(512, 4)

    def forward(self, x):
        return torch.linalg.svdvals(self.narrow(torch.relu(self.wide(x))))


@pytest.fixture(scope="module")
def report():
    return poptorch.estimate(Net(), quiet_options(), torch.ones(8, 64))


def test_within_the_budget(report):
    assert_budget(report, tile_peak_bytes=report.tile_memory.peak, cycles=report.cycles,
                  opaque_ops=len(report.opaque_ops))


def test_what_exceeds_it(report):
    with pytest.raises(AssertionError) as caught:
        assert_budget(report, tile_peak_bytes=1000, cycles=10, opaque_ops=0)
    lines = str(caught.value).splitlines()
    assert lines[0] == ("[assert_budget] Net, inference exceeds its budget. Make these smaller, or "
                        "raise the budget.")
    assert lines[1] == (f"tile_peak_bytes: {report.tile_memory.peak}, budget 1000. Largest values "
                        f"of IPU 0, over all its tiles:")
    assert lines[2] == "  131072 bytes: wide.weight"
    assert lines[5] == f"cycles: {report.cycles:.0f}, budget 10. Slowest operations:"
    assert all(" cycles: " in line for line in lines[6:9])
    assert any("test_budget.py:" in line for line in lines[6:9])
    assert lines[9] == "opaque_ops: 1, budget 0:" and "test_budget.py:" in lines[10]
    assert len(lines) == 11


@pytest.mark.parametrize("budget", ["tile_peak_bytes", "cycles", "opaque_ops"])
def test_each_budget_by_itself(report, budget):
    with pytest.raises(AssertionError, match=f"\n{budget}: "):
        assert_budget(report, **{budget: 0})


def test_no_budget(report):
    with pytest.raises(TypeError, match=r"\[assert_budget\] expected a budget, got none"):
        assert_budget(report)


def run_pytest(folder, text, *words):
    path = folder / "test_net.py"
    path.write_text(textwrap.dedent(text))
    command = [sys.executable, "-m", "pytest", "-p", "pytest_poptorch", "-q", "-n0", "--rootdir",
               str(folder), "-c", "/dev/null", "-p", "no:cacheprovider", str(path), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.returncode, done.stdout + done.stderr


TEST = """
    import torch

    def test_it(ipu_report):
        import poptorch

        report = ipu_report(torch.nn.Linear(4, 2), poptorch.Options(), torch.ones(3, 4))
        assert report.target == "bow"
"""


@pytest.mark.sampled
def test_the_plug_in_chooses_the_system(tmp_path):
    status, text = run_pytest(tmp_path, TEST, "--ipu=bow-pod16")
    assert status == 0, text
    status, text = run_pytest(tmp_path, TEST)
    assert status == 1 and "Linear, inference on 1 IPU (gc200)" in text


def test_an_unknown_system(tmp_path):
    status, text = run_pytest(tmp_path, TEST, "--ipu=pod17")
    assert status == 4 and "ERROR: [--ipu] unknown IPU system 'pod17'. Use one of c2, " in text


def test_tests_without_it_do_not_import_torch(tmp_path):
    text = "import sys\ndef test_it():\n    assert 'torch' not in sys.modules\n"
    status, text = run_pytest(tmp_path, text, "-p", "no:hypothesispytest")
    assert status == 0, text
