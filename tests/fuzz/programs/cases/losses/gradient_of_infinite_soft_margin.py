"""The gradient of an infinite soft margin loss: eager divides an infinite number by itself."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=22,
    sources=(
        Source(name="w0", sizes=(4, 5), dtype="F32", fill="normal", layout="plain"),
        Source(name="x0", sizes=(4, 5), dtype="F32", fill="normal", layout="plain"),
    ),
    modules=(),
    lines=("v0 = F.soft_margin_loss(w0 * 5000, x0.sign())",),
    outputs=("v0",),
    loss="v0.to(F32)",
    setting=Setting(),
)
