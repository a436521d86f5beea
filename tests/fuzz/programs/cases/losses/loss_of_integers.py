"""A loss with a target of integers was refused."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(3, 3), dtype='F32', fill='normal', layout='plain'),
        Source(name='x1', sizes=(3, 3), dtype='I64', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.mse_loss(w0, x1)',
    ),
    outputs=('v0',),
    loss='v0',
)
