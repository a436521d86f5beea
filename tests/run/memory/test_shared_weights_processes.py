"""Shared weights with forks, threads that write and allocate, and the system's limits.

What could crash an interpreter runs in a child process.
"""

import pytest

from tests.helpers import run_python

START = """
import ctypes, gc, os, threading
import torch
from torch import nn
import poptorch

torch.manual_seed({seed})
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(3)])
x = torch.randn(4, 512)
expected = model(x).detach()
compiled = poptorch.inferenceModel(model, poptorch.Options().showCompilationProgressBar(False))
torch.testing.assert_close(compiled(x), expected)
"""

FORK = """
read_end, write_end = os.pipe()
child = os.fork()
if child == 0:
    try:
        os.read(read_end, 1)  # until the parent has given up its device
        torch.testing.assert_close(model(x).detach(), expected)
        with torch.no_grad():
            model[0].weight.zero_()
        assert not model[0].weight.any()
        del compiled
        model = None
        gc.collect()
        filler = [torch.ones(512, 512) for _ in range(10)]
        os._exit(0 if all(t.eq(1).all() for t in filler) else 2)
    except BaseException:
        os._exit(1)
with torch.no_grad():
    model[1].weight.neg_()
compiled.copyWeightsToDevice()
torch.testing.assert_close(compiled(x), model(x).detach())
compiled.destroy()
gc.collect()
os.write(write_end, b"x")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

WRITERS = """
stop, errors = threading.Event(), []

def write(number):
    layer = model[number]
    while not stop.is_set():
        with torch.no_grad():
            layer.weight.add_(1)
            layer.weight.sub_(1)

def allocate():
    while not stop.is_set():
        blocks = [torch.full((300, 300 + i), float(i)) for i in range(20)]
        if not all(b.eq(i).all() for i, b in enumerate(blocks)):
            errors.append("memory of others")

threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
threads.append(threading.Thread(target=allocate))
for thread in threads:
    thread.start()
for _ in range(100):
    compiled(x)  # takes what the others are just writing
for _ in range(20):
    twin = poptorch.inferenceModel(
        nn.Sequential(*[nn.Linear(512, 512) for _ in range(2)]),
        poptorch.Options().showCompilationProgressBar(False))
    torch.testing.assert_close(twin(x), twin.model(x).detach())
stop.set()
for thread in threads:
    thread.join()
torch.testing.assert_close(compiled(x), model(x).detach())
print(errors)
"""

# The blocks are smaller than what malloc maps: they lie in its heap, between others.
HEAP = """
libc = ctypes.CDLL(None)
assert libc.mallopt(-3, 1 << 30) == 1  # M_MMAP_THRESHOLD
for turn in range(10):
    widths = [torch.randint(200, 700, ()).item() for _ in range(6)]
    others = [torch.randn(w, 100) for w in widths]
    net = nn.Sequential(*[nn.Linear(a, b) for a, b in zip(widths, widths[1:])])
    sums = [t.double().sum() for t in others]
    inputs = torch.randn(3, widths[0])
    other = poptorch.inferenceModel(net, poptorch.Options().showCompilationProgressBar(False))
    torch.testing.assert_close(other(inputs), net(inputs).detach())
    with torch.no_grad():
        net[1].weight.mul_(2)
    other.copyWeightsToDevice()
    torch.testing.assert_close(other(inputs), net(inputs).detach())
    assert sums == [t.double().sum() for t in others]
    if turn % 2:
        del net, other
    else:
        other.destroy()
        del net
    gc.collect()
    libc.malloc_trim(0)
    zeros = torch.zeros(1000, 1000)
    assert not zeros.any()
torch.testing.assert_close(compiled(x), expected)
print("done")
"""

NO_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
other = poptorch.inferenceModel(nn.Linear(512, 512),
                                poptorch.Options().showCompilationProgressBar(False))
torch.testing.assert_close(other(x), other.model(x).detach())
print("done")
"""

MEMORY = """
def line(name):
    with open("/proc/self/status") as file:
        return next(int(row.split()[1]) for row in file if row.startswith(name)) / 1024
"""

PEAK = MEMORY + """
large = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(8)])
size = sum(p.nbytes for p in large.parameters()) / 2**20
inputs = torch.randn(4, 2048)
before = line("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
other = poptorch.inferenceModel(large, poptorch.Options().showCompilationProgressBar(False))
other(inputs)
print((line("VmHWM") - before) / size)
"""

RESULT = MEMORY + """
class Table(nn.Module):
    def forward(self, a, b):
        return a[:, None] * b

size = 64
inputs = torch.randn(4096), torch.randn(4096)
before = line("VmRSS")
other = poptorch.inferenceModel(Table(), poptorch.Options().showCompilationProgressBar(False))
result = other(*inputs)
assert result.nbytes == size * 2**20
print((line("VmRSS") - before) / size)
"""


def run_child(code, seed, **environment):
    code = (START + code).replace("{seed}", str(seed))
    return run_python(code, timeout_s=120, **environment).splitlines()[-1]


@pytest.mark.sampled
def test_a_forked_child_keeps_its_weights(seed):
    # OpenMP's threads are not there after a fork.
    assert run_child(FORK, seed, OMP_NUM_THREADS="1") == "0"


@pytest.mark.sampled
def test_threads_that_write_and_allocate(seed):
    assert run_child(WRITERS, seed) == "[]"


@pytest.mark.sampled
def test_memory_from_the_heap(seed):
    assert run_child(HEAP, seed) == "done"


@pytest.mark.sampled
def test_without_room_for_files_weights_are_copied(seed):
    assert run_child(NO_FILES, seed) == "done"


@pytest.mark.sampled
def test_weights_exist_once(seed):
    assert float(run_child(PEAK, seed)) < 0.5 < float(run_child(PEAK, seed,
                                                                POPTORCH_OFF="share_weights"))


@pytest.mark.sampled
def test_a_result_in_host_memory_takes_none_on_the_device(seed):
    assert float(run_child(RESULT, seed)) < 1.5
