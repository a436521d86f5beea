"""One backend in a process of its own, controlled by lines of JSON on standard input."""

import dataclasses
import json
import math
import statistics
import sys
import time

import torch

from benchmarks import backends, servers
from benchmarks.clocks import cpu, memory_mb, reset_peak, waiting_ns
from benchmarks.setting import Setting

SAMPLE_S = 0.02  # a sample lasts at least this long, so that reading the clocks costs nothing
TINY = "mlp"
STEADY_CALLS = 5
LONG_S = 1.0  # a call that takes as long needs no other to warm up, and is a sample by itself
SMALLEST_NORMAL = torch.finfo(torch.float32).tiny


class Worker:
    """Holds the call, and answers the parent's commands."""

    def __init__(self, setting):
        self.setting, self.base_mb = setting, memory_mb("VmRSS")
        self.last_s = 0.0  # how long the last call has taken
        self.server = None

    def ready(self):
        """Processor time of the imports."""
        return {"imports_user_s": cpu().user_s}

    def load(self):
        """Runs a tiny network, so that what is imported late does not count as its own."""
        tiny = dataclasses.replace(self.setting, workload=TINY)
        run = backends.make_run(tiny)
        run.prepare()
        run.call()
        self.base_mb = memory_mb("VmRSS")
        return {}

    def _make(self):
        self.job = backends.make_job(self.setting)
        self.run = backends.find(self.setting.backend).make(self.job)
        self.steps = 1 if self.run.floor else self.job.workload.device_iterations

    def setup(self):
        """The first call: wall time, processor time of compiling and of running; peak memory."""
        self._make()
        start = time.perf_counter()
        begin = cpu()
        self.run.prepare()
        compiled = cpu()
        self.run.call()
        done = cpu()
        return {
            "first_call_s": time.perf_counter() - start,
            "compile_user_s": (compiled - begin).user_s,
            "first_run_user_s": (done - compiled).user_s,
            "first_call_system_s": (done - begin).system_s,
            "first_peak_mb": memory_mb("VmHWM") - self.base_mb,
        }

    def steady_cpu(self):
        """User time of a call after the first one, the median of a few; of two if it is long."""
        spent_s = []
        while len(spent_s) < (STEADY_CALLS if sum(spent_s) < LONG_S else 2):
            begin = cpu()
            self.run.call()
            spent_s.append((cpu() - begin).user_s)
        return {"steady_user_s": statistics.median(spent_s)}

    def compiled_graphs(self):
        """How many graphs torch.compile has compiled in this process: none of recurrent layers."""
        return {"compiled_graphs": torch._dynamo.utils.counters["stats"]["unique_graphs"]}

    def warm(self):
        """Two more calls, or a long one; memory from here on is that of steady state."""
        for _ in range(2):
            if self.last_s < LONG_S:
                self._timed_call()
        reset_peak()
        return {}

    def block(self, seconds, at_least):
        """Runs for some time; gives (step time in ms, share of it spent waiting for a core)."""
        call = self.run.call
        if self.last_s < LONG_S:
            self._timed_call()  # warms up
        if self.last_s < SAMPLE_S:
            self._timed_call()
        repeat = max(1, math.ceil(SAMPLE_S / self.last_s))
        at_least = at_least if self.last_s < LONG_S else 1
        samples, begin = [], time.perf_counter()
        while len(samples) < at_least or time.perf_counter() - begin < seconds:
            waited, start = waiting_ns(), time.perf_counter_ns()
            for _ in range(repeat):
                call()
            spent_ns = time.perf_counter_ns() - start
            share = (waiting_ns() - waited) / spent_ns
            samples.append((spent_ns / 1e6 / repeat / self.steps, share))
        return {"samples": samples}

    def _timed_call(self):
        start = time.perf_counter()
        self.run.call()
        self.last_s = time.perf_counter() - start

    def memory(self):
        """Peak of steady state over what the imports took, in MiB."""
        return {"peak_mb": memory_mb("VmHWM") - self.base_mb}

    def growth(self, calls, seconds):
        """What the process has grown by in so many calls, or as many as the time allows, in MiB."""
        self._timed_call()
        calls = max(1, min(calls, int(seconds / 1.1 / self.last_s)))
        for _ in range(calls // 10):
            self.run.call()
        before = memory_mb("VmRSS")
        for _ in range(calls):
            self.run.call()
        return {"growth_mb": memory_mb("VmRSS") - before, "growth_calls": calls}

    def tensors(self):
        """MiB of a step's activations, gradients and scratch when they are most."""
        if self.run.executor is None:
            return {"tensors_mb": _most_allocated(self.job.module, self.run.call) / 2**20}
        report = self.run.executor.memory_report()
        return {"tensors_mb": sum(report[k] for k in STEP_MEMORY) / 2**20, "report": report}

    def denormals(self):
        """Share of the gradients' elements that are denormal: they would slow PyTorch down."""
        parameters = list(self.job.module.parameters())
        gradients = [p.grad.float() for p in parameters if p.grad is not None]
        count = sum(int(((g != 0) & (g.abs() < SMALLEST_NORMAL)).sum()) for g in gradients)
        return {"denormals": count / max(1, sum(g.numel() for g in gradients))}

    def losses(self, steps):
        """The loss of each of the first so many steps."""
        self._make()
        losses = []
        for _ in range(steps):
            result = self.run.call()
            losses.append(float(result[1] if isinstance(result, tuple | list) else result))
        return {"losses": losses}

    def floor(self):
        """The products of a step: totals, and a row for each distinct one."""
        return {"totals": self.run.floor.totals(), "rows": self.run.floor.rows()}

    def dispatch_us(self):
        """Time that calling the products from Python takes, without what they compute."""
        return {"dispatch_us": self.run.floor.dispatch_us()}

    def profile(self, calls):
        """The ops of our program while it runs so many calls, in ms for each step."""
        executable = self.run.executor._executable
        executable.set_profiling(True)
        for _ in range(calls):
            self.run.call()
        rows = executable.profile()
        executable.set_profiling(False)
        return {"rows": rows, "steps": calls * self.steps}

    def serve(self, way, clients, seconds):
        """Latencies and throughput of requests for some time; see :class:`servers.Server`."""
        self.server = self.server or servers.Server(self.setting)
        return self.server.block(way, clients, seconds)

    def close_clients(self):
        """Frees what the last number of clients needed."""
        self.server.close_clients()
        return {}

    def python_us(self, calls):
        """Time of a call outside of the engine, in us."""
        executable, outside = self.run.executor._executable, []
        for _ in range(calls):
            start = time.perf_counter_ns()
            self.run.call()
            wall = time.perf_counter_ns() - start
            stamps = executable.timestamps()
            outside.append(wall - (stamps[-1][1] - stamps[0][0]))
        return {"python_us": statistics.median(outside) / 1e3}


STEP_MEMORY = ("activations", "gradients", "scratch")


def _most_allocated(module, call):
    """The most bytes that tensors took during a call of the module, beyond those before it.

    Without those of the results, whether or not the caller keeps them.
    """
    call()
    kept = []  # so that no other tensor gets the memory of a result
    hook = module.register_forward_hook(lambda *given: kept.extend(_storages(given[-1])))
    with torch.profiler.profile(profile_memory=True, acc_events=True) as profile:
        call()
    hook.remove()
    tree = profile.profiler.kineto_results.experimental_event_tree()
    changes = sorted(_allocations(tree), key=lambda event: event[0])
    last = {place: index for index, (_, place, _) in enumerate(changes)}
    results = {last.get(storage.data_ptr()) for storage in kept}
    held, now, most = {}, 0, 0
    for index, (_, place, change) in enumerate(changes):
        if change < 0:
            now -= held.pop(place, 0)  # 0: a result, or one from before, as the last gradients
        elif index not in results:
            held[place] = change
            now += change
        most = max(most, now)
    return most


def _storages(result):
    """Of the tensors of a result, which may be a tuple of results."""
    if isinstance(result, torch.Tensor):
        return [result.untyped_storage()]
    return [storage for part in result for storage in _storages(part)]


def _allocations(events):
    """The time, address and bytes, negative when freed, of each allocation."""
    for event in events:
        if event.tag.name == "Allocation":
            yield event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size
        yield from _allocations(event.children)


def main():
    """Serves commands until the input ends; each answer is one line."""
    setting = Setting.parse(sys.argv[1])
    answers, sys.stdout = sys.stdout, sys.stderr
    if setting.threads:
        torch.set_num_threads(setting.threads)
    if setting.backend == backends.OURS:
        import poptorch  # noqa: F401  belongs to the imports
    torch.randn(8, 8) @ torch.randn(8, 8)  # the thread pool and MKL do, too
    worker = Worker(setting)
    for line in sys.stdin:
        command = json.loads(line)
        result = getattr(worker, command.pop("do"))(**command)
        print(json.dumps(result), file=answers, flush=True)
    if worker.server:
        worker.server.close()


if __name__ == "__main__":
    main()
