"""Timelines as pictures: SVG for notebooks, any format by matplotlib."""

from html import escape
from pathlib import Path

from poptorch._reports.simulation import Span
from poptorch.errors import Error

_COLOURS = {"forward": "#7fb2e5", "backward": "#e8a86c", "both": "#b5a1d8", "exchange": "#c9c9c9",
            "host": "#8fc98f", "sync": "#7d7d7d", "all_reduce": "#d98c8c", "update": "#d9d06c"}
_WIDTH, _HEIGHT, _LABEL = 800, 24, 60  # of the SVG, pixels
_THIN = 0.5  # height of a lane of IO tiles, in lanes of IPUs


def _kind(span: Span, parts: dict[str, str]) -> str:
    return parts[span.task] if span.kind == "compute" and span.task is not None else span.kind


def _is_drawn(span: Span) -> bool:
    return span.kind != "idle" and span.end > span.begin


def _lanes(spans: list[Span]) -> dict[tuple[int, str], tuple[float, float]]:
    """Top and height of the lane of each track of an IPU, in lanes of IPUs."""
    lanes, top = {}, 0.0
    for ipu, track in sorted({(span.ipu, span.track) for span in spans}):
        height = 1.0 if track == "compute" else _THIN
        lanes[ipu, track] = top, height
        top += height
    return lanes


def _label(ipu: int, track: str) -> str:
    return f"IPU {ipu}" if track == "compute" else "IO tiles"


def svg(spans: list[Span], parts: dict[str, str], length: float) -> str:
    """The timeline of one replica; ``parts`` are those of the tasks by name."""
    lanes = _lanes(spans)
    scale = (_WIDTH - _LABEL) / length if length else 0.0
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" '
             f'height="{_HEIGHT * sum(height for _, height in lanes.values()):g}" '
             f'font-family="sans-serif" font-size="11">']
    lines += (f'<text x="0" y="{_HEIGHT * (top + height / 2) + 4:g}">{_label(*lane)}</text>'
              for lane, (top, height) in lanes.items())
    for span in filter(_is_drawn, spans):
        left, width = _LABEL + span.begin * scale, (span.end - span.begin) * scale
        top, height = (_HEIGHT * size for size in lanes[span.ipu, span.track])
        kind = _kind(span, parts)
        words = kind if span.micro_batch is None else f"{span.task}, micro-batch {span.micro_batch}"
        lines.append(f'<rect x="{left:.2f}" y="{top + 2:g}" width="{width:.2f}" '
                     f'height="{height - 4:g}" '
                     f'fill="{_COLOURS[kind]}" stroke="white">'
                     f'<title>{escape(words)}</title></rect>')
        if span.micro_batch is not None and width > 14 and span.track == "compute":
            lines.append(f'<text x="{left + width / 2:.2f}" y="{top + 16:g}" '
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
    lanes = _lanes(spans)
    rows = sum(height for _, height in lanes.values())
    figure = Figure(figsize=(10, 1.1 + 0.4 * rows), layout="constrained")
    axes = figure.subplots()
    kinds = {}
    for span in filter(_is_drawn, spans):
        kind = _kind(span, parts)
        kinds[kind] = _COLOURS[kind]
        top, height = lanes[span.ipu, span.track]
        axes.broken_barh([(span.begin, span.end - span.begin)], (top + 0.05, height - 0.1),
                         facecolors=_COLOURS[kind], edgecolor="white", linewidth=0.5)
        if span.micro_batch is not None and span.track == "compute":
            axes.text((span.begin + span.end) / 2, top + height / 2, str(span.micro_batch),
                      ha="center", va="center", fontsize=7, clip_on=True)
    axes.set_yticks([top + height / 2 for top, height in lanes.values()],
                    [_label(*lane) for lane in lanes])
    axes.set_ylim(rows, 0)
    axes.set_xlabel(f"time ({units})")
    figure.legend(handles=[Patch(color=colour, label=kind) for kind, colour in kinds.items()],
                  loc="outside lower center", ncols=8, frameon=False)
    figure.savefig(path)
