"""Bools that a mask selects became integers, whose sums differ."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=777681,
    sources=(
        Source(name="b0", sizes=(1, 1), dtype="BOOL", fill="few", layout="plain"),
        Source(name="x0", sizes=(1, 1, 1), dtype="F32", fill="normal", layout="plain"),
        Source(name="x1", sizes=(1, 1), dtype="BOOL", fill="few", layout="plain"),
    ),
    modules=(),
    lines=("b0.index_put_((~x1,), b0[~x1] + b0[~x1])",),
    outputs=("x0",),
    loss="",
    setting=Setting(),
)
