"""Compares two releases of torch: ``python -m tests.drift OLD.whl NEW.whl``. Nothing is imported.

The report lists what changed of the private names that poptorch uses, of the schemas of operators,
and of torch's decompositions. ``*`` marks operators that poptorch's sources name. OLD and NEW may
also be folders that hold an installed package torch. The exit status is 1 if NEW lacks a name that
OLD has and poptorch uses, else 0.
"""

import argparse
import ast
import re
import sys
from pathlib import Path

from tests.drift.wheel import Wheel
from tests.package_links import ROOT

PRIVATE = ROOT / "poptorch" / "_base" / "torch_private"


def used_names(folder: Path = PRIVATE) -> list[str]:
    """The names of torch that the modules of a folder import or reach, dotted and sorted."""
    found = set()
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Attribute):
                name = ast.unparse(node)
                if re.fullmatch(r"torch(\.\w+)+", name):
                    found.add(name)
    # Of torch.a.b only the whole is wanted, not torch.a.
    return sorted(name for name in found if not any(o.startswith(f"{name}.") for o in found))


def _signature(node: ast.AST) -> str:
    if isinstance(node, ast.ClassDef):
        made = [part for part in node.body if getattr(part, "name", "") == "__init__"]
        return _signature(made[0]) if made else ""
    return f"({ast.unparse(node.args)})" if hasattr(node, "args") else ""


def compare_names(old: Wheel, new: Wheel, names: list[str]) -> dict[str, list[str]]:
    """Which names are gone, have another signature or other code, or are not in the files."""
    found: dict[str, list[str]] = {"gone": [], "signature": [], "code": [], "compiled": []}
    for name in names:
        before, after = old.resolve(name), new.resolve(name)
        if before is None:
            found["compiled"].append(name)
        elif after is None:
            found["gone"].append(name)
        elif _signature(before) != _signature(after):
            found["signature"].append(f"{name}: {_signature(before)} -> {_signature(after)}")
        elif not isinstance(before, ast.Module) and ast.dump(before) != ast.dump(after):
            found["code"].append(name)
    return found


def compare(before: dict[str, str], after: dict[str, str]) -> dict[str, list[str]]:
    """Keys that are gone, new, or have another value."""
    return {"gone": sorted(before.keys() - after.keys()),
            "new": sorted(after.keys() - before.keys()),
            "changed": sorted(key for key in before.keys() & after.keys()
                              if before[key] != after[key])}


def named_operators() -> set[str]:
    """The names of ATen operators that poptorch's sources have."""
    found = set()
    for path in (ROOT / "poptorch").rglob("*.py"):
        found |= set(re.findall(r"\baten\.(\w+)", path.read_text()))
    return found


def _print(title: str, lines: list[str]) -> None:
    print(f"\n{title}: {len(lines)}", *(f"  {line}" for line in lines), sep="\n")


def _print_operators(title: str, operators: list[str], text=str) -> None:
    named = named_operators()
    _print(title, [f"{'*' if key.split('.')[0] in named else ' '} {text(key)}"
                   for key in operators])


def main(arguments: list[str]) -> int:
    """Prints the report."""
    parser = argparse.ArgumentParser("python -m tests.drift", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="the older wheel, or the folder that holds torch")
    parser.add_argument("new", type=Path, help="the newer one")
    parsed = parser.parse_args(arguments)
    old, new = Wheel(parsed.old), Wheel(parsed.new)
    names = used_names()
    print(f"torch {old.version} -> {new.version}; poptorch uses {len(names)} names of torch in "
          f"poptorch/_base/torch_private")
    of_names = compare_names(old, new, names)
    _print("names that are gone", of_names["gone"])
    _print("names with another signature", of_names["signature"])
    _print("names with other code", of_names["code"])
    _print("names that the files do not show; `make torch` looks for them", of_names["compiled"])
    schemas = compare(old.schemas, new.schemas)
    _print_operators("operators that are gone", schemas["gone"])
    _print_operators("operators with another schema", schemas["changed"],
                     lambda key: f"{key}{old.schemas[key]}\n      now {new.schemas[key]}")
    _print_operators("new operators", schemas["new"])
    code = compare(old.decompositions, new.decompositions)
    _print_operators("decompositions that are gone", code["gone"])
    _print_operators("decompositions with other code", code["changed"])
    _print_operators("new decompositions", code["new"])
    return 1 if of_names["gone"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
