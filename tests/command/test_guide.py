"""The commands of docs/guide/deploy/command_line.md run, one after the other."""

import re
import shlex

from poptorch._command.parser import main
from tests.command.folder import fill
from tests.helpers import ROOT

PAGE = (ROOT / "docs" / "guide" / "deploy" / "command_line.md").read_text()


def test_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fill(tmp_path)
    (tmp_path / "net.py").write_text(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1])
    blocks = re.findall(r"```\n(poptorch .*?)```", PAGE, re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    assert len(lines) >= 13
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[0] == "poptorch" and main(words[1:]) == 0, capsys.readouterr().err
    assert (tmp_path / "out" / "output0.npy").exists() and (tmp_path / "report.html").exists()
