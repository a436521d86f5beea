"""How commands print: JSON and tables."""

import argparse
import json
import math
import textwrap


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def as_json(value) -> None:
    """Prints a value as JSON; numbers that are not finite and types of the IR as text."""
    print(json.dumps(_plain(value), indent=2, allow_nan=False, default=str))


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_plain, value))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


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
