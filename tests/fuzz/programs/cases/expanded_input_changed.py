"""New values of an expanded input could not be written to it."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(2, 3), dtype='F32', layout='expanded'),
    ),
    modules=(),
    lines=(
        'x0.fill_(1.5)',
    ),
    outputs=('x0',),
)
