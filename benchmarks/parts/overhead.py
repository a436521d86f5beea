"""What an iteration costs beyond its arithmetic, and a call beyond its iterations."""

from benchmarks import backends, measure, workloads
from benchmarks.part import Part, setting
from benchmarks.table import MODE, WORKLOAD, Column

CALLS = 2000

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("iteration", "us an iteration", ".1f"),
    Column("products", "its products", ".1f"),
    Column("beyond", "beyond them", ".1f"),
    Column("python", "Python us a call", ".1f"),
]


def _measure(plan):
    if not any(workload.name.startswith("mlp") for workload in plan.workloads):
        return
    many, one, wide = workloads.find("mlp-x1000"), workloads.find("mlp"), workloads.find("linears")
    cases = [(workload, mode) for mode in plan.modes for workload in (one, wide)]
    for workload, mode in plan.pace.each(cases):
        if workload is wide:
            yield [_python(wide, mode, plan)]
            continue
        settings = [
            setting(many, mode, backends.OURS, threads=1),
            setting(one, mode, "floor", threads=1),
            setting(one, mode, backends.OURS),
        ]
        with measure.processes(settings, pace=plan.pace) as started:
            measure.take_turns(started[:2], plan.rounds, plan.block_s, plan.pace)
            started[1].note("dispatch_us")
            started[2].ask("warm")
            started[2].note("python_us", calls=CALLS)
        ours, floor, single = (process.result for process in started)
        errors = [result.error for result in (ours, floor, single) if result.error]
        row = {"workload": "mlp", "mode": mode}
        if errors:
            yield [row | {"error": errors[0]}]
            continue
        iteration = ours.median_ms() * 1e3
        products = max(0.0, floor.median_ms() * 1e3 - floor.figures["dispatch_us"])
        row |= {"iteration": iteration, "products": products, "beyond": iteration - products}
        yield [row | {"python": single.figures["python_us"]}]


def _python(workload, mode, plan):
    """The row of a network where only the time in Python is measured."""
    with measure.processes([setting(workload, mode, backends.OURS)], pace=plan.pace) as started:
        started[0].ask("warm")
        started[0].note("python_us", calls=CALLS)
    result = started[0].result
    row = {"workload": workload.name, "mode": mode}
    return row | ({"error": result.error} if result.error
                  else {"python": result.figures["python_us"]})


PART = Part(
    "overhead",
    "what a call and an iteration of small networks cost beyond their products",
    COLUMNS,
    _measure,
    minutes=(0.7, 0.5),
)
