"""Prints results as a table and writes them to a file."""

import json
import math
from dataclasses import asdict
from pathlib import Path

from benchmarks import backends

HEAD = (
    f"{'workload':14} {'mode':5} {'backend':14} {'step ms':>10} {'speed-up':>9} "
    f"{'first call s':>13} {'peak MiB':>9} {'clean':>9}"
)


def print_rows(results):
    """One row a backend; the speed-up is over the first backend that has a result."""
    base = next((r for r in results if not r.error), None)
    for r in results:
        name = f"{r.workload:14} {r.mode:5} {r.backend:14}"
        if r.error:
            print(f"{name} failed: {r.error[:90]}")
            continue
        ratio = base.median_ms() / r.median_ms()
        clean = f"{r.undisturbed()}/{len(r.samples)}"
        print(
            f"{name} {r.median_ms():10.3f} {ratio:8.2f}x {r.first_call_s:13.2f} "
            f"{r.peak_mb:9.0f} {clean:>9}",
            flush=True,
        )


def print_means(groups):
    """Geometric means of poptorch's speed-up over each other backend, by mode."""
    for mode in ("train", "infer"):
        ratios = {}
        for results in groups:
            good = {r.backend: r.median_ms() for r in results if r.mode == mode and not r.error}
            for name, time_ms in good.items():
                if name != backends.OURS and backends.OURS in good:
                    ratios.setdefault(name, []).append(time_ms / good[backends.OURS])
        for name, values in ratios.items():
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(
                f"{mode}: {backends.OURS} is {mean:.2f} times as fast as {name} "
                f"(geometric mean of {len(values)}; worst {min(values):.2f})"
            )


def write(groups, machine, path):
    """All samples as JSON."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(result) for results in groups for result in results]
    path.write_text(json.dumps({"machine": machine, "results": rows}, indent=1))
    print(f"wrote {path}")
