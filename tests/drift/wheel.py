"""Reads names, operator schemas and decompositions from the files of a torch wheel."""

import ast
import functools
import re
import zipfile
from pathlib import Path

_SCHEMAS = "torchgen/packaged/ATen/native/native_functions.yaml"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Wheel:
    """A wheel of torch, or a folder that holds the package."""

    def __init__(self, path: Path):
        self._path = path
        self._zip = None if path.is_dir() else zipfile.ZipFile(path)
        self._files = set(self._zip.namelist()) if self._zip else None
        found = re.search(r"__version__ = '([^']+)'", self.text("torch/version.py") or "")
        if not found:
            raise SystemExit(f"[drift] {path} is not a wheel of torch: it has no torch/version.py. "
                             f"Download one with `pip download --no-deps torch==<version>`.")
        self.version = found.group(1)

    def text(self, name: str) -> str | None:
        """A file of the wheel; None if there is none of this name."""
        if self._zip is None:
            file = self._path / name
            return file.read_text() if file.is_file() else None
        return self._zip.read(name).decode() if name in self._files else None

    @functools.cache
    def module(self, dotted: str) -> tuple[str, ast.Module] | None:
        """A module's package and its tree; of compiled modules that of the stub."""
        base = dotted.replace(".", "/")
        for file in (f"{base}/__init__.py", f"{base}.py", f"{base}/__init__.pyi", f"{base}.pyi"):
            text = self.text(file)
            if text is not None:
                is_package = Path(file).stem == "__init__"
                return dotted if is_package else dotted.rpartition(".")[0], ast.parse(text)
        return None

    @functools.cache
    def find(self, module: str, name: str) -> ast.AST | None:
        """The definition of a name of a module, through imports; a Module for a submodule."""
        return self._find(module, name, frozenset())

    def _find(self, module: str, name: str, seen: frozenset) -> ast.AST | None:
        found = self.module(module)
        if found is None or (module, name) in seen:
            return None
        seen |= {(module, name)}
        package, tree = found
        for node in _statements(tree):
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and node.name == name:
                return node
            if _assigns(node, name):
                return node
            if isinstance(node, ast.ImportFrom):
                source = _source(node, package)
                for alias in node.names:
                    if alias.name != "*" and name != (alias.asname or alias.name):
                        continue
                    wanted = name if alias.name == "*" else alias.name
                    inner = self._find(source, wanted, seen)
                    inner = inner or self._submodule(source, wanted)
                    # The name is there even if what it comes from is compiled or generated.
                    if inner or alias.name != "*":
                        return inner or node
        return self._submodule(module, name)

    def _submodule(self, module: str, name: str) -> ast.AST | None:
        found = self.module(f"{module}.{name}")
        return found and found[1]

    def resolve(self, dotted: str) -> ast.AST | None:
        """The definition of ``torch.a.b``, where b may be an attribute of a class; None if there
        is none that the files show."""
        parts = dotted.split(".")
        for length in range(len(parts) - 1, 0, -1):
            if self.module(".".join(parts[:length])) is None:
                continue
            found = self.find(".".join(parts[:length]), parts[length])
            for name in parts[length + 1:]:
                found = found and _member(found, name)
            if found is not None:
                return found
        return None

    @functools.cached_property
    def schemas(self) -> dict[str, str]:
        """``{"add.Tensor": "(Tensor self, ...) -> Tensor"}``."""
        text = self.text(_SCHEMAS) or ""
        lines = re.findall(r"^- func: ([\w.]+)(\(.*)$", text, flags=re.MULTILINE)
        return dict(lines)

    @functools.cached_property
    def decompositions(self) -> dict[str, str]:
        """The code of each function that torch registers as a decomposition, by its operators."""
        found: dict[str, str] = {}
        for module in ("torch._decomp.decompositions", "torch._refs", "torch._refs.nn.functional",
                       "torch._refs.special", "torch._refs.linalg", "torch._refs.fft"):
            tree = self.module(module)
            for node in ast.walk(tree[1]) if tree else ():
                for operator in _registered(node):
                    found[operator] = ast.unparse(node)
        return found


def _statements(tree: ast.Module):
    """Statements of a module, also those in conditions."""
    left = list(tree.body)
    while left:
        node = left.pop(0)
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            left[:0] = [*node.body, *getattr(node, "orelse", []),
                        *(line for handler in getattr(node, "handlers", [])
                          for line in handler.body)]


def _assigns(node: ast.AST, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else \
        [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(isinstance(part, ast.Name) and part.id == name
               for target in targets for part in ast.walk(target))


def _source(node: ast.ImportFrom, package: str) -> str:
    """The module that a statement imports from."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[:len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _member(node: ast.AST, name: str) -> ast.AST | None:
    body = getattr(node, "body", None)
    for part in body if isinstance(body, list) else ():
        if getattr(part, "name", None) == name or _assigns(part, name):
            return part
    return None


def _registered(node: ast.AST) -> list[str]:
    """The operators that a function is decorated with as their decomposition."""
    found = []
    for decorator in node.decorator_list if isinstance(node, _FUNCTIONS) else ():
        if isinstance(decorator, ast.Call) and \
                getattr(decorator.func, "id", "") == "register_decomposition":
            operators = decorator.args[0]
            parts = operators.elts if isinstance(operators, (ast.List, ast.Tuple)) else [operators]
            found += [ast.unparse(part).removeprefix("aten.") for part in parts]
    return found
