"""Processes that run the same file have one copy of its large weights."""

import contextlib
import re
import subprocess
import time
from pathlib import Path

import numpy
import torch

import poptorch
from poptorch._files import tensors
from tests.helpers import quiet_options
from tests.runner.test_inference import EMPTY, RUNNER, export, results, run

WIDTH = 2048
WEIGHT_BYTES = WIDTH * WIDTH * 4


class Wide(torch.nn.Module):
    """Has a small int64 buffer, behind which other tensors of the file begin."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(WIDTH, WIDTH)
        self.register_buffer("count", torch.tensor(3))

    def forward(self, numbers):
        return self.table(numbers) * self.count


def memory_of(process: subprocess.Popen, file: str) -> dict[str, int]:
    """Bytes of a process that shares ``file``, and bytes that no other process has."""
    found, is_file = {"shared": 0, "own": 0}, False
    for line in Path(f"/proc/{process.pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_file = line.endswith(file)
        name, _, size = line.partition(":")
        if is_file and name == "Shared_Clean":
            found["shared"] += int(size.split()[0]) * 1024
        if name == "Private_Dirty":
            found["own"] += int(size.split()[0]) * 1024
    return found


@contextlib.contextmanager
def running(path, files, folder):
    words = [RUNNER, path, *files, "--outdir", folder, "--threads", "1", "--repeat", str(1 << 30)]
    process = subprocess.Popen(words, env=EMPTY)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_processes_share_the_weights(tmp_path):
    net = Wide()
    model = poptorch.inferenceModel(net, quiet_options())
    numbers = torch.randint(0, WIDTH, (4,))
    path, files = export(tmp_path, model, (numbers,))
    with running(path, files, tmp_path) as first, running(path, files, tmp_path) as second:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = [memory_of(process, path) for process in (first, second)]
            if all(memory["shared"] >= WEIGHT_BYTES for memory in found):
                break
            time.sleep(0.1)
    for memory in found:
        assert memory["shared"] >= WEIGHT_BYTES and memory["own"] < WEIGHT_BYTES // 2, found
    run(path, *files, "--outdir", tmp_path / "out")
    assert torch.equal(results(tmp_path / "out")[0], model(numbers))


def test_tensors_of_files_are_aligned(tmp_path):
    """The place of a zip's member that the archive chooses."""
    data = tensors.packed({"a": torch.zeros(3, dtype=torch.int64), "b": torch.zeros(64)})
    model = poptorch.inferenceModel(Wide(), quiet_options())
    path = model.compileAndExport(str(tmp_path / "net"), torch.zeros(2, dtype=torch.int64))
    whole = Path(path).read_bytes()
    weight = model.state_dict()["table.weight"].numpy().tobytes()
    assert whole.find(weight) % tensors.ALIGNMENT == 0
    assert (tensors.offset_to_align(data) - data.index(numpy.zeros(64, "f4").tobytes())) % 64 == 24
