"""Names of attributes in C++ are the constants of csrc/ir/attr_names.def, never text.

Text where an attribute's name is expected does not compile (``AttrName`` of csrc/ir/attr_name.h).
"""

import re

import pytest

from poptorch import _C
from tests.helpers import ROOT
from tests.style.test_layout import CPP

LIST = ROOT / "csrc" / "ir" / "attr_names.def"
NAMES = re.findall(r"^ATTR_NAME\((\w+)\)$", LIST.read_text(), flags=re.MULTILINE)
TEXT = re.compile(r'\battrs(?:\(\))?(?:\.|->)\w+\(\s*"|\battr_of\((?:[^()"]|\([^()"]*\))*, "')


def test_no_attribute_name_is_text():
    found = []
    for path in CPP:
        for match in TEXT.finditer(text := path.read_text()):
            found.append(f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}")
    assert not found, "\n".join(["use a name of csrc/ir/attr_names.def:", *found])


@pytest.mark.parametrize("line", [
    'op.attrs.has("dim")',
    'op->attrs.get_int("dim", 0)',
    'call.attrs().get_ints(\n    "dim")',
    'ops::attr_of(*pool, "keep") == ir::Attr(false)',
])
def test_text_is_seen(line):
    assert TEXT.search(line)


def test_the_list_is_sorted_and_of_attributes():
    known = {name for row in _C.op_table() for name, *_ in row["attrs"]}
    table = (ROOT / "csrc" / "ops" / "annotations.def").read_text()
    known |= set(re.findall(r"^ANNOTATION\((\w+)", table, flags=re.MULTILINE))
    assert NAMES == sorted(set(NAMES))
    assert [name for name in NAMES if name not in known] == []


def test_every_name_of_the_list_is_used():
    used = set()
    for path in CPP:
        used |= set(re.findall(r"\battr::(\w+)", path.read_text()))
    assert [name for name in NAMES if name not in used] == []
