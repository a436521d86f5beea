"""The instructions of code, which differ between versions of Python."""

import pytest

from poptorch._guards import statements


@pytest.mark.parametrize("name, argument, parts", [
    ("LOAD_FAST_BORROW", "x", [("LOAD_FAST", "x")]),
    ("LOAD_FAST_CHECK", "x", [("LOAD_FAST", "x")]),
    ("LOAD_FAST_LOAD_FAST", ("x", "y"), [("LOAD_FAST", "x"), ("LOAD_FAST", "y")]),
    ("LOAD_FAST_BORROW_LOAD_FAST_BORROW", ("x", "y"), [("LOAD_FAST", "x"), ("LOAD_FAST", "y")]),
    ("STORE_FAST_LOAD_FAST", ("x", "y"), [("STORE_FAST", "x"), ("LOAD_FAST", "y")]),
    ("STORE_FAST_STORE_FAST", ("x", "y"), [("STORE_FAST", "x"), ("STORE_FAST", "y")]),
    ("LOAD_FAST_AND_CLEAR", "x", [("LOAD_FAST_AND_CLEAR", "x")]),
    ("LOAD_ATTR", "x", [("LOAD_ATTR", "x")])])
def test_instructions_of_other_pythons(name, argument, parts):
    assert statements.parts_of(name, argument) == parts


def swapped(x, y):
    x = x + y; y = x; x, y = y, x  # noqa: E702
    return x


def test_variables_of_one_line():
    found = statements.statements(swapped.__code__)
    line = swapped.__code__.co_firstlineno + 1
    stored = [[one.argval for one in found[line, part] if one.opname == "STORE_FAST"]
              for part in range(3)]
    assert stored == [["x"], ["y"], ["y", "x"]] or stored == [["x"], ["y"], ["x", "y"]]


def test_depth_of_the_stack():
    code = swapped.__code__
    assert sum(one.effect for one in statements.instructions(code)) == 0
