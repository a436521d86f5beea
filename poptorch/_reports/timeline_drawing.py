"""Timelines as pictures: SVG for notebooks, any format by matplotlib."""

from html import escape
from pathlib import Path

from poptorch._reports.simulation import Span
from poptorch.errors import Error

_COLOURS = {"forward": "#7fb2e5", "backward": "#e8a86c", "both": "#b5a1d8", "exchange": "#c9c9c9",
            "host": "#8fc98f", "all_reduce": "#d98c8c", "update": "#d9d06c"}
_WIDTH, _HEIGHT, _LABEL = 800, 24, 60  # of the SVG, pixels


def _kind(span: Span, parts: dict[str, str]) -> str:
    return parts[span.task] if span.kind == "compute" and span.task is not None else span.kind


def _is_drawn(span: Span) -> bool:
    return span.kind != "idle" and span.end > span.begin


def svg(spans: list[Span], parts: dict[str, str], length: float) -> str:
    """The timeline of one replica; ``parts`` are those of the tasks by name."""
    ipus = sorted({span.ipu for span in spans})
    scale = (_WIDTH - _LABEL) / length if length else 0.0
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" '
             f'height="{_HEIGHT * len(ipus)}" font-family="sans-serif" font-size="11">']
    lines += (f'<text x="0" y="{_HEIGHT * row + 16}">IPU {ipu}</text>'
              for row, ipu in enumerate(ipus))
    for span in filter(_is_drawn, spans):
        left, width = _LABEL + span.begin * scale, (span.end - span.begin) * scale
        top, kind = _HEIGHT * ipus.index(span.ipu) + 2, _kind(span, parts)
        words = kind if span.micro_batch is None else f"{span.task}, micro-batch {span.micro_batch}"
        lines.append(f'<rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="{_HEIGHT - 4}" '
                     f'fill="{_COLOURS[kind]}" stroke="white">'
                     f'<title>{escape(words)}</title></rect>')
        if span.micro_batch is not None and width > 14:
            lines.append(f'<text x="{left + width / 2:.2f}" y="{top + 14}" '
                         f'text-anchor="middle">{span.micro_batch}</text>')
    return "\n".join([*lines, "</svg>"])


def plot(path: str | Path, spans: list[Span], parts: dict[str, str], units: str) -> None:
    """The same by matplotlib."""
    try:
        # An extra that most programs do without.
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch  # also of the extra
    except ImportError as missing:
        raise Error("[plot] drawing a timeline needs matplotlib, which is not installed. Call pip "
                    "install poptorch[plot].") from missing
    ipus = sorted({span.ipu for span in spans})
    figure = Figure(figsize=(10, 0.9 + 0.4 * len(ipus)), layout="constrained")
    axes = figure.subplots()
    kinds = {}
    for span in filter(_is_drawn, spans):
        kind = _kind(span, parts)
        kinds[kind] = _COLOURS[kind]
        row = ipus.index(span.ipu)
        axes.broken_barh([(span.begin, span.end - span.begin)], (row - 0.45, 0.9),
                         facecolors=_COLOURS[kind], edgecolor="white", linewidth=0.5)
        if span.micro_batch is not None:
            axes.text((span.begin + span.end) / 2, row, str(span.micro_batch), ha="center",
                      va="center", fontsize=7, clip_on=True)
    axes.set_yticks(range(len(ipus)), [f"IPU {ipu}" for ipu in ipus])
    axes.invert_yaxis()
    axes.set_xlabel(f"time ({units})")
    axes.legend(handles=[Patch(color=colour, label=kind) for kind, colour in kinds.items()],
                loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=7, frameon=False)
    figure.savefig(path)
