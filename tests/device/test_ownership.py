"""Processes that share the IPUs of a system."""

import mmap
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import pytest
import torch

import poptorch
from poptorch._device import ownership, systems
from tests.helpers import ROOT, quiet_options

X = torch.ones(4)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    for name in ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL", "POPTORCH_WAIT_FOR_IPU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POPTORCH_IPU_SYSTEM_DIR", str(tmp_path))
    monkeypatch.setenv("POPTORCH_IPU_SYSTEM", "pod4")
    yield os.path.realpath(tmp_path)
    while Child.running:
        Child.running[0].end()


def model(replicas=1, **settings):
    return poptorch.inferenceModel(torch.nn.ReLU(),
                                   quiet_options(replicationFactor=replicas, **settings))


def held():
    return [row.id for row in poptorch.devices() if row.holder is not None]


class Child:
    """A forked process that runs a function; `end` kills it."""

    running = []

    def __init__(self, work):
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                torch.set_num_threads(1)
                work(lambda word: os.write(writer, word.encode()))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(writer)
        self.running.append(self)

    def read(self):
        return os.read(self.reader, 1000).decode()

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self):
        """The exit status."""
        self.running.remove(self)
        os.close(self.reader)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def holding(replicas=1, **settings):
    """A process that holds IPUs until it is killed."""
    def work(write):
        holder = model(replicas, modelName="other", **settings)
        holder(X)
        write("held")
        signal.pause()

    child = Child(work)
    assert child.read() == "held"
    return child


def test_a_process_holds_its_devices_until_it_is_killed():
    child = holding(2)
    rows = poptorch.devices()
    assert held() == [0, 1, 4, 6] and {row.holder.pid for row in rows if row.holder} == {child.pid}
    assert rows[0].holder.model == "other" and abs(rows[0].holder.time - time.time()) < 100
    first = model()
    first(X)
    assert held() == [0, 1, 2, 4, 5, 6]
    for replicas, ipus in ((2, "IPU 2"), (4, "IPU 2")):
        with pytest.raises(poptorch.Error, match=rf"^\[device\] each device with {replicas} IPUs "
                           rf"of the system pod4, which inference needs, is held\. (?s:.*)\n  "
                           rf"IPUs 0-1: process {child.pid} on \S+ \(model other, since "
                           rf"[\d:]+: .+\)\n  {ipus}: process {os.getpid()} on \S+ "):
            model(replicas)(X)
    child.end()
    assert held() == [2, 5, 6]
    model(2)(X)


HOLDER = """
    import torch
    import poptorch

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 10**9

        def __getitem__(self, index):
            return torch.ones(3)

    options = poptorch.Options().showCompilationProgressBar(False).replicationFactor(4)
    loader = poptorch.DataLoader(options, Data(), num_workers=2, persistent_workers=True,
                                 multiprocessing_context="fork")
    model = poptorch.inferenceModel(torch.nn.ReLU(), options)
    batches = iter(loader)
    model(next(batches))
    print(*(worker.pid for worker in batches._workers), flush=True)
    while True:
        model(next(batches))
"""


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.sampled
def test_devices_are_free_at_once_though_workers_live():
    program = subprocess.Popen([sys.executable, "-c", textwrap.dedent(HOLDER)], cwd=ROOT, text=True,
                               stdout=subprocess.PIPE)
    workers = list(map(int, program.stdout.readline().split()))
    try:
        assert len(workers) == 2 and held() == list(range(7))
        with pytest.raises(poptorch.Error, match=rf"IPUs 0-3: process {program.pid} on "):
            model()(X)
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)  # so that they outlive their parent for certain
        program.kill()
        program.wait()
        assert held() == [] and all(map(is_alive, workers))
        assert torch.equal(model(4)(X), X)
    finally:
        program.kill()
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        program.stdout.close()
        program.wait()


def test_what_a_forked_process_does_leaves_the_devices_to_its_parent():
    holder = model(2, modelName="parent")
    holder(X)

    def work(write):
        assert held() == [0, 1, 4, 6]
        with pytest.raises(poptorch.Error, match="a fork of it"):
            holder(X)
        with pytest.raises(poptorch.Error, match=rf"IPUs 0-1: process {os.getppid()} on "):
            model(4)(X)
        own = model(2)
        own(X)
        assert held() == list(range(7))
        holder.destroy()
        write("1")

    child = Child(work)
    assert child.read() == "1" and child.wait() == 0
    assert holder.isAttachedToDevice() and held() == [0, 1, 4, 6]
    assert poptorch.devices()[0].holder.pid == os.getpid()
    child = holding(2)
    assert held() == list(range(7))
    child.end()
    holder.detachFromDevice()
    assert held() == []


@pytest.mark.parametrize("settings", [{}, {"useIpuId": 6}], ids=["any", "id"])
def test_waiting_for_a_process(settings, monkeypatch):
    child = holding(1)
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")
    second, results = model(4, **settings), []
    thread = threading.Thread(target=lambda: results.append(second(X)))
    thread.start()
    time.sleep(0.2)
    assert not results and thread.is_alive() and held() == [0, 4, 6]
    child.end()
    thread.join(60)
    assert torch.equal(results[0], X) and held() == list(range(7))


def test_an_interrupt_ends_the_wait(monkeypatch):
    child = holding(4)
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")
    waiting = model()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        waiting(X)
    timer.join()
    signal.signal(signal.SIGINT, before)
    assert not waiting.isCompiled() and not waiting.isAttachedToDevice()
    child.end()
    assert torch.equal(waiting(X), X)


def test_groups_are_taken_whole_or_not_at_all(folder, seed):
    """Eight processes take random devices; each writes its number at the IPUs that it has."""
    system, rounds = systems.named("pod16"), 150
    owners = mmap.mmap(-1, system.ipus)

    def work(number):
        def run(write):
            draw, taken = random.Random(seed + number), 0
            for _ in range(rounds):
                size = draw.choice(system.sizes())
                groups = list(system.groups(size).values())
                groups = groups if draw.random() < 0.5 else [draw.choice(groups)]
                claim = ownership.take(folder, groups, str(number), None)
                if claim is None:
                    time.sleep(draw.random() * 1e-3)
                    continue
                taken += 1
                assert claim.ipus in groups
                for ipu in claim.ipus:
                    assert owners[ipu] == 0
                    owners[ipu] = number
                time.sleep(draw.random() * 1e-3)
                found = ownership.holders(folder, claim.ipus)
                assert {ipu: (holder.pid, holder.model) for ipu, holder in found.items()} == \
                    dict.fromkeys(claim.ipus, (os.getpid(), str(number)))
                for ipu in claim.ipus:
                    assert owners[ipu] == number
                    owners[ipu] = 0
                claim.release()
            assert not any((folder, ipu) in ownership._claims for ipu in range(system.ipus))
            write(str(taken))
        return run

    children = [Child(work(number)) for number in range(1, 9)]
    taken = [int(child.read() or -1) for child in children]
    assert [child.wait() for child in children] == [0] * 8 and sum(taken) > 100
    assert ownership.holders(folder, range(16)) == {} and owners[:] == bytes(16)


def test_a_free_device_is_always_found(folder):
    """Whoever asks while others try larger groups is never told that a free device is held."""
    stop = mmap.mmap(-1, 1)

    def disturb(write):
        while not stop[0]:
            assert ownership.take(folder, [range(4)], "large", None) is None

    first = ownership.take(folder, [range(3, 4)], "first", None)
    children = [Child(disturb) for _ in range(2)]
    for _ in range(300):
        claim = ownership.take(folder, [range(1)], "small", None)
        assert claim is not None
        claim.release()
    stop[0] = 1
    assert [child.wait() for child in children] == [0, 0]
    first.release()


def test_a_claim_replaces_another_one(folder):
    claim = ownership.take(folder, [range(1)], "net", None)
    other = ownership.take(folder, [range(2, 4)], "other", None)
    assert ownership.take(folder, [range(4)], "net", claim) is None
    assert list(ownership.holders(folder, range(4))) == [0, 2, 3]
    other.release()
    larger = ownership.take(folder, [range(4)], "net", claim)
    claim.release()
    assert list(ownership.holders(folder, range(4))) == [0, 1, 2, 3]
    smaller = ownership.take(folder, [range(2)], "net", larger)
    assert list(ownership.holders(folder, range(4))) == [0, 1]

    def work(write):
        seen = ownership.holders(folder, range(4))
        write(" ".join(map(str, seen)))

    child = Child(work)
    assert child.read() == "0 1" and child.wait() == 0
    smaller.release()
    smaller.release()
    assert ownership.holders(folder, range(4)) == {}


def test_a_folder_that_was_removed(folder):
    ownership.take(folder, [range(1)], "net", None).release()
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))

    def work(write):
        claim = ownership.take(folder, [range(1)], "child", None)
        write("held")
        signal.pause()
        claim.release()

    child = Child(work)
    assert child.read() == "held"
    assert ownership.take(folder, [range(1)], "net", None) is None
    child.end()


def test_a_file_that_something_else_wrote(folder):
    child = holding(1)
    for text in ("", "no json", "[1]", '{"pid": 3}'):
        with open(os.path.join(folder, "ipu0.lock"), "w") as file:
            file.write(text)
        assert poptorch.devices()[0].holder.pid == child.pid
        assert "an unknown host" in str(poptorch.devices()[0].holder)
    child.end()


@pytest.mark.sampled
def test_the_end_of_the_process_and_long_commands():
    program = textwrap.dedent("""
        import poptorch, torch
        model = poptorch.inferenceModel(torch.nn.ReLU(),
                                        poptorch.Options().showCompilationProgressBar(False))
        model(torch.ones(2))
        print(poptorch.devices()[0].holder.command)
        """)
    found = subprocess.run([sys.executable, "-c", program, "x" * 100], cwd=ROOT, text=True,
                           check=True, capture_output=True)
    line = found.stdout.rstrip("\n")
    assert len(line) == 100 and line.startswith(sys.executable) and line.endswith("...")
    assert found.stderr == "" and held() == []
