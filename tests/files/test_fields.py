"""One more entry of the interface, and one more member: checked on reading, and documented."""

import json
import re
from dataclasses import replace

import pytest
import torch

import poptorch
from poptorch._base import schema
from poptorch._files import archive, executable
from poptorch._runtime import interface
from poptorch._runtime.interface import Interface
from tests.helpers import ROOT, quiet_options

PAGE = ROOT / "docs" / "internals" / "file_format.md"


def saved(folder):
    model = poptorch.inferenceModel(torch.nn.Linear(3, 2), quiet_options())
    x = torch.randn(4, 3)
    return model.compileAndExport(str(folder / "net.poptorch"), x), x, model(x)


def test_the_page_lists_all_members():
    table = PAGE.read_text().partition("## Members")[2].partition("\n\nA member")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)} \
        == {archive.MANIFEST, *archive.MEMBERS}


@pytest.mark.parametrize("written", [7, "seven"])
def test_one_more_entry(monkeypatch, tmp_path, written):
    to_data, from_data = Interface.to_data, Interface.from_data.__func__
    monkeypatch.setitem(interface._FORM, "lucky", int)
    monkeypatch.setattr(Interface, "to_data",
                        lambda self, model: to_data(self, model) | {"lucky": written})
    seen = []

    def read(cls, data, *more):
        found = from_data(cls, data, *more)
        seen.append(data["lucky"])
        return found

    monkeypatch.setattr(Interface, "from_data", classmethod(read))
    path, x, expected = saved(tmp_path)
    if written == 7:
        assert torch.equal(poptorch.load(path)(x), expected) and seen == [7]
        return
    with pytest.raises(poptorch.Error, match=r"net.poptorch.*interface.lucky is 'seven', "
                                             r"expected int"):
        poptorch.load(path)


@pytest.mark.parametrize("written", [{"ops": 3}, {"ops": None}, None])
def test_one_more_member(monkeypatch, tmp_path, written):
    kind = replace(archive.MODEL, members=(*archive.MEMBERS, "notes.json"))
    monkeypatch.setattr(archive, "MODEL", kind)
    original = archive.write

    def write(filename, name, members, facts):
        more = {"notes.json": json.dumps(written).encode()} if written else {}
        return original(filename, name, members | more, facts, kind)

    def notes(self):
        with self.guard("notes.json"):
            found = json.loads(self._needed("notes.json"))
            schema.check(found, {"ops": int}, "notes")
            return found

    monkeypatch.setattr(archive, "write", write)
    monkeypatch.setattr(executable.File, "notes", notes, raising=False)
    path, x, expected = saved(tmp_path)
    assert torch.equal(poptorch.load(path)(x), expected)
    file = executable.File(path)
    if written == {"ops": 3}:
        assert file.notes() == written
        return
    words = "notes.ops is None, expected int" if written else "it has no notes.json"
    with pytest.raises(poptorch.Error, match=rf"net.poptorch.*{words}"):
        file.notes()
