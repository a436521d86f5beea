"""The part 'choice': its rows, for each kind of problem, and its lines."""

import os

import pytest

from benchmarks.parts import choice


@pytest.fixture(autouse=True)
def measures(monkeypatch, tmp_path):
    monkeypatch.setenv("POPTORCH_MEASURE", "1")
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path))


@pytest.mark.sampled
def test_the_row_of_an_encoder():
    row = choice.encoder_row("small", 4, 128, 512, 8, 1)
    assert row["kind"] == "encoder" and "measured" in row["algorithm"]
    assert min(row["us"], row["aten_us"], row["estimated_us"]) > 0
    assert row["over_aten"] == row["us"] / row["aten_us"]


def test_estimates_are_without_measuring():
    seen = choice.both(lambda: os.environ["POPTORCH_MEASURE"])
    assert seen == ("1", "0")


def test_cases_have_distinct_names():
    names = [(kind, name) for kind, name, _ in choice.cases()]
    assert len(set(names)) == len(names) > 50
    assert {kind for kind, _ in names} == {"encoder", "product", "convolution"}


def test_lines():
    rows = [{"kind": "product", "problem": name, "over_aten": ours, "estimated_over_aten": 2 * ours}
            for name, ours in (("a", 0.5), ("b", 0.7), ("c", 0.9))]
    assert choice.conclude(rows) == [
        "product, measured: 0.70 of ATen's time (median of 3; worst c: 0.90)",
        "product, by estimates: 1.40 of ATen's time (median of 3; worst c: 1.80)",
    ]
