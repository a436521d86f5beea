"""Small files that say they are large: refused before they are read, in little memory."""

import struct
import tracemalloc
import zipfile

import pytest
import torch

import poptorch
from poptorch._files import archive
from tests.files.test_bad_files import rewritten
from tests.helpers import quiet_options

LARGE = 40 << 20
MOST_BYTES = 10 << 20  # of all that reading a file of less than a megabyte may take


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), quiet_options())
    return model.compileAndExport(tmp_path_factory.mktemp("saved") / "net", torch.ones(3, 4))


def replaced(name, size, fill):
    def change(members, _):
        members[name] = members.get(name, b"") + fill * size
    return change


def packed(path, target, compression):
    """The same members, packed again."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return target


def check_refused(path, words):
    tracemalloc.start()
    try:
        with pytest.raises(poptorch.Error, match=words) as caught:
            poptorch.load(path)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert str(path) in caught.value.message and "is damaged" in caught.value.message


@pytest.mark.parametrize("name, compression", [
    ("plan.ir", zipfile.ZIP_DEFLATED), ("interface.json", zipfile.ZIP_BZIP2),
    ("weights.safetensors", zipfile.ZIP_DEFLATED), ("rng.json", zipfile.ZIP_LZMA)])
def test_members_that_unpack_to_much(saved, tmp_path, name, compression):
    large = rewritten(saved, tmp_path / "large", replaced(name, LARGE, b" "))
    bomb = packed(large, tmp_path / "bomb", compression)
    assert bomb.stat().st_size < 1 << 20
    check_refused(bomb, "unpacks from .* poptorch compresses nothing")


def test_a_manifest_that_unpacks_to_much(saved, tmp_path):
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(tmp_path / "bomb", "w") as new:
        for name in old.namelist():
            info = zipfile.ZipInfo(name)
            data = old.read(name) + (b" " * (LARGE) if name == archive.MANIFEST else b"")
            new.writestr(info, data, zipfile.ZIP_DEFLATED if info.filename == archive.MANIFEST
                         else zipfile.ZIP_STORED)
    check_refused(tmp_path / "bomb", "manifest.json unpacks from")


@pytest.mark.parametrize("where", [b"PK\x01\x02", b"PK\x03\x04"])
def test_a_zip_that_hides_its_size(saved, tmp_path, where):
    """The directory says few bytes, and the data unpack to many."""
    large = rewritten(saved, tmp_path / "large", replaced("plan.ir", LARGE, b" "))
    bomb = packed(large, tmp_path / "bomb", zipfile.ZIP_DEFLATED)
    data = bytearray(bomb.read_bytes())
    offset = {b"PK\x01\x02": 24, b"PK\x03\x04": 22}  # of the size, in the directory or before data
    for mark in {where, b"PK\x01\x02"}:
        at = data.index(mark)
        while data[at + (46 if mark == b"PK\x01\x02" else 30):].startswith(b"plan.ir") is False:
            at = data.index(mark, at + 1)
        data[at + offset[mark]:at + offset[mark] + 4] = struct.pack("<I", 1000)
    bomb.write_bytes(data)
    check_refused(bomb, "zip is damaged|bomb is damaged|plan.ir")


def test_one_member_under_many_names(saved, tmp_path):
    """Directory entries of several members that lead to the same data."""
    large = rewritten(saved, tmp_path / "large", replaced("constants.safetensors", 2 << 20, b" "))
    data = bytearray(large.read_bytes())
    with zipfile.ZipFile(large) as old:
        place = old.getinfo("constants.safetensors")
    sizes = struct.pack("<II", place.compress_size, place.file_size)
    at = -1
    while (at := data.find(b"PK\x01\x02", at + 1)) >= 0:
        if not data[at + 46:].startswith(b"manifest"):
            data[at + 20:at + 28] = sizes
            data[at + 42:at + 46] = struct.pack("<I", place.header_offset)
    (tmp_path / "bomb").write_bytes(data)
    check_refused(tmp_path / "bomb", "its members have .* bytes, the zip file|damaged")


def test_members_of_other_names_and_twice(saved, tmp_path):
    check_refused(rewritten(saved, tmp_path / "other", replaced("x" * 300, 10, b"x")),
                  "a member 'xxx.*does not write")
    twice = tmp_path / "twice"
    twice.write_bytes(rewritten(saved, tmp_path / "x", lambda *_: None).read_bytes())
    with zipfile.ZipFile(twice, "a") as new, pytest.warns(UserWarning, match="Duplicate"):
        new.writestr("plan.ir", b"graph")
    check_refused(twice, "it has plan.ir twice")


def test_bytes_of_a_length(saved, tmp_path):
    """An object may not be made by a number that says how large it is."""
    def change(members, _):
        members["model.json"] = b'{"object": "builtins:bytes", "args": [99999999999]}'

    check_refused(rewritten(saved, tmp_path / "bad", change), "model.json is not .*builtins:bytes")


def test_own_texts_are_never_refused(tmp_path):
    """A network of many equal layers has a text that would deflate well."""
    path = tmp_path / "net"
    members = {"plan.ir": b"%0 = relu %0 : f32[3,4]\n" * 50000, "rng.json": b"[1,2]"}
    facts = {"training": False, "model_class": "Net"}
    assert archive.write(path, "Net", members, facts) == str(path)
    manifest, again = archive.read(path)
    assert again == members and manifest["members"].keys() == members.keys()
