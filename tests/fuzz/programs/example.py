"""A program for tests of the generator and the judge."""

from tests.fuzz.programs.program import Program, Setting, Source

X = Source("x0", (3, 4), "F32")
W = Source("w0", (4,), "F32")
EXAMPLE = Program(
    seed=1, sources=(X, W), modules=(), lines=("v0 = x0 * w0", "v1 = v0.exp()"),
    outputs=("v0", "v1"), loss="v1.to(F32).sum()", setting=Setting(calls=2))
