"""Damaged entries of the cache: compiled again with one warning, and never a wrong result."""

import os
import random

import pytest
import torch

from poptorch._base.logging import logger
from poptorch._files.cache import Entry, Folder, Key
from tests.fuzz.files import damage, file_models
from tests.fuzz.judge import FACTOR

EXAMPLES = 40
LOOKUPS = 300


def results_of(name, folder) -> list[torch.Tensor]:
    """What a model returns that takes its program from the cache."""
    os.environ["POPTORCH_CACHE_DIR"] = str(folder)
    try:
        return _results(file_models.make(name), name)
    finally:
        del os.environ["POPTORCH_CACHE_DIR"]


def _results(model, name) -> list[torch.Tensor]:
    found, arguments = [], file_models.arguments(name)
    for _ in range(2):
        out = model(*arguments)
        found += torch.utils._pytree.tree_leaves(out)
    return [*found, *model.state_dict().values()]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """For each model: the folder, the path and bytes of the entry, and the results."""
    out = {}
    for name in file_models.MAKERS:
        folder = tmp_path_factory.mktemp(name)
        results = results_of(name, folder)
        [entry] = os.listdir(folder)
        out[name] = folder, folder / entry, (folder / entry).read_bytes(), results
    return out


@pytest.fixture
def warnings(monkeypatch):
    found = []
    monkeypatch.setattr(logger, "warning", lambda text, *args: found.append(text % args))
    return found


def damaged(draw: random.Random, good: bytes, other: bytes) -> tuple[bytes, str]:
    """Other bytes than ``good``, and what was done."""
    begin = draw.randrange(len(good))
    end = min(len(good), begin + draw.choice([1, 8, 64, 4096]))
    middle = {
        "flip": bytes([good[begin] ^ 1 << draw.randrange(8)]) + good[begin + 1:end],
        "zero": bytes(end - begin),
        "noise": draw.randbytes(end - begin),
        "lose": b"",
        "repeat": good[begin:end] * 2,
        "foreign": other[begin:end],
    }
    kind = draw.choice([*middle, "cut"])
    return (good[:begin] if kind == "cut" else good[:begin] + middle[kind] + good[end:],
            f"{kind}, bytes {begin} to {end} of {len(good)}")


def test_damaged_entries(kept, warnings, seed):
    draw, replaced = random.Random(seed), 0
    for _ in range(EXAMPLES * FACTOR):
        name, other = draw.sample(sorted(kept), 2)
        folder, path, good, expected = kept[name]
        bad, what = damaged(draw, good, kept[other][2])
        path.write_bytes(bad)
        warnings.clear()
        found = results_of(name, folder)
        assert all(map(torch.equal, found, expected)) and len(found) == len(expected), what
        assert len(warnings) <= 1, (what, warnings)
        assert all(f"the entry {path} cannot be used: " in line for line in warnings), what
        if not warnings:  # the change is of bytes that say nothing, as the times of members
            found = _contents(Entry(path))
            path.write_bytes(good)
            assert found == _contents(Entry(path)), what
        assert path.read_bytes() == good and os.listdir(folder) == [path.name], what
        replaced += len(warnings)
    assert replaced


def test_damaged_members(kept, warnings, seed):
    """What is found is what was written, unless all hashes were written anew, too."""
    draw, refused = random.Random(seed), 0
    keys = {}
    for name, (_, path, good, _) in kept.items():
        path.write_bytes(good)
        keys[name] = Key(Entry(path).text, Entry(path).facts)
    for _ in range(LOOKUPS * FACTOR):
        name, other = draw.sample(sorted(kept), 2)
        folder, path, good, _ = kept[name]
        bad, what, is_signed = damage.damages(draw, good, damage.unpacked(kept[other][2]))
        path.write_bytes(bad)
        warnings.clear()
        found = Folder(folder, 1 << 30).find(keys[name])
        assert len(warnings) == (found is None), (what, warnings)
        assert all(f"the entry {path} cannot be used: " in line for line in warnings), what
        if found is None:
            refused += 1
        elif not is_signed:
            path.write_bytes(good)
            assert _contents(found) == _contents(Entry(path)), what
        path.write_bytes(good)
    assert refused


def _contents(entry: Entry) -> tuple:
    return entry.ipus, {name: bytes(data) for name, data in entry._members.items()}
