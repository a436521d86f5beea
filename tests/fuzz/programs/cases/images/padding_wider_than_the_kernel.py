"""Given channels last, oneDNN reads past the image where results see only padding."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1040823495566,
    sources=(
        Source(name="b0", sizes=(4, 8, 1, 3), dtype="F32", fill="normal", layout="plain"),
        Source(name="b1", sizes=(32, 8, 4, 1), dtype="F32", fill="normal", layout="plain"),
        Source(name="w0", sizes=(32,), dtype="F32", fill="whole", layout="plain"),
        Source(name="x0", sizes=(3,), dtype="F32", fill="normal", layout="plain"),
    ),
    modules=(),
    lines=("v0 = F.conv2d(b0.mT, b1, bias=w0, stride=2, padding=3, dilation=(1, 2))",),
    outputs=("v0",),
    loss="",
    setting=Setting(),
)
