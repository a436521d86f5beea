"""The table that ``partition_summary`` prints."""

_MOST_NAMES = 3  # in one cell


def summary(shares: list[dict]) -> str:
    """A table with a line for each stage, from the rows of ``Executable.shares``."""
    is_phased = any(share["phase"] for share in shares)
    titles = ["stage", "IPU", "blocks", "modules", "parameters", "bytes", "share"]
    if is_phased:
        titles.insert(0, "phase")
    total = sum(share["parameter_bytes"] for share in shares)
    lines = [_cells(share, total)[0 if is_phased else 1:] for share in shares]
    widths = [max(map(len, column)) for column in zip(titles, *lines)]
    is_text = [title in ("blocks", "modules") for title in titles]
    return "\n".join("  ".join(cell.ljust(width) if text else cell.rjust(width)
                               for cell, width, text in zip(line, widths, is_text)).rstrip()
                     for line in [titles, *lines])


def _cells(share: dict, total: int) -> list[str]:
    part = share["parameter_bytes"] / total if total else 0.0
    return [str(share["phase"]), str(share["stage"]), str(share["ipu"]), _names(share["blocks"]),
            _names(share["modules"]), f"{share['parameter_elements']:,}",
            f"{share['parameter_bytes']:,}", f"{part:.1%}"]


def _names(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    shown = names[:_MOST_NAMES] + ([f"+{more}"] if more > 0 else [])
    return ", ".join(shown) or "-"
