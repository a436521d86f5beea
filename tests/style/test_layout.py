"""Limits that keep the sources readable: sizes, include order, docstrings, nothing generated."""

import ast
import re

import pytest

from tests.helpers import ROOT

FILE_LINES = 450
FUNCTION_LINES = 60
COLUMNS = 100
FOLDER_FILES = 30

# A folder of csrc may include itself and what stands before it.
INCLUDE_ORDER = [
    ["support"],
    ["ir"],
    ["ops"],
    ["device"],
    ["rewrite", "place"],
    ["tasks"],
    ["lower"],
    ["schedule"],
    ["plan"],
    ["estimate"],
    ["assemble"],
    ["run"],
    ["kernels"],
    ["compile"],
    ["runtime"],
    ["program"],
    ["python"],
]
LEVEL = {name: level for level, names in enumerate(INCLUDE_ORDER) for name in names}

FOLDERS = ["benchmarks", "csrc", "examples", "poptorch", "tests"]
CPP_SUFFIXES = {".cpp", ".h", ".def", ".inc", ".inl", ".c"}


def _files(*suffixes):
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    found.append(ROOT / "setup.py")
    return sorted(path for path in found if path.suffix in suffixes)


PYTHON = _files(".py", ".pyi")
CPP = _files(*CPP_SUFFIXES)
WEB = _files(".css", ".html", ".js")


def _report(problems):
    assert not problems, "\n".join(["", *problems])


def _name(path):
    return str(path.relative_to(ROOT))


def test_files_are_short():
    counts = {path: len(path.read_text().splitlines()) for path in PYTHON + CPP + WEB}
    too_long = {path: count for path, count in counts.items() if count > FILE_LINES}
    _report([f"{_name(p)}: {count} lines, limit {FILE_LINES}" for p, count in too_long.items()])


def test_folders_are_small():
    found = {path.parent for path in PYTHON + CPP + WEB}
    counts = {folder: sum(path.is_file() for path in folder.iterdir()) for folder in found}
    _report([f"{_name(folder)}: {count} files, limit {FOLDER_FILES}"
             for folder, count in sorted(counts.items()) if count > FOLDER_FILES])


def test_no_conflict_of_a_merge_is_left():
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    marker = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    _report([_name(path) for path in PYTHON + CPP + WEB + pages if marker.search(path.read_text())])


def test_lines_fit():
    problems = []
    for path in PYTHON + CPP + WEB:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if len(line) > COLUMNS:
                problems.append(f"{_name(path)}:{number}: {len(line)} columns, limit {COLUMNS}")
            if "\t" in line or line != line.rstrip():
                problems.append(f"{_name(path)}:{number}: a tab, or space at the end")
    _report(problems)


def test_python_functions_are_short():
    problems = []
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.body[0].lineno + 1
                if ast.get_docstring(node):  # the text that explains is not the code
                    lines = node.end_lineno - node.body[0].end_lineno
                if lines > FUNCTION_LINES:
                    problems.append(f"{_name(path)}:{node.lineno}: {node.name} has {lines} lines")
    _report(problems)


def cpp_functions(text):
    """(name, first line, number of lines, body) of the functions in C++ source text.

    A function is a brace that opens after ``)`` (and words such as ``const``) where all braces
    around it belong to namespaces and types.
    """
    quiet = re.sub(r'R"\((.*?)\)"', lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    quiet = re.sub(r'"(\\.|[^"\\\n])*"|\'(\\.|[^\'\\\n])\'', "0", quiet)
    quiet = re.sub(r"//[^\n]*", "", quiet)
    quiet = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), quiet, flags=re.DOTALL)
    quiet = re.sub(r"^#(.*\\\n)*.*", lambda m: "\n" * m[0].count("\n"), quiet, flags=re.MULTILINE)
    function = re.compile(r"(~?[\w:]+|operator\S+)\s*\([^;{}]*\)[^;{}=()]*(:[^;{}]*)?$")
    scopes, start, found = [], 0, []
    for match in re.finditer(r"[{};]", quiet):
        head, position = quiet[start : match.start()].strip(), match.start()
        start = match.end()
        if match[0] == "{":
            outside = all(kind == "scope" for kind, *_ in scopes)
            if outside and (name := function.search(head)) and not head.endswith("="):
                scopes.append(("function", name[1], position))
            elif outside and re.search(r"\b(namespace|class|struct|union|extern)\b", head):
                scopes.append(("scope", "", position))
            else:
                scopes.append(("other", "", position))
        elif match[0] == "}" and scopes:
            kind, name, opened = scopes.pop()
            if kind == "function":
                lines = quiet.count("\n", opened, position) + 1
                body = quiet[opened + 1 : position].strip()
                found.append((name, quiet.count("\n", 0, opened) + 1, lines, body))
    return found


def test_cpp_functions_are_short():
    problems = []
    for path in CPP:
        for name, line, count, body in cpp_functions(path.read_text()):
            is_table = body.startswith("return {") and body.count("return") == 1
            if count > FUNCTION_LINES and not is_table:
                problems.append(f"{_name(path)}:{line}: {name} has {count} lines")
    _report(problems)


def test_brace_counter_finds_functions():
    source = """
namespace a {
struct S {
  int f() const { return 1; }
  S() : x_{1} {}
};
static std::string g(int a,
                     int b) {
  if (a) {
    return "}";
  }
  auto h = [&](int c) { return c; };
}
const std::vector<int> table = {1, 2};
}
"""
    found = [(name, count) for name, _, count, _ in cpp_functions(source)]
    assert ("f", 1) in found and ("g", 6) in found
    assert all(name in {"f", "g", "S", "x_"} for name, _ in found)


def _folder(path):
    """The folder of csrc that a path (relative to csrc) is in; files outside are ``compile``."""
    return path.split("/")[0] if "/" in path else "compile"


def _level_of(path):
    """The place of a path's folder in the order."""
    assert _folder(path) in LEVEL, f"csrc/{path}: no folder of the architecture"
    return LEVEL[_folder(path)]


@pytest.mark.parametrize("path", CPP, ids=_name)
def test_includes_point_downwards(path):
    if not _name(path).startswith("csrc/"):
        return
    own = path.relative_to(ROOT / "csrc")
    problems = []
    for name in re.findall(r'^#include "([^"]+)"', path.read_text(), flags=re.MULTILINE):
        is_ours = (ROOT / "csrc" / name).exists()
        if not is_ours:
            problems.append(f"{_name(path)}: {name} is not a path from csrc")
        elif _level_of(name) > _level_of(str(own)):
            problems.append(f"{_name(path)}: {name} stands above this folder")
        elif _level_of(name) == _level_of(str(own)) and _folder(name) != _folder(str(own)):
            problems.append(f"{_name(path)}: {name} exists next to this folder")
    _report(problems)


def test_only_the_edges_know_torch_and_python():
    torch_header = re.compile(r"#include <(torch|ATen|c10)/")
    python_header = re.compile(r"#include <(pybind11/|Python\.h)")
    # Each of these is compiled for each release of torch.
    at_torch = ("csrc/kernels/aten/", "csrc/python/torch_tensors.cpp",
                "csrc/python/torch_values.h", "csrc/python/graph_call.cpp", "tests/")
    problems = []
    for path in CPP:
        name = _name(path)
        if "#include <torch/extension.h>" in path.read_text():
            problems.append(f"{name}: torch/extension.h takes a minute to compile")
        if torch_header.search(path.read_text()) and not name.startswith(at_torch):
            problems.append(f"{name}: only {', '.join(at_torch[:-1])} may see torch")
        at_python = name.startswith(("csrc/python/", "tests/"))
        if python_header.search(path.read_text()) and not at_python:
            problems.append(f"{name}: only csrc/python may see Python")
    _report(problems)


def test_families_of_kernels_do_not_know_aten():
    problems = []
    for path in CPP:
        name = _name(path)
        is_family = name.startswith("csrc/kernels/") and "/aten/" not in name
        if is_family and '#include "kernels/aten/' in path.read_text():
            problems.append(f"{name}: kernels/aten adds its rows and kernels to tables, not this")
    _report(problems)


def _undocumented(tree, prefix=""):
    """Public functions, classes and methods without a docstring."""
    for node in tree.body:
        kinds = ast.FunctionDef | ast.ClassDef
        if not isinstance(node, kinds) or node.name.startswith("_"):
            continue
        decorators = [ast.unparse(d) for d in node.decorator_list]
        if any("overload" in d or d.endswith(".setter") for d in decorators):
            continue
        if not ast.get_docstring(node):
            yield node.lineno, prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(node, f"{node.name}.")


def test_public_python_has_docstrings():
    problems = []
    for path in PYTHON:
        tree = ast.parse(path.read_text())
        if path.suffix == ".py" and not ast.get_docstring(tree) and tree.body:
            problems.append(f"{_name(path)}: the module has no docstring")
        if _name(path).startswith("poptorch/") and path.suffix == ".py":
            private = any(p.startswith("_") and p != "__init__.py" for p in path.parts)
            for line, name in [] if private else _undocumented(tree):
                problems.append(f"{_name(path)}:{line}: {name} has no docstring")
    _report(problems)


def test_imports_inside_functions_say_why():
    problems = []
    for path in PYTHON:
        text, lines = path.read_text(), path.read_text().splitlines()
        if not re.search(r"^ +(import|from) ", text, flags=re.MULTILINE):
            continue
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    near = lines[node.lineno - 2] + lines[node.end_lineno - 1]
                    if "#" not in near:
                        problems.append(f"{_name(path)}:{node.lineno}: import without a reason")
    _report(problems)


def test_cpp_files_say_what_they_do():
    """A header opens with it; a source without a header of its own says it near the top."""
    problems = []
    for path in CPP:
        text = path.read_text()
        head = text[:2] if path.suffix != ".cpp" else "\n".join(text.splitlines()[:30])
        if "//" not in head and not path.with_suffix(".h").exists():
            problems.append(f"{_name(path)}: no comment near the top says what the file does")
    _report(problems)


def test_nothing_generated_is_kept():
    marks = re.compile(r"(auto[- ]?generated|generated by|do not edit)", re.IGNORECASE)
    problems = []
    for path in PYTHON + CPP:
        head = "\n".join(path.read_text().splitlines()[:5])
        if marks.search(head) and path.name != "test_layout.py":
            problems.append(f"{_name(path)}: looks generated")
    _report(problems)
