"""An infinite weight of batch norm: eager adds infinities of two signs, which is NaN."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=81000102205,
    sources=(
        Source(name='b3', sizes=(8,), dtype='F32', fill='uniform', layout='plain'),
        Source(name='b4', sizes=(8,), dtype='F32', fill='positive', layout='plain'),
        Source(name='w2', sizes=(8,), dtype='F32', fill='special', layout='plain'),
        Source(name='w3', sizes=(8,), dtype='F32', fill='wavy', layout='plain'),
        Source(name='x5', sizes=(4, 8, 3, 3), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.batch_norm(x5, b3, b4, w2.contiguous(), w3)',
        'v1 = F.batch_norm(x5, b3 * 1, b4 * 1, w2, w3, training=True)',
    ),
    outputs=('v0', 'v1'),
    loss='',
    setting=Setting(),
)
