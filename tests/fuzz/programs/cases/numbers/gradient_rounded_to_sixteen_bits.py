"""Eager rounds a float32 gradient to bfloat16, and comes by that to the exact number; not ours."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=111000038712,
    sources=(
        Source(name="b0", sizes=(53, 5, 1), dtype="BF16", fill="normal", layout="plain"),
        Source(name="w0", sizes=(1,), dtype="F32", fill="normal", layout="plain"),
        Source(name="x0", sizes=(1,), dtype="F32", fill="normal", layout="plain"),
        Source(name="x1", sizes=(5, 5, 5), dtype="F32", fill="normal", layout="plain"),
    ),
    modules=(),
    lines=("v7 = F.layer_norm(b0, (1,), x0, w0)",),
    outputs=("x1",),
    loss="v7.to(F32).mean()",
    setting=Setting(),
)
