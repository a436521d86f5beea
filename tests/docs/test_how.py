"""What ``python -m poptorch how`` prints on the pages for contributors is what it prints now."""

import re

import pytest

from poptorch.__main__ import main
from tests.helpers import ROOT

PAGES = [path for path in sorted((ROOT / "docs" / "internals").glob("*.md"))
         if "\n$ python -m poptorch how " in path.read_text()]
COMMAND = re.compile(
    r"(?<=\n)\$ python -m poptorch how (?P<name>\S+)\n(?P<printed>(?:(?!```|\$ ).*\n)+)")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_page(path, update, capsys):
    text = path.read_text()

    def run(match):
        assert main(["how", match["name"]]) == 0
        return f"$ python -m poptorch how {match['name']}\n{capsys.readouterr().out}"

    expected = COMMAND.sub(run, text)
    assert COMMAND.search(text)
    if update:
        path.write_text(expected)
    assert update or expected == text, "the page is not what the command prints: make docs"


def test_there_are_such_pages():
    assert {path.name for path in PAGES} >= {"capture.md", "torch_calls.md"}
