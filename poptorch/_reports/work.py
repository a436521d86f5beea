"""The work of a program: FLOPs and bytes of its ops."""

from collections import Counter
from typing import Any

from poptorch import _C


def report(executable) -> dict[str, Any]:
    """What ``PoplarExecutor.work_report`` returns."""
    phases = _C.work_report(executable.ir("place"))
    rows = [(op, row) for ops in phases.values() for op, row in ops.items()]
    not_counted: Counter[str] = Counter()
    for op, row in rows:
        if row["flops"] is None:
            not_counted[op] += row["count"]
    total = {key: sum(row[key] or 0 for _, row in rows) for key in ("flops", "bytes")}
    return {"phases": phases, "total": total, "not_counted": dict(not_counted)}
