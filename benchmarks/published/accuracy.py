"""Predicted over published throughput of whole networks."""

import collections
import itertools
import statistics

from benchmarks.device_rows import NotBuilt
from benchmarks.published.rows import result_of

# Median and 90th percentile of the absolute error that are wanted, in percent.
GOAL = 8, 20


def handle(rows):
    """Results, rows that cannot be built by reason, and rows that failed."""
    found, missing, failed = [], collections.Counter(), []
    for row in rows:
        try:
            found.append(result_of(row))
        except NotBuilt as reason:
            missing[f"{row['model']}: {reason}"] += 1
        except Exception as error:  # a row must not hide the others
            failed.append(f"{row.get('id')}: {error}")
    return found, missing, failed


def show(found, missing):
    """A line for each result, then for each network, then for all."""
    for one in found:
        print(f"{one.row['id']:5} {one.row['model'][:20]:20} {one.row['task'][:22]:22} "
              f"{one.predicted:10.1f} of {one.published:10.1f} {one.row['unit']:8} "
              f"{one.predicted / one.published:5.2f}{'' if one.fits else '  does not fit'}")
    for model in sorted({one.row["model"] for one in found}):
        own = [one for one in found if one.row["model"] == model]
        print(f"{model[:20]:20} {len(own):3} results  {line(own)}")
    for reason, count in sorted(missing.items()):
        print(f"not built: {count} results, {reason}")


def line(found):
    """Accuracy in one line; the goals are printed, not raised."""
    if not found:
        return "none"
    errors = sorted(abs(one.predicted / one.published - 1) for one in found)
    high = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    inside = sum(one.low <= one.published <= one.high for one in found)
    right, total = _pairs(found)
    return (f"{len(found)} rows {100 * statistics.median(errors):.1f} / {100 * high:.1f} % "
            f"(goal {GOAL[0]} / {GOAL[1]} %), {inside} inside intervals, {right} of {total} pairs "
            f"in order, {sum(not one.fits for one in found)} wrongly called out of memory")


def _pairs(found):
    """Of pairs of one network in one unit that differ by more than 15 %, how many are in order."""
    right = total = 0
    for one, two in itertools.combinations(found, 2):
        slow, fast = sorted((one, two), key=lambda result: result.published)
        is_alike = one.row["model"] == two.row["model"] and one.row["unit"] == two.row["unit"]
        if is_alike and fast.published > 1.15 * slow.published:
            total += 1
            right += fast.predicted > slow.predicted
    return right, total
