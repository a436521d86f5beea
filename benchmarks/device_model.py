"""Accuracy of the device model on files of published figures.

Example:
    python benchmarks/device_model.py --ops ops.csv --results results.csv
    python benchmarks/device_model.py --results results.csv --only ResNet-50 WP01

Columns of ``--ops``: id, target, op, params, dtype, cycles, total_mem_bytes, max_tile_mem_bytes.
Those of ``--results``: see ``published/rows.py``. Rows without a program or a figure are counted
and named. The exit status is 0 when every row was handled or named, else 1; goals that are missed
are printed.
"""

import argparse
import collections
import csv
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.device_rows import NotBuilt, program_of, target_of
from benchmarks.published import accuracy
from poptorch import _C

# Median and 90th percentile of the absolute error of cycles that are wanted, in percent.
GOALS = {"conv": (4, 12), "fc": (5, 20), "gemm": (5, 20), "dense": (5, 20), "gather": (4, 12),
         "scatter": (3, 8), "lstm": (10, 15), "gru": (10, 15), "pooling": (8, 25),
         "reduction": (12, 30), "embedding": (25, 25), "ctc": (25, 25)}
# Factor that 90 % of the points are expected within, by family, for points that no constant was
# chosen by. A family with few published points has a wide one.
INTERVAL = {"conv": 1.2, "fc": 1.35, "gemm": 1.2, "dense": 1.2, "gather": 1.2, "scatter": 1.25,
            "schnet": 1.4, "lstm": 1.3, "gru": 1.3, "pooling": 1.5, "reduction": 1.5, "ctc": 1.4,
            "oct_conv": 1.3, "embedding": 4.0}
# A proportion of 0.6 stands for an older version of the vendor's software in the measurements of
# gather and scatter: each of its figures is larger by this constant.
OLD_SOFTWARE_CYCLES = 315


@dataclass
class Point:
    """A row with its prediction."""

    row: dict
    cycles: float  # predicted
    published: float
    peak: float  # bytes of the fullest tile
    mean: float


def predict(row):
    """``(family, point)`` of a row of operations."""
    published = float(row["cycles"] or "nan")
    if published != published:
        raise NotBuilt("no cycles in the file")
    family, program = program_of(row)
    target = target_of(row)
    found = re.search(r"availableMemoryProportion=([\d.]+)", row["params"])
    proportion = float(found[1]) if found else 0.6
    costs = _C.op_costs(program.text(), target, {"memory_proportion": proportion})
    cycles = sum(cost["cycles"] for cost in costs)
    if found and proportion > 0.5:
        cycles += OLD_SOFTWARE_CYCLES
    tiles = next(t["tiles"] for t in _C.targets() if t["name"] == target)
    always = sum(cost["always_bytes"] for cost in costs) + program.bytes / tiles
    mean = always + max(cost["temporary_bytes"] for cost in costs)
    return family, Point(row, cycles, published, max(c["peak_with_gaps"] for c in costs), mean)


def percentile(values, share):
    """The value that this share of all is at most."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def summary(errors):
    """Median and 90th percentile, in percent."""
    return 100 * statistics.median(errors), 100 * percentile(errors, 0.9)


def memory_errors(points):
    """Errors of the largest tile, of its part above the usual start, and of the mean tile."""
    start = {t["name"]: t["interleaved_start"] for t in _C.targets()}
    tiles = {t["name"]: t["tiles"] for t in _C.targets()}
    largest, above, mean = [], [], []
    for point in points:
        if not point.row["max_tile_mem_bytes"]:
            continue
        actual = float(point.row["max_tile_mem_bytes"])
        target = target_of(point.row)
        largest.append(abs(point.peak / actual - 1))
        if actual > start[target] + 24:
            part = actual - start[target] - 24
            above.append(abs(max(0, point.peak - start[target] - 24) / part - 1))
        average = float(point.row["total_mem_bytes"]) / tiles[target]
        mean.append(abs(point.mean / average - 1))
    return {"largest tile": largest, "above its start": above, "mean tile": mean}


def print_family(family, points):
    """One line of cycles and one of each kind of memory; whether the goal was reached."""
    errors = [abs(p.cycles / p.published - 1) for p in points]
    median, high = summary(errors)
    wanted = GOALS.get(family)
    is_met = wanted is None or (median <= wanted[0] and high <= wanted[1])
    factor = INTERVAL[family]
    inside = sum(1 / factor <= p.published / p.cycles <= factor for p in points) / len(points)
    goal = f"goal {wanted[0]} / {wanted[1]} %" if wanted else "no goal"
    print(f"{family:10} {len(points):5} rows  {median:5.1f} / {high:5.1f} %  {goal:14} "
          f"{'' if is_met else 'missed':6} {100 * inside:4.0f} % within a factor of {factor}")
    for name, values in memory_errors(points).items():
        if values:
            print(f"{'':10} {len(values):5} rows  {summary(values)[0]:5.1f} / "
                  f"{summary(values)[1]:5.1f} %  bytes, {name}")
    return is_met, inside * len(points)


def order_of_pairs(points):
    """Of pairs of rows that differ by more than 15 %, how many come in the right order."""
    right = total = 0
    ordered = sorted(points, key=lambda p: p.published)
    for i, fast in enumerate(ordered):
        for slow in ordered[i + 1:]:
            if slow.published > 1.15 * fast.published:
                total += 1
                right += slow.cycles > fast.cycles
    return right, total


def read(path, only=()):
    """The rows of a file; none without one. ``only``: how the id, the op or the network begins."""
    if path is None:
        return []
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    names = ("id", "op", "model")
    return [row for row in rows if not only or any(
        row.get(name, "").startswith(tuple(only)) for name in names)]


def handle_ops(rows):
    """Points by family, rows that cannot be built by reason, and rows that failed."""
    families, missing, failed = collections.defaultdict(list), collections.Counter(), []
    for row in rows:
        try:
            family, point = predict(row)
            families[family].append(point)
        except NotBuilt as reason:
            missing[str(reason)] += 1
        except Exception as error:  # a row must not hide the others
            failed.append(f"{row.get('id')}: {error}")
    return families, missing, failed


def main(arguments=None):
    """Runs the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ops", help="file of operations")
    parser.add_argument("--results", help="file of results of whole networks")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME",
                        help="rows whose id, op or network begins with one of these names")
    args = parser.parse_args(arguments)
    families, missing, failed = handle_ops(read(args.ops, args.only))
    print("cycles: median / 90th percentile of the absolute error")
    met = inside = right = total = 0
    for family, points in sorted(families.items()):
        is_met, within = print_family(family, points)
        met, inside = met + is_met, inside + within
        pairs = order_of_pairs(points)
        right, total = right + pairs[0], total + pairs[1]
    for reason, count in sorted(missing.items()):
        print(f"not built: {count} rows, {reason}")
    results = read(args.results, args.only)
    found, not_built, broken = accuracy.handle(results)
    accuracy.show(found, not_built)
    failed += broken
    for text in failed:
        print(f"failed: {text}")
    count = sum(map(len, families.values()))
    errors = [abs(p.cycles / p.published - 1) for points in families.values() for p in points]
    cycles = "{:.1f} / {:.1f} %".format(*summary(errors)) if errors else "none"
    print(f"device model: {count} rows, cycles {cycles}; {met} of {len(families)} families at "
          f"their goals; {100 * inside / max(1, count):.0f} % inside intervals; "
          f"{100 * right / max(1, total):.0f} % of pairs in order; "
          f"results {accuracy.line(found)}; "
          f"{sum(missing.values()) + sum(not_built.values())} rows not built; "
          f"{len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
