"""The snapshot for PyTorch's memory viewer, read with the functions of torch that feed it."""

import pickle
from collections import Counter

import pytest
from torch.cuda import _memory_viz

from tests.reports.device.test_report import Net, training


@pytest.fixture(scope="module")
def report():
    return training(net=Net(8192)).report()


def read(report, folder):
    report.to_memory_snapshot(folder / "memory.pickle")
    with open(folder / "memory.pickle", "rb") as file:
        return pickle.load(file)


def test_pytorch_reads_it(report, tmp_path):
    snapshot = read(report, tmp_path)
    assert "MEM[" in _memory_viz.trace(snapshot)
    assert _memory_viz.segsum(snapshot) and _memory_viz.trace_plot(snapshot)
    names = {block["frames"][0]["name"] for segment in snapshot["segments"]
             for block in segment["blocks"]}
    assert {"first.weight", "second.weight"} <= names


def test_memory_at_the_peak(report, tmp_path):
    """What is allocated while the operation of the peak runs is what the report has there."""
    for ipu, events in zip(report.tile_memory.ipus, read(report, tmp_path)["device_traces"],
                           strict=True):
        held, most = Counter(), 0
        for event in events:
            if event["action"] == "alloc":
                assert not held[event["addr"]]
                held[event["addr"]] = event["size"]
            else:
                assert held[event["addr"]] == event["size"]
                del held[event["addr"]]
            most = max(most, held.total())
        steps = [sum(step.live.values()) + step.temporary for step in ipu.steps]
        assert 0.95 * max(steps) <= most <= max(steps)
