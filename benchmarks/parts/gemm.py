"""Matrix products one by one, compared with ATen: ``python -m benchmarks gemm``.

Of ours the kernel's time by its profile counts, of ATen's the call's. A product is a program of its
own, so that its algorithm is the one that compilation chooses.
"""

import re

import torch

from benchmarks.beside_aten import (
    BLOCK_S,
    BLOCKS,
    conclusions,
    kernel_s,
    measured_rows,
    medians_us,
    seconds,
)
from benchmarks.gemm_problems import every_problem
from benchmarks.part import Part, ratio
from benchmarks.table import Column
from poptorch import _C

DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16,
          "bf16": torch.bfloat16, "i32": torch.int32, "i64": torch.int64}
ALGORITHM = re.compile(r"\balgorithm=\"([^\"]*)\"")

COLUMNS = [
    Column("source", "source", "", -30),
    Column("form", "form", "", -10),
    Column("sizes", "m x n x k", "", -22),
    Column("dtype", "dtype", "", -5),
    Column("algorithm", "algorithm", "", -10),
    Column("aten_us", "ATen us", ".1f"),
    Column("us", "ours us", ".1f"),
    Column("gflops", "GF/s", ".1f"),
    Column("ratio", "times as fast"),
]


def _type(dtype, sizes, strides=()):
    text = f"{dtype}[{','.join(map(str, sizes))}]"
    return text + (f"({','.join(map(str, strides))})" if strides else "")


def text_of(problem):
    """The program of a product, of streams ``a``, ``b``, ``bias`` and ``y``."""
    m, n, k, dtype = problem.m, problem.n, problem.k, problem.dtype
    lead = (problem.batch,) if problem.batch > 1 else ()
    lines, names = [], []
    sides = ("a", m, k, problem.turned_a), ("b", k, n, problem.turned_b)
    for name, rows, columns, turned in sides:
        lies = (columns, rows) if turned else (rows, columns)
        lines.append(f'%{name} = stream_in {{stream="{name}"}} : {_type(dtype, lead + lies)}')
        if turned:
            is_line = 1 in (rows, columns)  # it lies by rows as well
            strides = () if is_line else (*(rows * columns,) * len(lead), 1, rows)
            seen = _type(dtype, (*lead, rows, columns), strides)
            lines.append(f"%{name}.t = view %{name} : {seen}")
        names.append(f"%{name}.t" if turned else f"%{name}")
    out = _type(dtype, (*lead, m, n))
    if problem.has_bias:
        lines.append(f'%bias = stream_in {{stream="bias"}} : {_type(dtype, (n,))}')
        lines.append(f"%y = addmm %bias, {', '.join(names)} : {out}")
    else:
        lines.append(f"%y = matmul {', '.join(names)} : {out}")
    return "\n  ".join(["graph main {", *lines, 'stream_out %y {stream="y"}', "output"]) + "\n}\n"


def tensors_of(problem):
    """The operands in their memory layout, and memory for the result, by stream."""
    lead, dtype = (problem.batch,) if problem.batch > 1 else (), DTYPES[problem.dtype]

    def made(*sizes):
        values = torch.randn(sizes) if dtype.is_floating_point else torch.randint(-9, 9, sizes)
        return values.to(dtype)

    m, n, k = problem.m, problem.n, problem.k
    made_of = {"a": made(*lead, *((k, m) if problem.turned_a else (m, k))),
               "b": made(*lead, *((n, k) if problem.turned_b else (k, n)))}
    if problem.has_bias:
        made_of["bias"] = made(n)
    return made_of | {"y": torch.empty((*lead, m, n), dtype=dtype)}


def aten_call(problem, tensors):
    """The product by torch, into memory of its own."""
    a = tensors["a"].mT if problem.turned_a else tensors["a"]
    b = tensors["b"].mT if problem.turned_b else tensors["b"]
    out = torch.empty_like(tensors["y"])
    if problem.has_bias:
        return lambda: torch.addmm(tensors["bias"], a, b, out=out)
    return lambda: torch.matmul(a, b, out=out)


class Ours:
    """The compiled product."""

    def __init__(self, problem, tensors, threads):
        options = {"threads": threads}
        self.executable = _C.compile(_C.parse(text_of(problem)), options)
        self.pointers = [tensors[s.name].data_ptr() for s in self.executable.streams()]
        self.threads, self.tensors = threads, tensors  # kept alive
        found = ALGORITHM.search(self.executable.ir("plan"))
        self.algorithm = found.group(1) if found else None

    def run(self):
        """One product."""
        self.executable.run(self.pointers, self.threads)

    def kernel_s(self, count):
        """Time of its kernel in so many runs."""
        return kernel_s(self.executable, self.run, count, ("matmul", "addmm"))


def measured(problem, threads, blocks=BLOCKS, block_s=BLOCK_S):
    """The row of a product.

    Args:
        problem: the product.
        threads: of each side.
        blocks: as in :func:`beside_aten.medians_us`.
        block_s: the same.
    """
    torch.manual_seed(0)
    tensors = tensors_of(problem)
    ours, aten = Ours(problem, tensors, threads), aten_call(problem, tensors)
    once_s = max(min(seconds(call) for _ in range(3)) for call in (ours.run, aten))
    sides = [ours.kernel_s, lambda count: seconds(aten, count)]
    us, aten_us = medians_us(sides, once_s, blocks, block_s)
    return {"source": problem.source, "form": problem.form, "sizes": problem.name(),
            "dtype": problem.dtype, "algorithm": ours.algorithm, "us": us, "aten_us": aten_us,
            "gflops": problem.flops() / us / 1e3, "ratio": ratio(aten_us, us)}


def _measure(plan):
    yield from measured_rows(plan, every_problem(), lambda problem: problem.name(),
                             lambda problem: measured(problem, torch.get_num_threads()))


def conclude(rows):
    """The means of each type, and how many are slower than ATen."""
    return conclusions(rows, "dtype", lambda row: f"{row['source']} {row['form']} {row['sizes']}")


PART = Part("gemm", "matrix products of published architectures, compared with ATen", COLUMNS,
            _measure, conclude, minutes=(2.0, 0.2), keys=("source", "form", "sizes", "dtype"))
