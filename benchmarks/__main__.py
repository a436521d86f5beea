"""Measures poptorch and PyTorch side by side.

Examples:
    python -m benchmarks                         all workloads, training and inference
    python -m benchmarks --quick                 smaller networks, under five minutes
    python -m benchmarks --peers                 torch.compile too (it compiles for minutes)
    python -m benchmarks -w bert -w lstm --mode train
"""

import argparse
import os
import platform
import time

import torch

from benchmarks import backends, measure, table, workloads

QUICK_PEERS = {"mlp", "convnet"}  # torch.compile takes too long on the others for --quick


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
    add("-w", "--workload", action="append", help="only this one; may be given several times")
    add("--mode", choices=["train", "infer", "both"], default="both")
    add("--backend", action="append", help="only this one; may be given several times")
    add("--peers", action="store_true", help="measure torch.compile too")
    add("--quick", action="store_true", help="few and small workloads, short blocks")
    add("--rounds", type=int, help="blocks for each backend (default: 6, with --quick 4)")
    add("--output", default="benchmarks/out/latest.json", help="default: %(default)s")
    add("--list", action="store_true", help="print the workloads and backends")
    return parser.parse_args()


def chosen_workloads(args):
    """The workloads to measure, in the order of the table."""
    if args.workload:
        return [workloads.find(name) for name in args.workload]
    return [
        w
        for w in workloads.WORKLOADS
        if (w.in_quick if args.quick else w.name not in workloads.ONLY_QUICK)
    ]


def chosen_backends(args, workload):
    """The backends to measure on a workload."""
    if args.backend:
        return args.backend
    peers = args.peers and (not args.quick or workload.name in QUICK_PEERS)
    return backends.USUAL + (backends.PEERS if peers else [])


def describe_machine():
    """What the figures depend on."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
    }


def main():
    """Measures, prints a row for each backend, and the means at the end."""
    args = parse_arguments()
    if args.list:
        for workload in workloads.WORKLOADS:
            print(f"{workload.name:14} batch {workload.batch}, {workload.optimizer}")
        print("backends:", ", ".join([*backends.USUAL, *backends.PEERS]))
        return
    machine = describe_machine()
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    print(table.HEAD)
    rounds = args.rounds or (4 if args.quick else 6)
    block_s = 0.4 if args.quick else 1.0
    start, groups = time.perf_counter(), []
    for workload in chosen_workloads(args):
        for mode in ["train", "infer"] if args.mode == "both" else [args.mode]:
            names = chosen_backends(args, workload)
            groups.append(measure.measure(workload, mode, names, rounds, block_s))
            table.print_rows(groups[-1])
    table.print_means(groups)
    print(f"measured in {time.perf_counter() - start:.0f} s")
    table.write(groups, machine, args.output)


if __name__ == "__main__":
    main()
