"""How commands print: JSON and tables."""

import argparse
import json
import textwrap


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def as_json(value) -> None:
    """Prints a value as JSON."""
    print(json.dumps(value, indent=2, allow_nan=False))


def short(text: str, width: int = 80) -> str:
    """``text``, cut to ``width`` columns."""
    return text if len(text) <= width else f"{text[:width - 3]}..."


def rows(pairs: list[tuple[str, str]]) -> None:
    """Prints names and values in two columns of at most 80 together, long values on more lines."""
    width = max(len(name) for name, _ in pairs) + 2
    for name, value in pairs:
        print(textwrap.fill(f"{name:<{width}}{value}", 80, subsequent_indent=" " * width,
                            break_on_hyphens=False))


def dtype_name(dtype) -> str:
    """``float32`` of ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def type_text(row: dict) -> str:
    """``float32[3, 4]`` of a row with ``dtype`` and ``shape``."""
    return f"{row['dtype']}{row['shape']}"
