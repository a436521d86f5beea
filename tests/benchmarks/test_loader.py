"""The part of the benchmark on data loading."""

import math
import time

import pytest
import torch

from benchmarks.parts import loader


def test_samples():
    torch.manual_seed(0)
    start = time.thread_time()
    picture, label = loader.Images(decode_ms=20.0)[11]
    assert time.thread_time() - start >= 0.02
    assert picture.shape == (3, loader.SIDE, loader.SIDE) and label == 1
    assert picture.dtype is torch.float32 and picture.abs().max() <= 2


def test_time_that_the_model_waits():
    def slow():
        for _ in range(3):
            time.sleep(0.02)
            yield [torch.zeros(4)]

    class Loader:
        def __iter__(self):
            return slow()

    rate, idle = loader.timed(lambda x: time.sleep(0.02), Loader(), 0.2)
    assert 0 < rate < 4 / 0.04 and 0.05 < idle < 0.95


def test_rows():
    found = {"torch": [(1.0, 0.0), (100.0, 0.5)], "async": [(1.0, 0.0), (150.0, 0.1)]}
    rows = loader._rows(2.0, 1, found)
    assert [(row["rate"], row["idle"]) for row in rows] == [(100.0, 0.5), (150.0, 0.1)]
    assert rows[1]["ratio"] == pytest.approx(1.5) and rows[0]["workload"] == "decode 2 ms"
    assert not any(math.isnan(row["ratio"]) for row in rows)
