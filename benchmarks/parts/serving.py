"""Latency and throughput of requests by 1, 2 and 8 clients that call at the same time.

A request has a batch of one. The clients are threads of one process, or processes that load one
file; ``benchmarks/servers.py`` says which cores each backend uses.
"""

import statistics

from benchmarks import backends, measure, servers, workloads
from benchmarks.part import Part, ratio, setting
from benchmarks.table import WORKLOAD, Column

CLIENTS = (1, 2, 8)
PEERS = ("compile", "onnxruntime", "openvino")
FIGURES = ("p50", "p90", "p99", "rate")

COLUMNS = [
    WORKLOAD,
    Column("mode", "clients", "", -9),
    Column("backend", "backend", "", -23),
    Column("p50", "p50 ms", ".3f"),
    Column("p90", "p90 ms", ".3f"),
    Column("p99", "p99 ms", ".3f"),
    Column("rate", "requests/s", ".0f"),
    Column("ratio", "x eager", ".2f"),
]


def ways(backend, clients):
    """How a backend is measured with so many clients."""
    if backend != backends.OURS or clients == 1:
        return (backend,)
    return (backend, servers.EACH, servers.PROCESSES)


def _measure(plan):
    chosen = plan.named(*(w.name for w in workloads.SERVED)) or workloads.SERVED
    names = plan.backends or (backends.OURS, "eager", *(PEERS if plan.peers else ()))
    for workload in plan.pace.each(() if "infer" not in plan.modes else chosen):
        settings = [setting(workload, "infer", name) for name in names]
        started = [measure.Process(one) for one in settings]
        try:
            for index, clients in enumerate(CLIENTS):
                until_s = plan.pace.left_s() * (1 - 1 / (len(CLIENTS) - index))
                yield _rows(workload, clients, _rounds(plan, started, clients, until_s))
        finally:
            for process in started:
                process.close()


def _rounds(plan, started, clients, until_s):
    """The figures of each round, by way; of processes that failed, their result.

    Ends when ``until_s`` are left of the case's time, but not before the first round.
    """
    found = {}
    for turn in range(plan.rounds):
        if turn > 0 and plan.pace.left_s() < until_s:
            break
        for process in started if turn % 2 == 0 else reversed(started):
            for way in ways(process.result.setting.backend, clients):
                plan.pace.tell(f"{process.result.setting.workload}, {clients} clients: {way}")
                answer = process.ask("serve", way=way, clients=clients, seconds=plan.block_s)
                found.setdefault(way, []).append(answer or process.result.error)
    for process in started:
        process.ask("close_clients")
    return found


def _rows(workload, clients, found):
    rows = []
    for way, blocks in found.items():
        row = {"workload": workload.name, "backend": way,
               "mode": f"{clients} client{'s' if clients > 1 else ''}"}
        errors = [block for block in blocks if isinstance(block, str)]
        if errors:
            rows.append(row | {"error": errors[0]})
            continue
        rows.append(row | {name: statistics.median(block[name] for block in blocks)
                           for name in FIGURES})
    eager = next((row.get("rate") for row in rows if row["backend"] == "eager"), None)
    return [row | {"ratio": ratio(row.get("rate"), eager)} for row in rows]


PART = Part(
    "serving",
    "requests of several clients: latency and throughput",
    COLUMNS,
    _measure,
    minutes=(4.5, 1.0),
    keys=("workload", "mode", "backend"),
)
