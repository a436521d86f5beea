"""Measures poptorch and PyTorch side by side.

Examples:
    python -m benchmarks                         step times of all workloads, beside their floors
    python -m benchmarks --quick                 smaller networks, under five minutes
    python -m benchmarks --peers                 torch.compile, ONNX Runtime and OpenVINO too
    python -m benchmarks -w bert -w lstm --mode train
    python -m benchmarks memory first-call       other parts; all of them: all
    python -m benchmarks --switches -w resnet50  what each optimization is worth
    python -m benchmarks --report                write docs/internals/performance.md

Figures are kept in a file, from which --report takes them: parts may be measured one at a time.
"""

import argparse
import os
import platform
import time

import torch

from benchmarks import backends, parts, report, table, workloads
from benchmarks.part import Plan


def parse_arguments():
    """The command line."""
    summary, _, examples = __doc__.partition("\nExamples:")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=summary,
        epilog="examples:" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("part", nargs="*", help="what to measure (default: speed); see --list")
    add("-w", "--workload", action="append", help="only this one; may be given several times")
    add("--mode", choices=["train", "infer", "both"], default="both")
    add("--backend", action="append", help="only this one; may be given several times")
    add("--peers", action="store_true", help="measure backends that compile for minutes, too")
    add("--quick", action="store_true", help="few and small workloads, short blocks")
    add("--rounds", type=int, help="blocks for each backend (default: 6, with --quick 3)")
    add("--switches", action="store_true", help="the same as the part of this name")
    add("--report", action="store_true", help="write the document from what has been measured")
    add("--output", default="benchmarks/out/latest.json", help="default: %(default)s")
    add("--list", action="store_true", help="print the parts, workloads and backends")
    return parser.parse_args()


def chosen_parts(args):
    """The parts to measure."""
    names = args.part + (["switches"] if args.switches else [])
    if "all" in names:
        return parts.PARTS
    return [parts.find(name) for name in names or ([] if args.report else ["speed"])]


def chosen_workloads(args):
    """The workloads to measure, in the order of the table."""
    if args.workload:
        return [workloads.find(name) for name in args.workload]
    return [
        w
        for w in workloads.WORKLOADS
        if (w.in_quick if args.quick else w.name not in workloads.ONLY_QUICK)
    ]


def make_plan(args):
    """What the command line asks for."""
    return Plan(
        workloads=chosen_workloads(args),
        modes=["train", "infer"] if args.mode == "both" else [args.mode],
        rounds=args.rounds or (3 if args.quick else 6),
        block_s=0.25 if args.quick else 1.0,
        peers=args.peers,
        quick=args.quick,
        backends=tuple(args.backend or ()),
    )


def describe_machine():
    """What the figures depend on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
    }


def _processor():
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()


def show_list():
    """Prints what can be chosen."""
    for part in parts.PARTS:
        print(f"{part.name:14} {part.summary}")
    for workload in workloads.WORKLOADS:
        print(f"{workload.name:14} batch {workload.batch}, {workload.optimizer}")
    print("backends:", ", ".join(backend.name for backend in backends.BACKENDS))


def measure_part(part, plan, store, machine):
    """Measures a part, prints its rows as they come, and keeps them."""
    print(f"\n{part.summary}\n{table.head(part.columns)}", flush=True)
    rows = []
    for group in part.measure(plan):
        store.add(part.name, group, machine)
        rows += group
        for row in group:
            print(table.row_line(part.columns, row), flush=True)
    for text in part.conclude(rows):
        print(text)


def main():
    """Measures, prints a row for each thing measured, and writes files."""
    args = parse_arguments()
    if args.list:
        show_list()
        return
    machine, store = describe_machine(), table.Store(args.output)
    start, chosen = time.perf_counter(), chosen_parts(args)
    if chosen:
        print(", ".join(f"{key} {value}" for key, value in machine.items()))
    for part in chosen:
        measure_part(part, make_plan(args), store, machine)
    if chosen:
        print(f"measured in {time.perf_counter() - start:.0f} s; wrote {args.output}")
    if args.report:
        print(f"wrote {report.write(store)}")


if __name__ == "__main__":
    main()
