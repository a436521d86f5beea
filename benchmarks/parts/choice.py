"""What choosing algorithms by measuring is worth: ``python -m benchmarks choice``.

Encoders, products and convolutions beside ATen: once with the algorithms that are measured on this
machine, once with those that have the least estimated cost (``POPTORCH_MEASURE=0``).
"""

import os
import statistics
from unittest import mock

import torch
from torch import nn

import poptorch
from benchmarks import convolution_problems, gemm_problems
from benchmarks.beside_aten import QUICK_STEP, medians_us, seconds
from benchmarks.part import Part, ratio
from benchmarks.parts import convolutions, gemm
from benchmarks.table import Column

COLUMNS = [
    Column("kind", "kind", "", -12),
    Column("problem", "problem", "", -52),
    Column("algorithm", "algorithm", "", -60),
    Column("aten_us", "ATen us", ".1f"),
    Column("us", "ours us", ".1f"),
    Column("over_aten", "of ATen's"),
    Column("estimated_us", "by estimates us", ".1f"),
    Column("estimated_over_aten", "of ATen's"),
]
STEP = 5  # one of so many products and convolutions
MOST_PRODUCTS = 3e8  # of a convolution: larger ones take long and are chosen alike

# (name, batch, tokens, features, heads, layers)
ENCODERS = [("ViT-S/16", 4, 197, 384, 6, 4), ("BERT base", 4, 128, 768, 12, 2),
            ("BERT small", 1, 128, 512, 8, 4)]


class Encoder:
    """An encoder of PyTorch's own layers, for inference; its attention is SDPA."""

    def __init__(self, batch, tokens, features, heads, layers):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(features, heads, 4 * features, 0.0, "gelu",
                                           batch_first=True, norm_first=True)
        self.net = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()
        self.x = torch.randn(batch, tokens, features)

    def eager(self):
        """A call of the module."""
        with torch.no_grad():
            self.net(self.x)

    def compiled(self):
        """A function that calls the compiled module, and the algorithms of its products."""
        options = poptorch.Options().showCompilationProgressBar(False)
        model = poptorch.inferenceModel(self.net, options)
        model(self.x)
        ops = model.op_report(algorithms=True)["forward"]
        names = sorted(name.partition("[")[2][:-1] for name in ops if name.startswith("addmm"))
        return lambda: model(self.x), "; ".join(names)


def by_estimates():
    """While it holds, nothing is measured."""
    return mock.patch.dict(os.environ, POPTORCH_MEASURE="0")


def encoder_row(name, *sizes):
    """The row of an encoder."""
    encoder = Encoder(*sizes)
    run, algorithm = encoder.compiled()
    with by_estimates():
        run_estimated, _ = encoder.compiled()
    calls = [run, encoder.eager, run_estimated]
    once_s = max(min(seconds(call) for _ in range(3)) for call in calls)
    us, aten_us, estimated_us = medians_us(
        [lambda count, call=call: seconds(call, count) for call in calls], once_s)
    return row_of("encoder", name, {"us": us, "aten_us": aten_us, "algorithm": algorithm},
                  {"us": estimated_us, "aten_us": aten_us})


def row_of(kind, problem, measured, estimated):
    """A row of what the two ways gave."""
    return {"kind": kind, "problem": problem, "algorithm": measured["algorithm"],
            "aten_us": measured["aten_us"], "us": measured["us"],
            "over_aten": ratio(measured["us"], measured["aten_us"]),
            "estimated_us": estimated["us"],
            "estimated_over_aten": ratio(estimated["us"], estimated["aten_us"])}


def both(measure):
    """What is measured with and without measuring algorithms."""
    measured = measure()
    with by_estimates():
        return measured, measure()


def cases():
    """(kind, name, function that gives the row)."""
    threads = torch.get_num_threads()
    every = [("encoder", name, lambda name=name, sizes=sizes: encoder_row(name, *sizes))
             for name, *sizes in ENCODERS]
    for problem in gemm_problems.every_problem()[::STEP]:
        if problem.dtype in ("f32", "f16", "bf16"):
            name = f"{problem.source} {problem.form} {problem.name()} {problem.dtype}"
            every.append(("product", name, lambda p=problem, name=name: row_of(
                "product", name, *both(lambda: gemm.measured(p, threads)))))
    for problem in convolution_problems.every_problem()[::STEP]:
        layer, direction, layout = problem
        if layer.products() <= MOST_PRODUCTS:
            name = f"{layer.name} of {layer.batch} {direction} {layout}"
            every.append(("convolution", name, lambda p=problem, name=name: row_of(
                "convolution", name, *both(lambda: convolutions.measured(p)))))
    return every


def _measure(plan):
    every = cases()
    for _, name, row in plan.pace.each(every[::QUICK_STEP] if plan.quick else every):
        plan.pace.tell(name)
        yield [row()]


def conclude(rows):
    """For each kind the median and the worst time beside ATen's, measured and by estimates."""
    lines = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        for key, words in (("over_aten", "measured"), ("estimated_over_aten", "by estimates")):
            ratios = {row["problem"]: row[key] for row in rows if row["kind"] == kind}
            worst = max(ratios, key=ratios.get)
            lines.append(f"{kind}, {words}: {statistics.median(ratios.values()):.2f} of ATen's "
                         f"time (median of {len(ratios)}; worst {worst}: {ratios[worst]:.2f})")
    return lines


PART = Part("choice", "algorithms chosen by measuring and by estimates, beside ATen", COLUMNS,
            _measure, conclude, minutes=(6.0, 0.6), keys=("kind", "problem"))
