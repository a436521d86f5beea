"""Names of ops in C++ are the constants of csrc/ir/op_names.def, never text."""

import re

import pytest

from poptorch import _C
from tests.helpers import ROOT
from tests.style.test_layout import CPP

LIST = ROOT / "csrc" / "ir" / "op_names.def"
NAMES = re.findall(r"^OP_NAME\((\w+)\)$", LIST.read_text(), flags=re.MULTILINE)
COMPARED = re.compile(
    r'(?:\.|->)name(?:\.text\(\)|\.str\(\))?\s*(?:==|!=)\s*"'
    r'|"\s*(?:==|!=)\s*\w+(?:\.|->)name\b'
    r'|name\.(?:text|str)\(\)\s*(?:==|!=)'
    r'|name\.(?:text\(\)\.|str\(\)\.)?(?:starts_with|ends_with|find|compare)\("'
)


def test_no_op_name_is_compared_with_text():
    found = []
    for path in CPP:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if COMPARED.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found, "\n".join(["use a name of csrc/ir/op_names.def:", *found])


def test_other_libraries_ask_for_names():
    """The constants are compared by address. Libraries other than libpoptorch have copies."""
    outside = [path for path in CPP
               if any(part in str(path) for part in ("csrc/python/", "csrc/kernels/aten/",
                                                     "csrc/program/"))]
    found = [str(path.relative_to(ROOT)) for path in outside
             if re.search(r"\bir::op::", path.read_text())]
    assert outside and not found, f"use ir::OpName(\"...\") in {', '.join(found)}"


@pytest.mark.parametrize("line", [
    'if (op.name == "relu") return;',
    'if (op->name != "relu") return;',
    'if ("relu" == op->name) return;',
    'if (op.name.text() == "relu") return;',
    'return row.name.str() != wanted;',
    'if (op.name.text().ends_with("_update")) return;',
])
def test_comparisons_are_seen(line):
    assert COMPARED.search(line)


def test_the_list_is_sorted_and_of_rows():
    rows = {row["name"] for row in _C.op_table()}
    assert NAMES == sorted(set(NAMES))
    assert [name for name in NAMES if name not in rows] == []


def test_every_name_of_the_list_is_used():
    used = set()
    for path in CPP:
        used |= set(re.findall(r"\bop::(\w+)", path.read_text()))
    annotations = (ROOT / "csrc" / "ops" / "annotations.def").read_text()
    for names in re.findall(r"^#define \w+ ((?:.*\\\n)*.*)$", annotations, flags=re.MULTILINE):
        used |= set(re.findall(r"\w+", names))
    assert [name for name in NAMES if name not in used] == []
