"""Measures poptorch and PyTorch side by side.

Examples:
    python -m benchmarks                         step times and floors of all workloads
    python -m benchmarks --quick                 smaller networks, under five minutes
    python -m benchmarks --peers                 torch.compile, ONNX Runtime and OpenVINO too
    python -m benchmarks -w bert -w lstm --mode train
    python -m benchmarks memory first-call       other parts; all of them: all
    python -m benchmarks -w lstm --minutes 4     with more samples than its share of the time allows
    python -m benchmarks --switches              what each optimization is worth
    python -m benchmarks all --peers             everything, in about an hour
    python -m benchmarks --report                write the tables in benchmarks/results/
    python -m benchmarks gemm convolutions       single products and convolutions, and ATen's
    python -m benchmarks.kernels                 single kernels, compared with eager

Figures are kept in a file, from which --report takes them: parts may be measured one at a time.
"""

import argparse
import signal
import time
from dataclasses import replace

from tqdm import tqdm

from benchmarks import backends, measure, origins, parts, report, table, workloads
from benchmarks.pace import Pace
from benchmarks.part import Plan, weight
from benchmarks.setting import Setting

QUICK_OUTPUT = "benchmarks/out/quick.json"


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
    add("--minutes", type=float, help="time of each part (default: its own, which it prints)")
    add("--switches", action="store_true", help="the same as the part of this name")
    add("--report", action="store_true", help="write benchmarks/results/ from the kept figures")
    add("--prepare", action="store_true", help="let torch.compile fill its cache, and no more")
    add("--output", help=f"default: {report.FIGURES}, with --quick {QUICK_OUTPUT}")
    add("--list", action="store_true", help="print the parts, workloads and backends")
    return parser.parse_args()


def chosen_parts(args):
    """The parts to measure."""
    names = args.part + (["switches"] if args.switches else [])
    if "all" in names:
        return parts.PARTS
    if not names and not args.report and not args.prepare:
        names = ["speed"]
    return [parts.find(name) for name in names]


def chosen_workloads(args):
    """The workloads to measure, in the order of the table."""
    if args.workload:
        return [workloads.find(name) for name in args.workload]
    return every_workload(args.quick)


def every_workload(is_quick):
    """Those that are measured if none is named."""
    return [
        w
        for w in workloads.WORKLOADS
        if (w.in_quick if is_quick else w.name not in workloads.NOT_IN_FULL)
    ]


def make_plan(args):
    """What the command line selects."""
    return Plan(
        workloads=chosen_workloads(args),
        modes=["train", "infer"] if args.mode == "both" else [args.mode],
        rounds=args.rounds or (3 if args.quick else 6),
        block_s=0.25 if args.quick else 1.0,
        peers=args.peers,
        quick=args.quick,
        backends=tuple(args.backend or ()),
        is_chosen=bool(args.workload),
    )


def show_list():
    """Prints what can be chosen."""
    for part in parts.PARTS:
        print(f"{part.name:14} {part.summary}")
    for workload in workloads.WORKLOADS:
        print(f"{workload.name:14} batch {workload.batch}, {workload.optimizer}")
    print("backends:", ", ".join(backend.name for backend in backends.BACKENDS))


def measure_part(part, plan, store, origin, minutes):
    """Measures a part, prints its rows as they come, and keeps them.

    Args:
        minutes: that it may take; None for its own, less what the workloads left out would take.
    """
    if minutes is None:
        minutes = part.minutes[1 if plan.quick else 0] * share_of_all(plan)
    print(f"\n{part.summary}, in about {minutes:.1f} min\n{table.head(part.columns)}", flush=True)
    rows = []
    with tqdm(desc=part.name, unit="case", leave=False, dynamic_ncols=True) as bar:
        pace = Pace(minutes * 60, bar)
        for group in part.measure(replace(plan, pace=pace)):
            store.add(part.name, group, origin, part.keys)
            rows += group
            with tqdm.external_write_mode():
                for row in group:
                    print(table.row_line(part.columns, row), flush=True)
    for text in part.conclude(rows):
        print(text)


def share_of_all(plan):
    """Share of the time of a whole run that belongs to the chosen workloads and modes."""
    every = sum(weight(workload) for workload in every_workload(plan.quick))
    chosen = sum(weight(workload) for workload in plan.workloads)
    return min(1.0, chosen / every) * len(plan.modes) / 2


def prepare(plan):
    """Lets torch.compile fill its cache with all that 'speed' will use."""
    cases = [
        Setting(workload.name, mode, name)
        for workload, mode in plan.cases()
        for name in plan.backends or backends.suitable(workload, mode, True)
        if name.startswith("compile")
    ]
    for setting in tqdm(cases, desc="prepare", unit="case"):
        with measure.Process(setting) as process:
            process.note("setup")
        if process.result.error:
            print(f"{setting.label()}: {process.result.error}")


def stop(*_):
    """Ends the processes of a run that gets a signal to end, as Ctrl-C does."""
    raise KeyboardInterrupt


def main():
    """Measures, prints a row for each thing measured, and writes files."""
    args = parse_arguments()
    if args.list:
        show_list()
        return
    signal.signal(signal.SIGTERM, stop)
    store = table.Store(args.output or (QUICK_OUTPUT if args.quick else report.FIGURES))
    chosen = chosen_parts(args)
    start, plan = time.perf_counter(), make_plan(args)
    if args.prepare:
        prepare(plan)
    if chosen:
        origin = origins.origin()
        print(f"{origin['machine']}; poptorch {origin['version']}, torch {origin['torch']}")
    try:
        for part in chosen:
            measure_part(part, plan, store, origin, args.minutes)
    except KeyboardInterrupt:
        print(f"interrupted; {store.path} has what was measured until then")
        raise SystemExit(130) from None
    if chosen:
        print(f"measured in {time.perf_counter() - start:.0f} s; wrote {store.path}")
    if args.report:
        print(f"wrote {report.write(store)}")


if __name__ == "__main__":
    main()
