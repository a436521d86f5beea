"""Eager's sum of rounded gradients happens to be exact: the rounding is not a fault of ours."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=6000005317,
    sources=(
        Source(name='x0', sizes=(1, 1, 1, 3, 3), dtype='BF16', layout='stepped'),
        Source(name='b0', sizes=(1,), dtype='F32'),
        Source(name='w0', sizes=(1,), dtype='F32'),
        Source(name='b1', sizes=(1,), dtype='F32'),
        Source(name='b2', sizes=(1,), dtype='F32'),
    ),
    modules=(),
    lines=(
        'v3 = F.batch_norm(x0, b1, b2, b0.contiguous(), w0, training=True, momentum=0.01)',
    ),
    outputs=('x0',),
    loss='v3.to(F32).mean()',
    setting=Setting(),
)
