"""Writes ``docs/reference/operators.md`` from the results of ``python -m tests.operators``.

``python -m tests.operators.table FILE`` takes the file of ``--results``.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

from tests.helpers import ROOT

PAGE = ROOT / "docs" / "reference" / "operators.md"
DTYPES = ("float32", "float16", "bfloat16")
WAYS = ("inference", "training")
_KINDS = ("right", "refused", "wrong")  # the last one that a call has is the operator's

_HEAD = """# PyTorch's operators

PyTorch tests its operators and modules with the arguments in its lists `op_db` and `module_db`.
This page says which of them poptorch compiles. `make operators-page` runs up to {count} calls of
each with arguments from these lists, in each type that eager PyTorch has on a CPU, and writes this
page. Inference compares the results with eager PyTorch. Training compares the gradients of all
floating-point arguments and parameters. Both use the rule for one operation of
[tests/README.md](../../tests/README.md#the-numeric-rule). Only shapes and types of random numbers
are compared.

| kind | meaning |
|---|---|
| right | all calls give what eager PyTorch gives |
| refused | a call is refused by design, see [limits](../guide/porting/limits.md): {refused} |
| wrong | a call gives something else, or is refused for another reason |

The share is that of the right ones among those that are not refused by design.

"""
_REFUSED = ("Python code needs the value of a tensor, the shape of a result depends on values, "
            "or a tensor is sparse")


def rows_of(text: str) -> dict[tuple, dict]:
    """The last line of each key ``(kind, name, dtype)`` of a file of results."""
    lines = map(json.loads, text.splitlines())
    return {tuple(line["key"]): line for line in lines}


def kind_of(row: dict, way: str) -> str | None:
    """How an operator does in inference or in training; None where PyTorch has no such call."""
    found: Counter = Counter()
    for name, counts in row["found"].items():
        if (name == "gradients") == (way == "training"):
            found.update(counts)
    return next((kind for kind in reversed(_KINDS) if found[kind]), None)


def page(rows: dict[tuple, dict], count: int) -> str:
    """The page as Markdown.

    Args:
        rows: as :func:`rows_of` returns them.
        count: of calls of each operator at most.
    """
    head = _HEAD.format(count=count, refused=_REFUSED)
    return "\n".join([head + _summary(rows), _others(rows), _right(rows)])


def _summary(rows) -> str:
    lines = ["| | type | | right | refused | wrong | share |", "|---|---|---|---|---|---|---|"]
    for kind in ("operator", "module"):
        for dtype in DTYPES:
            for way in WAYS:
                of = [kind_of(row, way) for key, row in rows.items()
                      if (key[0], key[2]) == (kind, dtype)]
                right, refused, wrong = (of.count(one) for one in _KINDS)
                if right + refused + wrong:
                    share = f"{right / max(right + wrong, 1):.1%}"
                    lines.append(f"| {kind}s | `{dtype}` | {way} | {right} | {refused} | {wrong} "
                                 f"| {share} |")
    return "\n".join([*lines, ""])


def _others(rows) -> str:
    """Those that are not right, one row for equal reasons in several types."""
    found: dict[tuple, list[str]] = {}
    for (_, name, dtype), row in sorted(rows.items()):
        kinds = [kind_of(row, way) for way in WAYS]
        if {*kinds} - {"right", None}:
            cells = tuple(kind or "–" for kind in kinds)
            found.setdefault((name, cells, _reason(row)), []).append(dtype)
    lines = ["## Not right", "", "| name | types | inference | training | reason |",
             "|---|---|---|---|---|"]
    for (name, cells, reason), dtypes in found.items():
        types = ", ".join(f"`{dtype}`" for dtype in DTYPES if dtype in dtypes)
        lines.append(f"| `{name}` | {types} | {' | '.join(cells)} | {reason} |")
    return "\n".join([*lines, ""])


def _reason(row) -> str:
    """The first sentence of the first error, without places and numbers."""
    text = (row["reason"] or [""])[0].partition("\n")[0].removeprefix("refused: ")
    text = re.sub(r"^\[[^]]*\] ", "", text)
    return re.split(r"\. (?=[A-Z])|, but forward is compiled", text)[0].rstrip(".").replace(
        "|", "\\|")


def _right(rows) -> str:
    """The names of those that are right wherever PyTorch has them."""
    text = ""
    for kind, head in (("operator", "Operators"), ("module", "Modules")):
        kinds: dict[str, set] = {}
        for (of, name, _), row in rows.items():
            if of == kind:
                kinds.setdefault(name, set()).update(kind_of(row, way) for way in WAYS)
        names = sorted(name for name, found in kinds.items() if found - {None} == {"right"})
        listed = ", ".join(f"`{name}`" for name in names)
        text += f"## {head} that are right\n\n{listed}\n\n"
    return text.rstrip("\n") + "\n"


def main() -> None:
    """Writes the page from the file and the number of calls of the command line."""
    path, count = Path(sys.argv[1]), int(sys.argv[2])
    PAGE.write_text(page(rows_of(path.read_text()), count))


if __name__ == "__main__":
    main()
