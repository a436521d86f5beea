"""The rows that lines of random programs are drawn from, and what several families need."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.programs.program import DTYPE_NAMES, reads_of, targets_of


class Rejected(Exception):
    """A line that eager refuses, or that makes values that say nothing."""


@dataclass(frozen=True)
class Row:
    """One kind of line.

    Attributes:
        family: rows of one family are drawn together more often.
        weight: how often it is drawn.
        function: takes a ``Draw``; adds lines to it, or raises ``Rejected``.
    """

    family: str
    weight: int
    function: Callable


ROWS: list[Row] = []


def row(family: str, weight: int = 4):
    """Enters a function as a row."""

    def register(function):
        ROWS.append(Row(family, weight, function))
        return function

    return register


def dtype_of(d, name):
    """The name of a tensor's dtype."""
    return DTYPE_NAMES[d.env[name].dtype]


def a_size(d):
    """A size: mostly one that other tensors have."""
    if d.chance(0.65):
        return d.rng.choice(d.dims)
    return d.rng.choice((1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 130))


def small(d, most=8):
    """A size from 1 to ``most``, small ones more often."""
    return min(d.rng.randint(1, most), d.rng.randint(1, most))


def operand(d, sizes, dtype, kinds="xxwwb", fill=""):
    """A tensor of these sizes in some memory layout: one that there is, or a new one."""
    sizes = tuple(sizes)
    found = d.tensors(lambda t: t.shape == sizes and DTYPE_NAMES[t.dtype] == dtype)
    if found and not fill and d.chance(0.5):
        return d.rng.choice(found)
    base, text = sizes, ""
    if d.chance(0.5):
        base, text = _another_layout(d, list(sizes))
    x = d.fresh(base, dtype, fill, kinds)
    return d.emit(text.format(x=x))[0] if text else x


def _another_layout(d, sizes):
    """Sizes of a tensor, and the text that makes of it one of ``sizes``."""
    rank = len(sizes)
    if rank == 0:
        return (3,), "{x}[1]"
    kind = d.rng.choice(("permuted", "permuted", "stepped", "stepped", "offset", "expanded",
                         "computed", "selected", "overlapping", "flat", "transposed"))
    dim = d.rng.randrange(rank)
    base, head = list(sizes), ":, " * dim
    if kind in ("permuted", "transposed") and rank > 1:
        order = d.rng.sample(range(rank), rank)
        if kind == "transposed":
            order = [*range(rank - 2), rank - 1, rank - 2]
        for i, from_ in enumerate(order):
            base[from_] = sizes[i]
        return base, "{x}.mT" if kind == "transposed" else f"{{x}}.permute({order})"
    if kind == "stepped":
        base[dim] *= (step := d.rng.randint(2, 3))
        return base, f"{{x}}[{head}::{step}]"
    if kind == "offset":
        base[dim] += 2
        return base, f"{{x}}[{head}1:{sizes[dim] + 1}]"
    if kind == "expanded":
        base[dim] = 1
        return base, f"{{x}}.expand({sizes})"
    if kind == "selected":
        return [3, *sizes], f"{{x}}[{d.rng.randint(-3, 2)}]"
    if kind == "overlapping" and rank > 1 and sizes[-1]:
        return [*sizes[:-2], sizes[-2] + sizes[-1] - 1], f"{{x}}.unfold(-1, {sizes[-1]}, 1)"
    if kind == "flat" and 0 not in sizes:
        count = 1
        for size in sizes:
            count *= size
        return [count], f"{{x}}.view({sizes})"
    return base, "{x} * 1"


def fixed_statistics(d, sizes, dtype) -> str:
    """Mean and variance for a batch norm in evaluation, as text. Eager's gradients of its weight
    read other memory of statistics with steps."""
    mean, variance = d.fresh(sizes, dtype, "", "b"), d.fresh(sizes, dtype, "positive", "b")
    return f"{mean}.contiguous(), {variance}.contiguous()"


def finite(d, name):
    """A tensor without infinities and NaN, in other calls too; others are rejected."""
    special = {s.name for s in d.sources if s.fill == "special"}
    for line in d.lines:  # what is computed from it, or changed by it
        if special.intersection(reads_of(line)):
            special.update(targets_of(line) or reads_of(line)[:1])
    if name in special or not d.env[name].isfinite().all():
        raise Rejected
    return name
