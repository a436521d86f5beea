"""The forms in which the host runs replicas, micro-batches and stages, beside each other.

Each workload trains with micro-batches and with two replicas, infers with device iterations, and
does both as a pipeline of two stages. The forms are timed alternately in this process. A row has
the median time of a call in turn, and how many times as fast the other forms are. ``chosen`` is the
form that a program takes without POPTORCH_HOST.
"""

import os
import statistics
import time
from contextlib import contextmanager

import torch

import poptorch
from benchmarks import workloads
from benchmarks.part import Part
from benchmarks.table import WORKLOAD, Column

FORMS = ("inline", "replicas", "micro", "stages", "literal")
PARTS = 8  # micro-batches; iterations of the device
# Replicas, micro-batches, iterations of the device, stages.
MODES = {"training": (1, PARTS, 1, 1), "2 replicas": (2, 1, 1, 1),
         "2 replicas, micro": (2, PARTS, 1, 1), "inference": (1, 1, PARTS, 1),
         "training, 2 stages": (1, PARTS, 1, 2), "inference, 2 stages": (1, 1, PARTS, 2)}
LEAST_S = 0.05  # of a sample
SAMPLES = 2  # in each round, of each form
DEFAULT = ("mlp", "convnet", "lstm", "depthwise", "elementwise", "bert-2-layers")
COLUMNS = [WORKLOAD, Column("mode", "mode", "", -19), Column("ms", "in turn ms"),
           *(Column(form, form) for form in FORMS[1:]), Column("chosen", "chosen", "", -8)]


@contextmanager
def host_form(name):
    """POPTORCH_HOST has a value for a while."""
    before = os.environ.get("POPTORCH_HOST")
    os.environ["POPTORCH_HOST"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["POPTORCH_HOST"]
        else:
            os.environ["POPTORCH_HOST"] = before


def cut(module):
    """Puts the second half of the layers, by their number, on a second IPU."""
    layers = [layer for layer in module.modules() if not list(layer.children())]
    poptorch.BeginBlock(layers[len(layers) // 2], "second", ipu_id=1)


def made(workload, mode, form):
    """An executor, what calls it, and the form in which it runs."""
    replicas, accumulation, iterations, stages = MODES[mode]
    options = poptorch.Options().showCompilationProgressBar(False)
    options.replicationFactor(replicas).deviceIterations(iterations).broadcastBuffers(False)
    if accumulation > 1:
        options.Training.gradientAccumulation(accumulation)
    torch.manual_seed(0)
    module = workload.network()
    if stages > 1:
        cut(module)
    arguments = workload.inputs(workload.batch * replicas * accumulation * iterations)
    if mode.startswith("inference"):
        executor = poptorch.inferenceModel(module.eval(), options)
        arguments = arguments[:1]
    else:
        executor = poptorch.trainingModel(
            module.train(), options, workloads.make_optimizer(workload, module.parameters()))
    with host_form(form):
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
    chosen, _, form = made(workload, mode, "")
    row = {"workload": workload.name, "mode": mode, "chosen": form,
           "ms": 1000 * statistics.median(found["inline"])}
    for form in found.keys() - {"inline"}:
        row[form] = statistics.median(
            one / other for one, other in zip(found["inline"], found[form], strict=True))
    for executor in [chosen, *(executor for executor, *_ in executors.values())]:
        executor.destroy()
    return row


def _measure(plan):
    named = plan.workloads if plan.is_chosen else [workloads.find(name) for name in DEFAULT]
    for workload, mode in plan.pace.each([(one, mode) for one in named for mode in MODES]):
        yield [row_of(workload, mode, SAMPLES * plan.rounds)]


PART = Part("host-forms", "forms in which the host runs replicas, micro-batches and stages",
            COLUMNS, _measure, minutes=(3.0, 1.0))
