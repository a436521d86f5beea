"""The part 'gemm': its programs compute what ATen computes, and its rows and lines."""

import pytest
import torch

from benchmarks import report, table
from benchmarks.gemm_problems import Problem, attention, every_problem, linear
from benchmarks.parts import gemm

SMALL = [
    *linear("a layer", 20, 12, 7), *linear("one output", 20, 12, 1), *linear("one row", 1, 12, 7),
    *attention("attention", 3, 9, 11, 5),
    *(Problem("types", "forward", 6, 5, 4, dtype=d, turned_b=True) for d in gemm.DTYPES),
]


@pytest.mark.parametrize("problem", SMALL, ids=lambda p: f"{p.name()} {p.form} {p.dtype}")
def test_both_sides_compute_the_same(problem):
    tensors = gemm.tensors_of(problem)
    expected = torch.empty_like(tensors["y"])
    gemm.Ours(problem, tensors, 1).run()
    a = tensors["a"].mT if problem.turned_a else tensors["a"]
    b = tensors["b"].mT if problem.turned_b else tensors["b"]
    expected = a.double() @ b.double() + (tensors["bias"].double() if problem.has_bias else 0)
    limit = 2e-2 if problem.dtype in ("f16", "bf16") else 1e-5
    torch.testing.assert_close(tensors["y"].double(), expected, rtol=limit, atol=limit)
    assert gemm.aten_call(problem, tensors)().shape == tensors["y"].shape


def test_problems_are_distinct_and_not_too_large():
    problems = every_problem()
    assert len(set(problems)) == len(problems) > 200
    assert max(problem.flops() for problem in problems) < 3e9
    assert len({(p.source, p.form, p.name(), p.dtype) for p in problems}) == len(problems)


def test_a_row_and_its_lines(tmp_path):
    row = gemm.measured(SMALL[0], 1, blocks=2, block_s=1e-4)
    assert row["sizes"] == "20 x 7 x 12"
    assert row["us"] > 0 and row["aten_us"] > 0
    rows = [row | {"ratio": 2.0}, row | {"ratio": 0.5, "form": "of input"}]
    assert gemm.conclude(rows) == [
        "f32: 1.00 times as fast as ATen (geometric mean of 2; worst a layer of input 20 x 7 x 12: "
        "0.50); below 0.95: 1"
    ]
    store = table.Store(tmp_path / "figures.json")
    origin = {"machine": "A", "version": "1"}
    store.add("gemm", rows, origin, gemm.PART.keys)
    assert "| a layer | f32 | 2 | 1.00 | 0.50 | of input 20 x 7 x 12 |" in report.products(
        store, "A")
