"""Importing poptorch and using it leaves the process as it was."""

import json

import pytest

from tests.helpers import run_python

RECORD = "from tests.process.recorded import main; main()"


@pytest.fixture(scope="module")
def changes():
    """What importing changed, and what using changed."""
    return [set(found) for found in json.loads(run_python(RECORD).splitlines()[-1])]


@pytest.mark.sampled
def test_import_changes_nothing(changes):
    # A documented method of parameters, of the API that this package implements.
    assert changes[0] == {"Parameter: replicaGrouping"}


def test_use_changes_nothing(changes):
    assert not changes[1]


CHANGES = [
    "os.environ['X'] = '1'", "os.umask(0o123)", "torch.set_default_dtype(torch.float64)",
    "multiprocessing.set_start_method('spawn')", "sys.path.append('x')",
    "warnings.simplefilter('error')", "logging.root.setLevel(5)", "torch.set_grad_enabled(False)",
    "signal.signal(signal.SIGUSR1, signal.SIG_IGN)", "sys.setrecursionlimit(5000)",
    "torch.use_deterministic_algorithms(True)", "torch.set_num_threads(3)", "os.chdir('/')",
    "torch.set_default_device('meta')", "torch.rand(1)", "torch.Tensor.x = 1",
    "tqdm.tqdm(disable=True)", "multiprocessing.RLock()", "torch.set_flush_denormal(True)",
    "ctypes.CDLL(None).setenv(b'Y', b'1', 1)", "threading.Timer(9, print).start()", "pass"]

IN_CHILDREN = """
import ctypes, logging, multiprocessing, os, signal, sys, threading, warnings
import torch
import tqdm
from tests.process import recorded

before = recorded.record()
for change in {changes}:
    child = os.fork()
    if child == 0:
        exec(change)
        os._exit(len(recorded.differences(before, recorded.record())))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.sampled
def test_what_is_recorded_tells_a_change():
    found = run_python(IN_CHILDREN.format(changes=CHANGES)).split()
    assert [change for change, count in zip(CHANGES, found, strict=True)
            if int(count) <= 0] == ["pass"]
