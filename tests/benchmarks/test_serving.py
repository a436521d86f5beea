"""The part of the benchmark on serving."""

import time
from dataclasses import dataclass, field

import pytest
import torch

from benchmarks import backends, servers, workloads
from benchmarks.part import Plan
from benchmarks.parts import serving
from benchmarks.setting import Setting


def test_figures():
    first, second = [1.0] * 98, [10.0, 30.0]
    found = servers.figures([first, second])
    assert (found["p50"], found["p90"], found["p99"]) == (1.0, 1.0, 10.0)
    assert found["rate"] == pytest.approx(1000 + 50)


def test_clients_call_at_the_same_time():
    clients = servers.Threads([lambda: time.sleep(0.02)] * 4)
    latencies = clients.measure(0.2)
    assert len(latencies) == 4 and all(latency >= 20 for one in latencies for latency in one)
    assert sum(map(len, latencies)) > 0.2 / 0.02


def test_the_error_of_a_client_is_raised():
    calls = []

    def fail():
        calls.append(1)
        if len(calls) > servers.WARM_CALLS:
            raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        servers.Threads([fail]).measure(0.1)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


@pytest.mark.parametrize("way", [backends.OURS, servers.EACH, "eager"])
def test_ways(way, threads):
    backend = "eager" if way == "eager" else backends.OURS
    server = servers.Server(Setting("served-mlp", "infer", backend))
    found = server.block(way, 2, 0.05)
    assert set(found) == set(serving.FIGURES) and found["rate"] > 0
    share = threads if way == backends.OURS else max(1, threads // 2)
    assert torch.get_num_threads() == share
    server.close()


@pytest.mark.sampled
def test_processes(threads):
    server = servers.Server(Setting("served-mlp", "infer", backends.OURS))
    assert server.block(servers.PROCESSES, 2, 0.05)["rate"] > 0
    server.close()


@dataclass
class Process:
    """Answers with two figures in turn, or has failed."""

    setting: Setting
    error: str = ""
    asked: list = field(default_factory=list)

    @property
    def result(self):
        return self

    def ask(self, do, **arguments):
        self.asked.append((do, *arguments.values()))
        rate = 100.0 if len(self.asked) % 2 else 300.0
        return {} if self.error else {"p50": 1.0, "p90": 2.0, "p99": 3.0, "rate": rate}


def test_rows():
    workload = workloads.SERVED[0]
    processes = [Process(Setting(workload.name, "infer", "eager")),
                 Process(Setting(workload.name, "infer", "openvino"), "No module named openvino")]
    plan = Plan([], ["infer"], rounds=2, block_s=0.1)
    rows = serving._rows(workload, 8, serving._rounds(plan, processes, 8, 0.0))
    assert rows[0] == {"workload": "served-mlp", "backend": "eager", "mode": "8 clients",
                       "p50": 1.0, "p90": 2.0, "p99": 3.0, "rate": 200.0, "ratio": 1.0}
    assert rows[1]["error"] == "No module named openvino" and rows[1]["ratio"] is None
    assert processes[0].asked[-1] == ("close_clients",)


def test_one_client_needs_no_copies():
    assert serving.ways(backends.OURS, 1) == (backends.OURS,)
    assert serving.ways(backends.OURS, 2) == (backends.OURS, servers.EACH, servers.PROCESSES)
    assert serving.ways("eager", 8) == ("eager",)
