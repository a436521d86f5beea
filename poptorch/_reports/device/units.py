"""Numbers with units, for people."""


def bytes_text(count: float) -> str:
    """``1.5 MiB``; the unit in which the number has at most four digits."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1000:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def seconds_text(seconds: float) -> str:
    """``1.50 ms``; the unit in which the number is at least one."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def count_text(count: float) -> str:
    """``1,234``; with six digits and an exponent from ten billion on."""
    return f"{count:,.0f}" if count < 1e10 else f"{count:.3e}"


def aligned(rows: list[list[str]], left: int = 0) -> list[str]:
    """Lines of a table: the first ``left`` columns and the last one stand left, others right."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows)]
    last = len(widths) - 1
    return ["  ".join(cell.ljust(width) if number < left or number == last else cell.rjust(width)
                      for number, (cell, width) in enumerate(zip(row, widths))).rstrip()
            for row in rows]
