"""The report page: one self-contained HTML file made from one report, or from two to compare.

The files next to this module are the page: ``page.html`` with places for the style, the script and
the data. The script is plain JavaScript, joined from ``SCRIPTS`` in their order.
"""

import base64
import html
import json
import zlib
from pathlib import Path

from poptorch._reports.page.packing import pack

FOLDER = Path(__file__).parent
SCRIPTS = ["format", "unpack", "elements", "chart", "summary", "tiles", "memory", "operations",
           "timeline", "options", "comparison", "main"]


def render(report: dict, other: dict | None = None) -> str:
    """The page as HTML text. It loads nothing from elsewhere.

    Args:
        report: JSON object of a report, as ``DeviceReport.to_json`` writes it.
        other: a second report, from before, to compare with; None: no comparison.
    """
    reports = [report] if other is None else [report, other]
    text = json.dumps(pack(reports), separators=(",", ":"), allow_nan=False)
    # Base64 contains no "<", so no name in a report can close the element that holds the data.
    data = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    parts = {"title": html.escape(" and ".join(one["title"] for one in reports)),
             "style": (FOLDER / "page.css").read_text(encoding="utf-8"),
             "script": "\n".join((FOLDER / f"{name}.js").read_text(encoding="utf-8")
                                 for name in SCRIPTS),
             "data": data}
    page = (FOLDER / "page.html").read_text(encoding="utf-8")
    first, *rest = page.split("{{")
    pieces = [first]
    for piece in rest:
        name, _, after = piece.partition("}}")
        pieces += [parts[name], after]
    return "".join(pieces)
