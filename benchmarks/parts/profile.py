"""Where the time of a step goes, op by op, with the bytes that each op touches."""

import math
import re

from benchmarks import backends, measure, workloads
from benchmarks.part import Part, ratio, setting, start_row
from benchmarks.table import MODE, WORKLOAD, Column

CALLS = {True: 2, False: 5}  # by whether a step is long
NOT_HERE = {"mlp", *workloads.IN_LOOPS}  # reading the clock takes longer than their ops
ITEM_BYTES = {"bool": 1, "f16": 2, "bf16": 2}  # others say it: f32, i64, ...
TYPE = re.compile(r"([a-z]+\d*)\[([\d,]*)\]")

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("op", "op", "", -28),
    Column("phase", "phase", "", -9),
    Column("ms", "ms a step", ".3f"),
    Column("share", "share", ".1%", 7),
    Column("runs", "runs", ".0f", 6),
    Column("mb", "MB", ".1f"),
    Column("gbps", "GB/s", ".1f", 7),
    Column("gflops", "GFLOP/s", ".1f", 8),
]


def bytes_of(types):
    """Bytes of all operands and results of ``"f32[4,8](1,4), _ -> f32[4]"``."""
    total = 0
    for name, sizes in TYPE.findall(types):
        item = ITEM_BYTES.get(name) or int(name.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8
        total += item * math.prod(int(size) for size in sizes.split(",") if size)
    return total


def by_op(profile, steps):
    """Rows of ops by name and phase, the dearest first; loops only hold others."""
    found, gigaflops = {}, {}
    for item in profile:
        if item["op"] == "loop":
            continue
        key = item["op"], item["phase"]
        row = found.setdefault(key, {"ms": 0.0, "runs": 0.0, "mb": 0.0})
        row["ms"] += item["ns"] / 1e6 / steps
        row["runs"] += item["runs"] / steps
        row["mb"] += bytes_of(item["types"]) * item["runs"] / steps / 1e6
        if item["flops"] is not None:  # not known of an opaque op
            gigaflops[key] = gigaflops.get(key, 0.0) + item["flops"] * item["runs"] / steps / 1e9
    total = sum(row["ms"] for row in found.values())
    rows = [{"op": op, "phase": phase} | row for (op, phase), row in found.items()]
    for row in rows:
        done = gigaflops.get((row["op"], row["phase"]))
        row |= {"share": ratio(row["ms"], total), "gbps": ratio(row["mb"], row["ms"])}
        row["gflops"] = None if done is None else ratio(1e3 * done, row["ms"])
    return sorted(rows, key=lambda row: -row["ms"])


def _measure(plan):
    for workload, mode in plan.timed(without=NOT_HERE):
        one = [setting(workload, mode, backends.OURS)]
        with measure.processes(one, pace=plan.pace) as started:
            started[0].ask("warm")
            answer = started[0].ask("profile", calls=CALLS[workload.is_large])
        start = start_row(workload, mode, [started[0].result])
        if "error" in start:
            yield [start]
        else:
            yield [start | row for row in by_op(answer["rows"], answer["steps"])]


PART = Part("profile", "time of each op of a step", COLUMNS, _measure, minutes=(2.5, 0.7))
