"""An infinite weight of group norm: eager adds infinities of two signs, which is NaN."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=2,
    sources=(
        Source(name='w0', sizes=(8,), dtype='F32', fill='special', layout='plain'),
        Source(name='w1', sizes=(8,), dtype='F32', fill='wavy', layout='plain'),
        Source(name='x0', sizes=(4, 8, 3, 3), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.group_norm(x0, 4, w0, w1)',
        'v1 = F.group_norm(x0, 8, w0)',
    ),
    outputs=('v0', 'v1'),
    loss='',
    setting=Setting(),
)
