"""The parts of the benchmark, in the order in which they run."""

from benchmarks.parts import (
    autocast,
    choice,
    convolutions,
    first_call,
    gemm,
    half,
    host_forms,
    loader,
    losses,
    machine,
    memory,
    overhead,
    profile,
    serving,
    speed,
    switches,
    threads,
    torch_compile,
)

PARTS = [
    machine.PART,
    gemm.PART,
    convolutions.PART,
    choice.PART,
    speed.PART,
    memory.PART,
    first_call.PART,
    overhead.PART,
    threads.PART,
    host_forms.PART,
    half.PART,
    autocast.PART,
    torch_compile.PART,
    losses.PART,
    loader.PART,
    serving.PART,
    profile.PART,
    switches.PART,
]


def find(name):
    """The part of that name."""
    for part in PARTS:
        if part.name == name:
            return part
    names = ", ".join(part.name for part in PARTS)
    raise SystemExit(f"[benchmarks] no part {name!r}. There are: {names}.")
