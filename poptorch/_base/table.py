"""Tables as text and as HTML."""

from collections.abc import Collection
from html import escape


def text(titles: list[str], lines: list[list[str]], left: Collection[str]) -> str:
    """Aligned columns: those with titles in ``left`` to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(titles, *lines)]
    is_left = [title in left for title in titles]
    return "\n".join("  ".join(cell.ljust(width) if text else cell.rjust(width)
                               for cell, width, text in zip(line, widths, is_left)).rstrip()
                     for line in [titles, *lines])


def html(titles: list[str], lines: list[list[str]]) -> str:
    """A table as notebooks show it."""
    rows = [_html_row("th", titles), *(_html_row("td", line) for line in lines)]
    return f"<table>{''.join(rows)}</table>"


def _html_row(tag: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
