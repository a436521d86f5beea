"""Instance norm of no images was refused."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(0, 2, 3, 3), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.instance_norm(x0)',
    ),
    outputs=('v0',),
)
