"""Eager lays out what is normed row by row, whatever the strides of the operand are."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(2, 3, 4), dtype='F32', fill='normal', layout='transposed'),
        Source(name='b0', sizes=(3,), dtype='F32', fill='normal', layout='plain'),
        Source(name='b1', sizes=(3,), dtype='F32', fill='positive', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.batch_norm(x0, b0, b1)',
        'v1 = v0.as_strided((5,), (2,), 1)',
        'v2 = v0.reshape(-1)',
        'v2 += 1',
    ),
    outputs=('v0', 'v1', 'v2'),
    loss='',
    setting=Setting(),
)
