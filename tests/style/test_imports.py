"""The order of the Python package: a part may import those that stand before it, and no others."""

import ast

from tests.helpers import ROOT

PACKAGE = ROOT / "poptorch"

# From the bottom to the top. Imports inside of functions count, too.
ORDER = """
    _built version errors enums poptorch_core
    _environment _logging _interrupts _switches
    _schema _context _transparent _plain_torch _snapshot _hidden_tensors _own_classes
    custom_args _containers _pytree _checks _later profiling
    _layout _types
    _strategy _annotations _block_uses _block_class blocks _stages _scope_ops
    _loss _marks _multi_conv _overlap _products _running strategies
    options _device _reports
    _capture _own _translate _handling _named_ops _custom_op
    _weights _optimizer optim
    _runtime _files
    _executor executor models testing
    data
    _args_parser _backend_enums _impl _poplar_executor _utils
    __init__ __main__
""".split()
LEVEL = {name: level for level, name in enumerate(ORDER)}


def _modules_named(tree):
    """``(line, dotted name)`` of each module of the package that an import names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _part(name: str) -> str | None:
    """The part of the package that a dotted name is in; None for what is outside."""
    package, *rest = name.split(".")
    if package != "poptorch" or not rest or rest[0] == "_C":
        return None
    # A name that is no module is one that the package re-exports.
    return rest[0] if rest[0] in LEVEL else "__init__"


def test_parts_are_in_the_order():
    found = {path.stem for path in PACKAGE.iterdir()
             if path.suffix == ".py" or (path.is_dir() and (path / "__init__.py").exists())}
    assert found <= LEVEL.keys(), f"not in ORDER: {sorted(found - LEVEL.keys())}"
    assert LEVEL.keys() <= found, f"not in the package: {sorted(LEVEL.keys() - found)}"


def test_imports_point_downwards():
    problems = []
    for path in sorted(PACKAGE.rglob("*.py")):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for line, name in _modules_named(ast.parse(path.read_text())):
            part = _part(name)
            if part is not None and part != own and LEVEL[part] > LEVEL[own]:
                problems.append(f"{path.relative_to(ROOT)}:{line}: {name} stands above {own}")
    assert not problems, "\n".join(["", *problems])
