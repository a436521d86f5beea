"""When the system has no memory left: an error, and the process goes on."""

import os
import subprocess

import pytest

from tests.helpers import ROOT, run_python

CHILD = """
import ctypes
import torch
import poptorch
from tests.helpers import quiet_options

torch.set_num_threads(2)
hook = ctypes.CDLL(None)
hook.refusals.restype = ctypes.c_long

class Product(torch.nn.Module):
    def forward(self, a, b):
        return (a @ b)[:2] + 0

a, b = torch.randn(400, 300), torch.randn(300, 500)
model = poptorch.inferenceModel(Product(), quiet_options())
model.compile(a, b)
expected = (a.double() @ b.double()).float()[:2]
for _ in range(2):
    # A thread's own memory for a product is larger.
    hook.fail_from(ctypes.c_ulong(200_000), ctypes.c_int(SPARED))
    try:
        model(a, b)
    except BaseException as error:
        found = error
    else:
        found = None
    hook.fail_from(ctypes.c_ulong(0), ctypes.c_int(0))
    print(type(found).__name__, str(found).replace(chr(10), " "))
    assert hook.refusals() > 0
    assert isinstance(found, poptorch.Error)
torch.testing.assert_close(model(a, b), expected, rtol=1e-4, atol=1e-3)
print("right")
"""


@pytest.fixture(scope="module")
def failing_library(tmp_path_factory):
    path = tmp_path_factory.mktemp("fail") / "fail_allocations.so"
    source = ROOT / "tests" / "run" / "memory" / "fail_allocations.c"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", path, source], check=True)
    return path


@pytest.mark.sampled
@pytest.mark.parametrize("spared", [0, 1], ids=["all threads", "all but the first"])
def test_a_thread_that_gets_no_memory_is_an_error(spared, failing_library):
    out = run_python(CHILD.replace("SPARED", str(spared)), LD_PRELOAD=str(failing_library),
                     POPTORCH_GEMM="loops", POPTORCH_OFF="bf16x3_gemm,direct_streams")
    *errors, right = out.splitlines()
    assert right == "right"
    for error in errors:
        assert "the system has no memory left" in error and "step run" in error
