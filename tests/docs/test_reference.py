"""The pages of docs/reference are what docstrings and rows give."""

import inspect
import re

import pytest

import poptorch
from poptorch._base.unimplemented import LATER
from tests.docs.reference_pages import GROUPS, PAGES, options_without_effect
from tests.helpers import ROOT, check_golden


@pytest.mark.parametrize("name", PAGES)
def test_page(name, update):
    check_golden(ROOT / "docs" / "reference" / name, PAGES[name](), update)


def test_the_page_that_warnings_name_is_there():
    text = options_without_effect()
    rows = [row for kind in GROUPS.values() for row in kind._ROWS]
    assert all(LATER[row.later] in text for row in rows if row.later)
    later = [row.later for row in rows if row.later]
    assert len(later) == text.count("| `") - sum(bool(row.deprecated) for row in rows)
    assert set(LATER) == {row.later for row in rows if row.later}


def _public_names(package):
    for name, thing in vars(package).items():
        if not name.startswith("_") and not inspect.ismodule(thing):
            yield f"{package.__name__}.{name}"


def test_every_public_name_is_on_a_page():
    text = "\n".join(page() for page in PAGES.values())
    heads = {re.split(r"[`(]", line.split("`", 1)[1])[0]
             for line in text.splitlines() if line.startswith(("#", "| `")) and "`" in line}
    heads |= {f"poptorch.{name}" for name in GROUPS}
    names = {*_public_names(poptorch), *_public_names(poptorch.optim)}
    assert len(names) > 60
    assert names <= heads, sorted(names - heads)


def test_every_public_name_has_an_example():
    text = "".join(PAGES[name]() for name in PAGES)
    sections = re.split(r"^#+ `(?=poptorch\.)", text, flags=re.MULTILINE)[1:]
    without = [section.partition("`")[0] for section in sections if ">>> " not in
               re.split(r"^#+ ", section, flags=re.MULTILINE)[0]]
    assert len(sections) > 60
    assert without == ["poptorch.AnchorMode"]  # the old name of OutputMode


def test_every_page_is_in_the_list_of_pages():
    text = (ROOT / "docs" / "README.md").read_text()
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*/*.md")]
    assert len(pages) > len(PAGES)
    assert all(f"({path})" in text for path in pages), \
        [str(path) for path in pages if f"({path})" not in text]
