"""float32 weights of a norm of 16-bit floats were rounded to 16 bits, and their gradients too."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=9911000893,
    sources=(
        Source(name='w0', sizes=(2,), dtype='F32'),
        Source(name='w1', sizes=(4,), dtype='F32'),
        Source(name='b0', sizes=(2,), dtype='F32'),
        Source(name='x0', sizes=(2, 2, 2), dtype='F16'),
        Source(name='x1', sizes=(3, 4), dtype='BF16'),
    ),
    modules=(),
    lines=(
        'v0 = F.group_norm(x0, 2, w0, b0).flip(0)',
        'v1 = F.layer_norm(x1, (4,), w1)',
    ),
    outputs=('v0', 'v1'),
    loss='v0.to(F32).sum() + v1.to(F32).sum()',
)
