"""The order of the Python package: a part may import those that stand before it, and no others."""

import ast

from tests.helpers import ROOT

PACKAGE = ROOT / "poptorch"
FILES_OF_A_FOLDER = 25
MODULES_AT_THE_TOP = 12
ALIASES = {"_args_parser", "_impl", "_poplar_executor", "_utils", "poptorch_core"}

# From the bottom to the top. Imports inside functions count, too. A dotted name is a room of a
# folder, whose undotted name means the files outside of rooms.
ORDER = """
    version errors enums custom_args poptorch_core
    _base profiling
    _annotations blocks strategies
    options _device _reports
    _capture.decompose _capture.library _capture.graph _guards _capture.record _capture.functional
    _capture.loops _capture.functions _capture
    _translate ops
    _weights _optimizer optim _own_step
    _runtime _files
    _executor executor models files _torch_compile _estimate testing
    data _compat _command
    _args_parser _impl _poplar_executor _utils
    __init__ __main__
""".split()
LEVEL = {name: level for level, name in enumerate(ORDER)}


def _dotted(path) -> str:
    """``_base.pytree`` for ``poptorch/_base/pytree/__init__.py``; ``__init__`` for the package."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {_dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def _imports(tree):
    """``(line, module)`` of each module of the package that an import anywhere in a tree names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, _, inner = name.partition(".")
            if package == "poptorch" and inner.split(".")[0] != "_C":
                # What is not a module is a name of the module before it.
                yield node.lineno, next((known for known in (inner, inner.rpartition(".")[0])
                                         if known in MODULES), "__init__")


GRAPH = {name: {module: line for line, module in _imports(tree)} for name, tree in TREES.items()}


def _part(module: str) -> str:
    """The entry of ORDER that a module belongs to."""
    folder = ".".join(module.split(".")[:2])
    return folder if folder in LEVEL else module.split(".")[0]


def test_parts_are_in_the_order():
    parts = {_part(module) for module in MODULES}
    assert parts <= LEVEL.keys(), f"not in ORDER: {sorted(parts - LEVEL.keys())}"
    assert LEVEL.keys() <= parts, f"not in the package: {sorted(LEVEL.keys() - parts)}"


def test_imports_point_downwards():
    problems = [f"poptorch/{name}:{line}: {module} stands above {_part(name)}"
                for name, imported in GRAPH.items() for module, line in imported.items()
                if LEVEL[_part(module)] > LEVEL[_part(name)]]
    assert not problems, "\n".join(["", *problems])


def _circle(graph: dict) -> list[str]:
    """The modules of one import circle, in order; none if there is no circle."""
    finished: set[str] = set()

    def search(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module):], module]
        if module not in finished:
            for imported in graph[module]:
                if found := search(imported, [*path, module]):
                    return found
            finished.add(module)
        return []

    return next((found for module in graph if (found := search(module, []))), [])


def test_no_imports_in_a_circle():
    assert not _circle(GRAPH), " -> ".join(_circle(GRAPH))


def test_circles_are_found():
    assert _circle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert _circle({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_folders_are_small():
    folders = [PACKAGE, *(path for path in PACKAGE.rglob("*") if path.is_dir())]
    counts = {folder.relative_to(ROOT): len(list(folder.glob("*.py"))) for folder in folders}
    too_full = {str(name): count for name, count in counts.items() if count > FILES_OF_A_FOLDER}
    assert not too_full
    top = {path.stem for path in PACKAGE.glob("*.py")} - ALIASES
    assert len(top) <= MODULES_AT_THE_TOP, sorted(top)


def _is_private(dotted: str) -> bool:
    parts = dotted.split(".")  # operators are torch.ops
    return parts[0] == "torch" and parts[1:2] != ["ops"] and any(
        part.startswith("_") and not part.startswith("__") for part in parts)


def _private_names(tree):
    """``(line, name)`` of each private name of torch that is imported or reached."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and "(" not in (text := ast.unparse(node)):
            names = [text]
        else:
            continue
        yield from ((node.lineno, name) for name in names if _is_private(name))


def test_private_names_of_torch_stand_in_one_folder():
    problems = [f"{MODULES[name].relative_to(ROOT)}:{line}: {found}"
                for name, tree in TREES.items() if not name.startswith("_base.torch_private")
                for line, found in _private_names(tree)]
    assert not problems, "\n".join(["", *problems])


def test_private_names_are_seen():
    source = "import torch\nfrom torch._ops import OpOverload\nx = torch._C._nn\nmodel._x()\n"
    assert [line for line, _ in _private_names(ast.parse(source))] == [2, 3, 3]


def _names(tree):
    """``(line, name)`` of each name and attribute, and of what is imported."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names)


def test_one_module_knows_the_class_of_fake_tensors():
    known = {"FakeTensor", "FakeTensorMode", "fake_tensor_converter", "fake_device"}
    problems = [f"{MODULES[name].relative_to(ROOT)}:{line}: {found}. Call fake_tensors."
                for name, tree in TREES.items() if name != "_base.torch_private.fake_tensors"
                for line, found in _names(tree) if found in known]
    assert not problems, "\n".join(["", *problems])
