"""Large weights of inference stay in the file: its pages are those of the host and the device."""

import contextlib
import gc
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import poptorch
from poptorch import _C
from poptorch._files import tensors
from tests.helpers import quiet_options

WIDTH = 1024
WEIGHT_BYTES = WIDTH * WIDTH * 4
LOADED = """
import sys, poptorch, torch
model = poptorch.load(sys.argv[1])
print(int(model(torch.tensor([3, 5])).sum().item()), flush=True)
sys.stdin.read()
"""


def saved(tmp_path, layer=None, wrap=poptorch.inferenceModel):
    layer = layer or nn.Embedding(WIDTH, WIDTH)
    model = wrap(nn.Sequential(layer), quiet_options())
    return model, model.compileAndExport(str(tmp_path / "net"), torch.tensor([3, 5]))


def weight_of(model):
    return next(model.parameters())


def memory_of(process, file: str) -> dict[str, int]:
    """Bytes of maps of ``file``: of pages that processes share, and of pages of this one alone."""
    found, is_file = {"Shared_Clean": 0, "Private_Dirty": 0, "maps": 0}, False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_file = line.endswith(file)
            found["maps"] += is_file
        name, _, size = line.partition(":")
        if is_file and name in found:
            found[name] += int(size.split()[0]) * 1024
    return found


@contextlib.contextmanager
def loaded_elsewhere(path):
    with subprocess.Popen([sys.executable, "-c", LOADED, path], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.stdin.close()


def test_processes_share_the_weights(tmp_path):
    model, path = saved(tmp_path)
    expected = int(model(torch.tensor([3, 5])).sum().item())
    with loaded_elsewhere(path) as (first, one), loaded_elsewhere(path) as (second, other):
        assert one == other == expected
        for process in (first, second):
            memory = memory_of(process.pid, path)
            assert memory["maps"] == 2 and memory["Shared_Clean"] >= WEIGHT_BYTES, memory
            assert memory["Private_Dirty"] == 0, memory


def test_the_host_may_write_to_a_loaded_weight(tmp_path):
    model, path = saved(tmp_path)
    before, x = Path(path).read_bytes(), torch.tensor([3, 5])
    again, other = poptorch.load(path), poptorch.load(path)
    assert torch.equal(again(x), model(x))
    with torch.no_grad():
        weight_of(again)[5] = 7.0
    again.copyWeightsToDevice()
    assert torch.equal(again(x)[0], model(x)[0]) and bool((again(x)[1] == 7).all())
    assert torch.equal(other(x), model(x)) and Path(path).read_bytes() == before
    # Written before the device first has it.
    third = poptorch.load(path)
    with torch.no_grad():
        weight_of(third)[3] = -1.0
    third.copyWeightsToDevice()
    assert bool((third(x)[0] == -1).all()) and torch.equal(third(x)[1], model(x)[1])
    weight_of(third).data.resize_(2 * WIDTH, WIDTH)
    assert bool((weight_of(third)[3] == -1).all())


def test_the_file_may_go(tmp_path):
    model, path = saved(tmp_path)
    again, x = poptorch.load(path), torch.tensor([3, 5])
    poptorch.inferenceModel(nn.Sequential(nn.Linear(2, 2)), quiet_options()).compileAndExport(
        path, torch.ones(1, 2))  # replaces it
    assert torch.equal(again(x), model(x))
    weight = weight_of(again)
    again.destroy()
    del again
    gc.collect()
    assert torch.equal(weight, weight_of(model))


def test_maps_end_with_the_model(tmp_path):
    _, path = saved(tmp_path)
    again = poptorch.load(path)
    assert memory_of("self", path)["maps"] == 2
    again.destroy()
    del again
    gc.collect()
    assert memory_of("self", path)["maps"] == 0


def test_weights_that_runs_change_are_copies(tmp_path):
    model = poptorch.trainingModel(nn.Sequential(nn.Linear(WIDTH, WIDTH)), quiet_options(),
                                   loss=nn.MSELoss())
    x = torch.ones(1, WIDTH)
    path = model.compileAndExport(str(tmp_path / "net"), x, x)
    again = poptorch.load(path)
    assert memory_of("self", path)["maps"] == 0
    assert torch.equal(again(x, x)[1], model(x, x)[1])


def test_a_system_without_maps(tmp_path, monkeypatch):
    model, path = saved(tmp_path)

    class NoMap:
        def __init__(self, file):
            raise OSError("no maps here")

    monkeypatch.setattr(_C, "FileMap", NoMap)
    again, x = poptorch.load(path), torch.tensor([3, 5])
    assert torch.equal(again(x), model(x)) and memory_of("self", path)["maps"] == 0


@pytest.mark.parametrize("change", [
    lambda entry: entry.update(data_offsets=[0, 8]),
    lambda entry: entry.update(data_offsets=[4, 16]),
    lambda entry: entry.update(shape=[4, 1]),
    lambda entry: entry.update(shape=[-1, -3]),
    lambda entry: entry.update(dtype="F64"),
    lambda entry: entry.update(dtype="I0"),
])
def test_tensors_that_do_not_fill_their_member(change):
    data = tensors.packed({"w": torch.arange(3.0)})
    assert torch.equal(tensors.unpacked(data)["w"], torch.arange(3.0))
    size = struct.unpack_from("<Q", data)[0]
    entries = json.loads(data[8:8 + size])
    change(entries["w"])
    header = json.dumps(entries).encode()
    with pytest.raises((ValueError, KeyError)):
        tensors.unpacked(struct.pack("<Q", len(header)) + header + data[8 + size:])
