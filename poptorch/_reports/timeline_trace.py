"""Timelines as files of Perfetto (Chrome's trace event format)."""

import json
from collections.abc import Iterator
from pathlib import Path

from poptorch._reports.simulation import Simulation


def write(path: str | Path, simulation: Simulation, replicas: int) -> None:
    """Writes the events of one step of all replicas."""
    events = [event for replica in range(replicas) for event in _events(simulation, replica)]
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
    Path(path).write_text(text, encoding="utf-8")


def _events(simulation: Simulation, replica: int) -> Iterator[dict]:
    base = {"pid": replica}
    yield base | {"ph": "M", "name": "process_name", "args": {"name": f"replica {replica}"}}
    for ipu in simulation.ipus:
        yield base | {"ph": "M", "name": "thread_name", "tid": ipu, "args": {"name": f"IPU {ipu}"}}
    for ipu in sorted({span.ipu for span in simulation.spans if span.track == "io"}):
        yield base | {"ph": "M", "name": "thread_name", "tid": _track(simulation, ipu, "io"),
                      "args": {"name": f"IO tiles of IPU {ipu}"}}
    yield from (base | event for event in _slices(simulation))
    first = replica * len(simulation.schedule.edges) * simulation.schedule.micro_batches
    yield from (base | event for event in _arrows(simulation, first))
    yield from (base | event for event in _stashes(simulation))


def _track(simulation: Simulation, ipu: int, track: str) -> int:
    """The number of a track: that of the IPU, for IO tiles one after those of all IPUs."""
    return ipu if track == "compute" else max(simulation.ipus) + 1 + ipu


def _slices(simulation: Simulation) -> Iterator[dict]:
    for span in simulation.spans:
        if span.end == span.begin:
            continue
        name = span.kind if span.task is None else f"{span.task} {span.micro_batch}"
        yield {"ph": "X", "name": name, "cat": span.kind,
               "tid": _track(simulation, span.ipu, span.track), "ts": span.begin,
               "dur": span.end - span.begin, "args": {"micro_batch": span.micro_batch}}


def _arrows(simulation: Simulation, number: int) -> Iterator[dict]:
    """One from each task to each task of another IPU that takes its values."""
    slices = {(span.task, span.micro_batch): span for span in simulation.spans
              if span.kind == "compute" and span.end > span.begin}
    ipus = {task.name: task.ipu for task in simulation.schedule.tasks}
    for edge in simulation.schedule.edges:
        if ipus[edge.source] == ipus[edge.target]:
            continue
        for batch in range(simulation.schedule.micro_batches):
            source, target = (slices.get((name, batch)) for name in (edge.source, edge.target))
            if source is None or target is None:
                continue
            event = {"name": f"{edge.source} to {edge.target}", "cat": "copy", "id": number}
            # An arrow belongs to the slice around its time, which has no end in it.
            leaves = source.end - (source.end - source.begin) / 1000
            yield event | {"ph": "s", "tid": source.ipu, "ts": leaves}
            yield event | {"ph": "f", "bp": "e", "tid": target.ipu, "ts": target.begin}
            number += 1


def _stashes(simulation: Simulation) -> Iterator[dict]:
    """The bytes that each IPU keeps for later tasks of its own."""
    tasks = {task.name: task for task in simulation.schedule.tasks}
    changes: dict[int, list[tuple[float, int]]] = {}
    for edge in simulation.schedule.edges:
        ipu = tasks[edge.source].ipu
        if edge.memory != "chip" or tasks[edge.target].ipu != ipu:
            continue
        found = changes.setdefault(ipu, [])
        found += ((time, edge.bytes) for time in simulation.ends[edge.source])
        found += ((time, -edge.bytes) for time in simulation.begins[edge.target])
    for ipu, found in changes.items():
        held = 0
        for time, change in sorted(found, key=lambda item: (item[0], -item[1])):
            held += change
            yield {"ph": "C", "name": f"stash bytes of IPU {ipu}", "ts": time,
                   "args": {"bytes": held}}
