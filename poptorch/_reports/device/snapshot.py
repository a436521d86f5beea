"""Memory of a report in the form of ``torch.cuda.memory._dump_snapshot``.

PyTorch's memory viewer (pytorch.org/memory_viz) reads it: each IPU is a device. Bytes are those
over all tiles, a unit of time is one operation, and addresses tell values apart.
"""

import itertools
import pickle
from pathlib import Path
from typing import Any


def write(path: str | Path, ipus: list[dict[str, Any]]) -> None:
    """Writes the snapshot of the memory of all IPUs of a replica."""
    devices = [_device(number, ipu) for number, ipu in enumerate(ipus)]
    snapshot = {"segments": [segment for segment, _ in devices],
                "device_traces": [events for _, events in devices]}
    with open(path, "wb") as file:
        pickle.dump(snapshot, file)


def _device(number: int, ipu: dict[str, Any]) -> tuple[dict, list[dict]]:
    """A segment with the values that are live at the peak, and the events of the whole step."""
    addresses, blocks, events = itertools.count(1 << 12, 1 << 40), [], []
    last = len(ipu["steps"])
    for value in ipu["values"]:
        block = {"address": next(addresses), "size": value["bytes"],
                 "requested_size": value["bytes"], "state": "active_allocated",
                 "frames": _frames(value["name"], value)}
        if value["first"] <= ipu["peak_step"] <= value["last"]:
            blocks.append(block)
        events.append((value["first"], 1, "alloc", block))
        if value["last"] < last - 1:  # what is always there is never freed
            events.append((value["last"] + 1, 0, "free_completed", block))
    for step, row in enumerate(ipu["steps"]):
        if row["temporary"]:
            block = {"address": next(addresses), "size": row["temporary"],
                     "frames": _frames(f"temporary of {row['op']}", row)}
            events += [(step, 1, "alloc", block), (step + 1, 0, "free_completed", block)]
    events.sort(key=lambda event: event[:2])
    size = sum(block["size"] for block in blocks)
    segment = {"device": number, "address": 1 << 12, "total_size": size, "allocated_size": size,
               "active_size": size, "requested_size": size, "stream": 0, "segment_type": "large",
               "frames": [], "blocks": blocks}
    return segment, [{"action": action, "addr": block["address"], "size": block["size"],
                      "stream": 0, "time_us": time, "frames": block["frames"]}
                     for time, _, action, block in events]


def _frames(name: str, row: dict[str, Any]) -> list[dict]:
    """The operation or value as a call stack: its own name, then the module that made it."""
    file, _, line = row["location"].rpartition(":")
    where = {"filename": file or "model", "line": int(line or 0)}
    return [where | {"name": name}] + ([where | {"name": row["module"]}] if row["module"] else [])
