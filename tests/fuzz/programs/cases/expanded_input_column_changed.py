"""A column of an expanded input was changed, and the others, the same memory, were not."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(3, 3), dtype='F32', fill='normal', layout='expanded'),
    ),
    modules=(),
    lines=(
        'x0[:, -3] *= 2.0',
        'v0 = x0 * 1',
    ),
    outputs=('v0', 'x0'),
)
