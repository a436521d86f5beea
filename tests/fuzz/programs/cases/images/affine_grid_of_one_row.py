"""The gradient of a grid that is one pixel high could not be recorded."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(1, 1, 1, 4), dtype='F32', fill='normal', layout='plain'),
        Source(name='w1', sizes=(1, 2, 3), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.grid_sample(w0, F.affine_grid(w1, (1,1,1,4), align_corners=False))',
    ),
    outputs=('v0',),
    loss='v0.sin().sum()',
)
