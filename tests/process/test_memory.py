"""What poptorch does with the process's memory (planned memory of torch's operators, pages shared
with the device) is not seen by other extensions, system calls, processes and tools."""

import subprocess
from pathlib import Path

import pytest
import torch

from tests.helpers import run_python

START = """
import ctypes, gc, os, sys, tempfile
import torch
import poptorch
options = poptorch.Options().showCompilationProgressBar(False)

class Net(torch.nn.Module):  # 1 MiB of weights, and a call of torch's operators
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(512, 512)

    def forward(self, x):
        return torch.linalg.inv(self.dense(x) + 600 * torch.eye(512))

def compiled():
    net = Net()
    model = poptorch.inferenceModel(net, options)
    return net, model, model(x)

torch.manual_seed(0)
x = torch.randn(512, 512)

def check(net, model):
    torch.testing.assert_close(model(x), net(x).detach(), rtol=1e-3, atol=1e-4)
"""


@pytest.fixture(scope="module")
def other_library(tmp_path_factory):
    """A library that sets an allocator of its own."""
    path = tmp_path_factory.mktemp("other") / "other_allocator.so"
    torch_folder = Path(torch.__file__).parent
    subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", "-O1", "-o", str(path),
                    str(Path(__file__).with_name("other_allocator.cpp")),
                    f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}", "-lc10",
                    f"-Wl,-rpath,{torch_folder / 'lib'}"], check=True)
    return path


@pytest.mark.sampled
@pytest.mark.parametrize("order", ["before", "after", "before and after"])
def test_allocators_of_other_extensions(other_library, order):
    """Whoever sets one is heeded, at the priority that torch gives by default."""
    code = START + f"""
other = ctypes.CDLL({str(other_library)!r})
if "before" in {order!r}:
    other.set_allocator(0)
net, model, _ = compiled()
if "after" in {order!r}:
    other.set_allocator(0)
check(net, model)
before = other.calls_of_allocator()
kept = [torch.ones(100) for _ in range(10)]
print(other.calls_of_allocator() - before >= 10)
check(*compiled()[:2])
model.destroy()
check(*compiled()[:2])
"""
    assert run_python(code).split() == ["True"]


@pytest.mark.sampled
def test_tools_see_the_memory_of_eager_programs():
    """torch's profiler counts for eager operators what it counts in a process without poptorch."""
    code = START + """
def counted():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                profile_memory=True) as profile:
        y = torch.ones(1000, 1000)
        z = (y @ y).relu()
        del y, z
    return sorted((e.key, e.count, e.self_cpu_memory_usage) for e in profile.key_averages())

counted()
before = counted()
net, model, _ = compiled()
check(net, model)
during = counted()
model.destroy()
print(before == during == counted())
"""
    assert run_python(code).split() == ["True"]


@pytest.mark.sampled
def test_system_calls_and_other_processes():
    """They read and write the host's bytes, and the device keeps its own."""
    code = START + """
net, model, expected = compiled()
weight = net.dense.weight.detach()
assert weight.data_ptr() == net.dense.weight.data_ptr()
address, size = weight.data_ptr(), weight.nbytes
with open("/proc/self/mem", "rb") as memory:
    memory.seek(address)
    assert memory.read(size) == weight.numpy().tobytes()

new = torch.randn_like(weight)
with tempfile.TemporaryFile() as file:  # the system writes to the pages
    file.write(new.numpy().tobytes())
    file.seek(0)
    assert os.readv(file.fileno(), [weight.numpy()]) == size
assert torch.equal(weight, new)
assert torch.equal(model(x), expected)
with tempfile.TemporaryFile() as file:  # and reads them
    os.writev(file.fileno(), [weight.numpy()])
    file.seek(0)
    assert file.read() == new.numpy().tobytes()
model.copyWeightsToDevice()
check(net, model)
"""
    run_python(code, timeout_s=120)


@pytest.mark.sampled
def test_other_processes_share_the_weights():
    """share_memory_() and a child that writes: as without poptorch."""
    code = START + """
net, model, expected = compiled()
net.share_memory()
child = os.fork()
if child == 0:
    weight = net.dense.weight.detach()  # torch's own threads do not live in a forked process
    ctypes.memset(weight.data_ptr(), 0, weight.nbytes)
    os._exit(0)
os.waitpid(child, 0)
assert not net.dense.weight.any()
assert torch.equal(model(x), expected)
model.copyWeightsToDevice()
check(net, model)
"""
    run_python(code, timeout_s=120)


@pytest.mark.sampled
def test_the_switches():
    """Without these optimizations neither the allocator nor the pages are touched."""
    code = START + """
net, model, _ = compiled()
check(net, model)
maps = open("/proc/self/maps").read()
before = poptorch._C.aten_allocations()
torch.ones(100)
print("poptorch_weights" in maps, poptorch._C.aten_allocations() - before)
"""
    assert run_python(code).split() == ["True", "1"]
    off = run_python(code, POPTORCH_OFF="share_weights,planned_calls").split()
    assert off == ["False", "0"]
