"""``poptorch/_C.pyi`` and ``_C_tensors.pyi`` name the same things as the extension."""

import ast
import inspect

from poptorch import _C
from tests.helpers import ROOT

STUBS = ("_C.pyi", "_C_tensors.pyi")


def names_of_stub():
    """Functions and classes of the stubs; a class with the names of its members."""
    trees = [ast.parse((ROOT / "poptorch" / name).read_text()) for name in STUBS]
    nodes = [node for tree in trees for node in tree.body]
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    classes = {}
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            members = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            members |= {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
            classes[node.name] = {name for name in members if not name.startswith("__")}
    return functions, classes


def test_functions_and_classes_are_the_same():
    functions, classes = names_of_stub()
    real = {name for name in dir(_C) if not name.startswith("_")}
    assert {name for name in real if not inspect.isclass(getattr(_C, name))} == functions
    assert {name for name in real if inspect.isclass(getattr(_C, name))} == set(classes)


def test_members_are_the_same():
    for name, members in names_of_stub()[1].items():
        real = {member for member in vars(getattr(_C, name)) if not member.startswith("_")}
        assert real == members, name


def test_type_checkers_read_the_annotations():
    """PEP 561: without this file they take a package's names to have no types."""
    assert (ROOT / "poptorch" / "py.typed").is_file()
