"""The cache under several processes and threads, and under processes that are killed."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

import poptorch
from poptorch._files.cache import SUFFIX, About, Entry, Folder, Key
from tests.helpers import ROOT, quiet_options

# Eight children of one process that has compiled: the imports take longer than all they do.
_EIGHT = """
import multiprocessing, os, sys, torch, poptorch
poptorch.inferenceModel(torch.nn.Tanh())(torch.ones(2))
poptorch.setLogLevel("DEBUG")
context = multiprocessing.get_context("fork")
barrier = context.Barrier(8)

def work():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    options = poptorch.Options().showCompilationProgressBar(False)
    options.enableExecutableCaching(sys.argv[1])
    model = poptorch.inferenceModel(net, options)
    barrier.wait()
    # In one write: processes share the stream.
    os.write(1, f"{model(torch.ones(4, 16)).sum().item()}\\n".encode())

workers = [context.Process(target=work) for _ in range(8)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
    assert worker.exitcode == 0
"""


@pytest.mark.sampled
def test_of_eight_processes_one_compiles(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", _EIGHT, str(tmp_path)], cwd=ROOT, env=env,
                          text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 8 and len(set(done.stdout.split())) == 1
    log = done.stderr
    assert log.count("compiling it") == 1 and log.count("loaded the executable from") == 7
    assert log.count("cache file locked") == log.count("released the cache lock") >= 1
    assert len(os.listdir(tmp_path)) == 1


def test_of_eight_threads_one_compiles(tmp_path, monkeypatch):
    compiled, compile_ = [], poptorch._C.compile

    def counted(*args):
        compiled.append(1)
        return compile_(*args)

    monkeypatch.setattr(poptorch._C, "compile", counted)
    net, x, results = torch.nn.Linear(8, 8), torch.ones(2, 8), []

    def run():
        model = poptorch.inferenceModel(net, quiet_options(enableExecutableCaching=str(tmp_path)))
        results.append(model(x))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1 and len(results) == 8
    assert all(torch.equal(result, results[0]) for result in results)


# Forks children, which write entries without end.
_WRITERS = """
import os, sys, torch, poptorch
from poptorch._files.cache import About, Folder, Key
options = poptorch.Options().showCompilationProgressBar(False)
model = poptorch.inferenceModel(torch.nn.Linear(40, 30), options)
model(torch.ones(2, 40))
folder = Folder(sys.argv[1], 1 << 30)
print(flush=True)
for line in sys.stdin:
    child = os.fork()
    if child:
        print(child, flush=True)
        os.waitpid(child, 0)
        print(flush=True)
    number = 0
    while child == 0:
        key = Key(model.ir("translate"), {"number": str(number % 3)})
        with folder.locked(key):
            folder.add(key, model._executable, About("Linear, inference", "", {}))
        number += 1
"""


def _kills(folder, count, seed):
    """Kills writers; each time, what is there is whole. Returns the names of the entries."""
    draw, known = random.Random(seed), set()
    model = poptorch.inferenceModel(torch.nn.Linear(40, 30), quiet_options())
    model(torch.ones(2, 40))
    place, text = Folder(folder, 1 << 30), model.ir("translate")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, "-c", _WRITERS, str(folder)], env=env, text=True,
                          cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writers:
        writers.stdout.readline()
        for _ in range(count):
            writers.stdin.write("fork\n")
            writers.stdin.flush()
            child = int(writers.stdout.readline())
            time.sleep(draw.uniform(0, 0.05))
            os.kill(child, signal.SIGKILL)
            writers.stdout.readline()
            found = {path.name for path in place.entries()}
            assert known <= found  # nothing is lost
            known = found
            for path in place.entries():
                assert Entry(path).text == text
        writers.stdin.close()
    left = [name for name in os.listdir(folder) if not name.endswith(SUFFIX)]
    assert sorted(path.name for path in place.clean()) == sorted(left)
    key = Key(text, {"number": "0"})
    with place.locked(key):  # nobody holds it any more
        place.add(key, model._executable, About("Linear, inference", "", {}))
    assert place.find(key).text == text
    assert all(path.suffix == SUFFIX for path in folder.iterdir())
    return known


def test_killed_writers_lose_nothing(tmp_path, seed):
    assert _kills(tmp_path, 20, seed)


@pytest.mark.slow
def test_many_killed_writers_lose_nothing(tmp_path, seed):
    assert _kills(tmp_path, 200, seed)


# Forks eight children that train a network which no entry is of, and waits for them.
_COMPILERS = """
import os, signal, sys, torch, poptorch
poptorch.inferenceModel(torch.nn.Tanh())(torch.ones(2))
print(flush=True)
for line in sys.stdin:
    width, children = int(line), []
    for _ in range(8):
        children.append(os.fork())
        if children[-1]:
            continue
        signal.alarm(120)  # who waits forever is killed, which the parent says
        torch.manual_seed(width)
        net, x = torch.nn.Sequential(torch.nn.Linear(16, width), torch.nn.GELU(),
                                     torch.nn.Linear(width, 2)), torch.ones(4, 16)
        options = poptorch.Options().showCompilationProgressBar(False)
        options.enableExecutableCaching(sys.argv[1])
        found = poptorch.inferenceModel(net, options)(x)
        os._exit(0 if torch.allclose(found, net(x), atol=1e-5) else 1)
    print(*children, flush=True)
    sys.stdin.readline()  # all signals are sent: until then the number of a child is its own
    print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children), flush=True)
"""


def _killed_compilers(folder, runs, seed):
    """Kills some of eight processes at random moments of a compilation, in each of several runs."""
    draw, place = random.Random(seed), Folder(folder, 1 << 30)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
           "OMP_WAIT_POLICY": "passive"}
    with subprocess.Popen([sys.executable, "-c", _COMPILERS, str(folder)], env=env, text=True,
                          cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        usual_s, killed_in_work, known = 0.0, 0, set()
        for run in range(runs + 1):
            begin = time.monotonic()
            parent.stdin.write(f"{20 + run}\n")
            parent.stdin.flush()
            children = [int(word) for word in parent.stdout.readline().split()]
            chosen = draw.sample(children, draw.randint(1, 7)) if run else []
            moments = sorted(draw.uniform(0, 1.2 * usual_s) for _ in chosen)
            for child, moment in zip(chosen, moments):
                time.sleep(max(0.0, begin + moment - time.monotonic()))
                os.kill(child, signal.SIGKILL)
            parent.stdin.write("\n")
            parent.stdin.flush()
            codes = [int(word) for word in parent.stdout.readline().split()]
            usual_s = usual_s or time.monotonic() - begin
            killed = codes.count(-signal.SIGKILL)
            killed_in_work += 0 < killed
            assert codes.count(0) == 8 - killed and killed <= len(chosen), codes
            found = {path.name for path in place.entries()}
            assert known <= found and len(found - known) == 1  # whoever is left has compiled it
            known = found
            for path in place.entries():
                Entry(path)  # raises for one that is not whole
        parent.stdin.close()
    left = [name for name in os.listdir(folder) if not name.endswith(SUFFIX)]
    assert sorted(path.name for path in place.clean()) == sorted(left)
    assert all(path.suffix == SUFFIX for path in folder.iterdir())
    return killed_in_work


@pytest.mark.sampled
def test_killed_compilers_lose_nothing(tmp_path, seed):
    assert _killed_compilers(tmp_path, 5, seed)


@pytest.mark.slow
def test_many_killed_compilers_lose_nothing(tmp_path, seed):
    assert _killed_compilers(tmp_path, 200, seed) > 100
