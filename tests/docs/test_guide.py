"""The Python blocks of the guide and the README run, and print what the block after them says."""

import contextlib
import io
import re
import sys
import types

import pytest
import torch

import poptorch
from tests.helpers import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").rglob("*.md"))]
BLOCK = re.compile(r"```python\n(?P<code>.*?)```\n(?:```\n(?P<printed>.*?)```\n)?", re.DOTALL)
IR_BLOCK = re.compile(r"(<!-- ir: (?P<step>\w+) -->\n```\n)(?P<text>.*?)(```\n)", re.DOTALL)


def test_pages_are_short():
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in PAGES}
    assert not {name: count for name, count in lines.items() if count > 200}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page(path, update, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # some pages write files
    torch.set_num_threads(1)  # plans may depend on it
    text = path.read_text()
    # A module, as for a program: its classes can be found by their names.
    monkeypatch.setitem(sys.modules, "guide", types.ModuleType("guide"))
    names = vars(sys.modules["guide"])

    def run(match):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(match["code"], "net.py", "exec"), names)
        printed = f"```\n{out.getvalue()}```\n" if out.getvalue() else ""
        return f"```python\n{match['code']}```\n{printed}"

    def show(match):
        return match[1] + names["model"].ir(match["step"]) + match[4]

    expected = IR_BLOCK.sub(show, BLOCK.sub(run, text))
    for value in names.values():
        if isinstance(value, poptorch.PoplarExecutor):
            value.destroy()
    if update:
        path.write_text(expected)
    assert update or expected == text, "the page is not what its examples print: make docs"
