"""Too little tile memory: an error on a virtual system, nothing without one."""

import pytest
import torch

import poptorch
from poptorch import _C
from poptorch._device import memory_check
from tests.helpers import quiet_options


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """Where processes say which IPUs they hold."""
    for name in ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL", "POPTORCH_IPU_SYSTEM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POPTORCH_IPU_SYSTEM_DIR", str(tmp_path / "system"))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 64)
        self.last = torch.nn.Linear(64, 64)

    def forward(self, x):
        poptorch.Block.start("first", ipu_id=0)
        x = self.first(x)
        poptorch.Block.start("last", ipu_id=1)
        return self.last(torch.tanh(x))


def model_of(tile_bytes, system="pod4", size=64, **settings):
    options = quiet_options(deviceIterations=2, **settings)
    options.target({"name": "mine", "base": "small", "tile_bytes": tile_bytes,
                    "interleaved_start": tile_bytes // 3})
    if system:
        options.system(system)
    model = poptorch.inferenceModel(Net(), options)
    return model, torch.zeros(2 * size, 64)


def test_enough_memory():
    model, x = model_of(400_000)
    assert model(x).shape == x.shape
    model.destroy()


def test_without_a_system_there_is_no_limit():
    model, x = model_of(4_000, system=None)
    assert model(x).shape == x.shape


def test_too_little_memory():
    model, x = model_of(120_000, size=2048)
    with pytest.raises(poptorch.Error) as found:
        model.compile(x)
    text = str(found.value)
    for part in ("[memory] inference does not fit: IPU 1 needs ",
                 " bytes on its fullest tile, when it runs ",
                 ", and a tile has 120,000. To need less for ", "or use more IPUs.",
                 "The largest values:\n", "bytes: ", "test_memory_check.py:"):
        assert part in text, text
    assert "test_memory_check.py:" in found.value.location


def test_each_category_has_advice():
    model, x = model_of(8_000, system=None)
    model.compile(x)
    row = _C.tile_memory(model.ir("place"), "small")[0]
    categories = set(row["categories"]) - {"streaming", "code", "exchange", "vertex_state"}
    assert categories | {"program"} == set(memory_check._ADVICE)


def test_another_program_can_be_compiled():
    """The device is free after the error, and the executor can still be used."""
    model, x = model_of(120_000, size=2048)
    with pytest.raises(poptorch.Error, match="does not fit"):
        model.compile(x)
    assert model(x[:8]).shape == (8, 64)
    model.destroy()


def test_a_file_for_a_system_with_too_little_memory(tmp_path):
    model, x = model_of(120_000, system=None, size=2048)
    path = model.compileAndExport(tmp_path / "net.poptorch", x, export_model=False)
    small, _ = model_of(120_000)
    with pytest.raises(poptorch.Error, match="does not fit"):
        small.loadExecutable(path)
