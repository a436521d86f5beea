"""A window of one pixel was NaN where its neighbour was infinite."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(4, 3, 2, 2), dtype='F32', fill='special', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.adaptive_avg_pool2d(x0, (2, 3))',
    ),
    outputs=('v0',),
    setting=Setting(calls=2),
)
