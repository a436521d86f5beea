"""Batch norm of a result that is not the operation's first, which is not used."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=3131004752,
    sources=(Source(name="x0", sizes=(3, 3), dtype="F32", fill="normal", layout="plain"),),
    modules=(
        ("m0", "nn.LSTM(3, 3).to(F32)"),
        ("m1", "nn.BatchNorm1d(3).to(F32)"),
    ),
    lines=(
        "v0, v1, v2 = (lambda y, s: (y, *s))(*m0(x0))",
        "v3 = m1(v1.permute([0, 1]))",
    ),
    outputs=("v3",),
    loss="",
    setting=Setting(),
)
