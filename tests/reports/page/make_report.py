"""Plausible reports of any size, in the form of ``DeviceReport.to_json``, without a compiler."""

import random

TILES, TILE_BYTES, CLOCK_HZ = 1472, 638_976, 1.33e9
PROGRAM = ["code", "exchange", "vertex_state"]
ALWAYS = ["constants", "parameters", "optimizer", "accumulators"]
# Name of an operation, its FLOPs and its cycles.
OPERATIONS = [("matmul", 2.1e9, 41_000.0), ("add", 1e6, 900.0), ("softmax", 4e6, 5_200.0),
              ("gelu", 8e6, 2_600.0), ("layer_norm", 5e6, 4_100.0), ("transpose", 0.0, 1_500.0),
              ("dropout", 1e6, 1_900.0)]


def make_report(*, ipus=4, ops=120, micro_batches=8, fits=True, seed=0, title="bert.py:Bert"):
    """A pipeline over ``ipus`` IPUs with about ``ops`` operations, forward and backward."""
    draw = random.Random(seed)
    rows = [_op(number, number * ipus // ops, draw) for number in range(ops)]
    rows += [_op(ops + ipu, ipu, draw, part="update") for ipu in range(ipus)]
    chips = [_ipu(ipu, [row for row in rows if row["ipu"] == ipu], fits or ipu != ipus - 1, draw)
             for ipu in range(ipus)]
    timeline = _timeline(ipus, micro_batches)
    cycles = timeline["span"]
    seconds = cycles / CLOCK_HZ
    memory = {name: sum(chip["categories"][name] for chip in chips)
              for name in chips[0]["categories"]}
    return {"format": 1, "title": title, "target": "gc200", "clock_hz": CLOCK_HZ, "tiles": TILES,
            "tile_bytes": TILE_BYTES, "fits": fits, "cycles": cycles,
            "interval": [cycles * 0.88, cycles * 1.15], "seconds": seconds,
            "throughput": micro_batches * 4 * 2 / seconds,
            "host": {"call_seconds": 2.5e-5, "stream_seconds": 0.0011},
            "options": {"device_iterations": 4, "available_memory": {"IPU0": 0.2},
                        "precision": "half"},
            "memory": memory, "ipus": chips, "ops": rows,
            "schedule": {"name": "interleaved", "micro_batches": micro_batches, "tasks": []},
            "timeline": timeline}


def _op(number, ipu, draw, part=None):
    name, flops, cycles = draw.choice(OPERATIONS)
    scale = draw.uniform(0.5, 2)
    layer = number // 24
    part = part or ("forward" if number % 2 == 0 else "backward")
    module = f"encoder.layer.{layer}.{draw.choice(['attention.self', 'output.dense', 'norm'])}"
    return {"id": number, "graph": "main", "op": name if part != "backward" else f"{name}_grad",
            "result": f"%{number}", "shape": "f16[4,128,1024]", "module": module,
            "location": f"bert.py:{40 + number % 180}", "task": f"stage{ipu}.{part}", "ipu": ipu,
            "part": part, "runs": 8 if part != "update" else 1, "compute": cycles * scale,
            "exchange": 0.2 * cycles * scale, "sync": 150.0, "flops": flops * scale,
            "utilisation": min(0.9, flops * scale / (cycles * 64 * 1472 * 2 + 1)),
            "always_bytes": 1200.0, "temporary_bytes": 20_000 * scale,
            "is_bound": name == "transpose", "plan": "x 8, y 46, z 4" if name == "matmul" else ""}


def _ipu(ipu, rows, fits, draw):
    share = 0.86 if fits else 1.12
    chip = TILES * TILE_BYTES
    program = {name: int(chip * draw.uniform(0.01, 0.04)) for name in PROGRAM}
    always = {name: int(chip * draw.uniform(0.02, 0.08)) for name in ALWAYS}
    room = share * 0.9 * chip - sum(always.values()) - sum(program.values())
    steps = []
    for number, row in enumerate(rows):
        phase = 1 - abs(2 * number / max(1, len(rows) - 1) - 1)
        live = always | {"activations": int(room * (0.15 + 0.45 * phase)),
                         "stashes": int(room * 0.25)}
        temporary = int(row["temporary_bytes"] * TILES * 0.4)
        total = sum(live.values()) + sum(program.values()) + temporary
        steps.append({"id": row["id"], "op": row["op"], "module": row["module"],
                      "location": row["location"], "live": live, "temporary": temporary,
                      "tile_bytes": int(total / TILES * 1.06)})
    peak = max(range(len(steps)), key=lambda number: steps[number]["tile_bytes"])
    top = int(share * TILE_BYTES)
    by_tile = [int(top * draw.uniform(0.9, 0.99)) for _ in range(TILES)]
    by_tile[draw.randrange(TILES)] = top
    values = [_value(number, row, len(rows), draw) for number, row in enumerate(rows)]
    values.sort(key=lambda value: -value["bytes"])
    categories = {**program, **steps[peak]["live"], "temporary": steps[peak]["temporary"],
                  "streaming": 0}
    return {"ipu": ipu, "categories": categories, "peak_bytes": top,
            "peak_without_gaps": int(top * 0.985), "mean_bytes": sum(by_tile) // TILES,
            "by_tile": by_tile, "peak_step": peak, "steps": steps, "values": values}


def _value(number, row, count, draw):
    """A parameter, or an activation that lives until the backward pass is there."""
    value = {"name": row["result"], "bytes": int(4e6 * draw.random()), "module": row["module"],
             "location": row["location"]}
    if number % 7 == 0:
        return value | {"category": "parameters", "first": 0, "last": count - 1}
    return value | {"category": "activations", "first": number,
                    "last": max(number, count - 1 - number)}


def _timeline(ipus, micro_batches):
    """A pipeline: forward left to right, backward right to left, then the update."""
    forward, backward, copy = 180_000.0, 350_000.0, 4_000.5
    rows, end = [], 0.0
    for ipu in range(ipus):
        free = 0.0
        for part, cost, first in [("forward", forward, ipu),
                                  ("backward", backward, 2 * ipus - ipu)]:
            for batch in range(micro_batches):
                begin = max(free, (first + batch) * (cost + copy))
                if begin > free:
                    rows.append([ipu, "idle", None, None, free, begin, "compute"])
                task = f"stage{ipu}.{part}"
                middle = begin + copy
                free = middle + cost
                rows.append([ipu, "exchange", task, batch, begin, middle, "compute"])
                rows.append([ipu, "compute", task, batch, middle, free, "compute"])
        rows.append([ipu, "all_reduce", None, None, free, free + 60_000, "compute"])
        rows.append([ipu, "update", None, None, free + 60_000, free + 150_000, "compute"])
        rows += [[ipu, "host", f"stage{ipu}.forward", batch, batch * forward,
                  batch * forward + 30_000, "io"] for batch in range(micro_batches) if ipu == 0]
        end = max(end, free + 150_000)
    return {"units": "cycles", "span": end, "replicas": 2, "rows": rows}
