"""Beside uint8 a negative limit is one of its high values."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(2, 2), dtype='U8', fill='normal', layout='plain'),
        Source(name='x1', sizes=(1,), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'x0.clamp_(-1, 1)',
    ),
    outputs=('x1',),
    loss='',
    setting=Setting(),
)
