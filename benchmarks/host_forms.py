"""The forms in which the host runs replicas and micro-batches, beside each other.

    python -m benchmarks.host_forms [workload ...] [--rounds 12]

Each workload trains with micro-batches and with two replicas, and infers with device iterations.
The forms are timed alternately in one process. A row has the median time of a call in turn, and how
many times as fast the other forms are (``-``: the form does not apply). ``chosen`` is the form that
a program takes without POPTORCH_HOST. On a machine that does other work, too, the figures say
little.
"""

import argparse
import os
import statistics
import time

import torch

import poptorch
from benchmarks import table, workloads
from benchmarks.table import Column

FORMS = ("inline", "replicas", "micro")
PARTS = 8  # micro-batches; iterations of the device
# Replicas, micro-batches, iterations of the device.
MODES = {"training": (1, PARTS, 1), "2 replicas": (2, 1, 1), "2 replicas, micro": (2, PARTS, 1),
         "inference": (1, 1, PARTS)}
LEAST_S = 0.05  # of a sample
DEFAULT = ("mlp", "convnet", "lstm", "depthwise", "elementwise", "bert-2-layers")
COLUMNS = [table.WORKLOAD, Column("mode", "mode", "", -17), Column("ms", "in turn ms"),
           Column("replicas", "replicas"), Column("micro", "micro"),
           Column("chosen", "chosen", "", -8)]


def made(workload, mode, form):
    """An executor, what calls it, and the form in which it runs."""
    replicas, accumulation, iterations = MODES[mode]
    options = poptorch.Options().showCompilationProgressBar(False)
    options.replicationFactor(replicas).deviceIterations(iterations).broadcastBuffers(False)
    if accumulation > 1:
        options.Training.gradientAccumulation(accumulation)
    torch.manual_seed(0)
    module = workload.network()
    arguments = workload.inputs(workload.batch * replicas * accumulation * iterations)
    os.environ["POPTORCH_HOST"] = form
    if mode == "inference":
        executor = poptorch.inferenceModel(module.eval(), options)
        arguments = arguments[:1]
    else:
        executor = poptorch.trainingModel(
            module.train(), options, workloads.make_optimizer(workload, module.parameters()))
    executor.compile(*arguments)
    return executor, lambda: executor(*arguments), executor._executable.host_form()["form"]


def samples(calls, rounds):
    """Seconds of a call, a list for each, taken alternately."""
    counts = {}
    for form, call in calls.items():
        call()
        begin = time.perf_counter()
        call()
        counts[form] = max(1, int(LEAST_S / (time.perf_counter() - begin)))
    found = {form: [] for form in calls}
    for number in range(rounds):
        for form in list(calls)[::1 if number % 2 else -1]:
            begin = time.perf_counter()
            for _ in range(counts[form]):
                calls[form]()
            found[form].append((time.perf_counter() - begin) / counts[form])
    return found


def row_of(workload, mode, rounds):
    """A row of the table."""
    executors = {form: made(workload, mode, form) for form in FORMS}
    calls = {form: call for form, (_, call, taken) in executors.items() if taken == form}
    found = samples(calls, rounds)
    row = {"workload": workload.name, "mode": mode,
           "ms": 1000 * statistics.median(found["inline"]),
           "chosen": made(workload, mode, "")[2]}
    for form in found.keys() - {"inline"}:
        row[form] = statistics.median(
            one / other for one, other in zip(found["inline"], found[form], strict=True))
    return row


def main():
    """Prints the table as it is measured."""
    parser = argparse.ArgumentParser("python -m benchmarks.host_forms", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=DEFAULT, metavar="workload")
    parser.add_argument("--rounds", type=int, default=12, help="samples of each form")
    given = parser.parse_args()
    print(table.head(COLUMNS))
    for name in given.workloads:
        for mode in MODES:
            print(table.row_line(COLUMNS, row_of(workloads.find(name), mode, given.rounds)),
                  flush=True)


if __name__ == "__main__":
    main()
