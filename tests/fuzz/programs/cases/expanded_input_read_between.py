"""Views of an expanded input were changed one after the other, each without the others."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(3, 3), dtype='F32', fill='normal', layout='expanded'),
    ),
    modules=(),
    lines=(
        'v1 = (x0[:, 0:2] + 1.0).sum()',
        'x0[:, 0].exp_()',
        'v3=x0.clone()',
        'x0[:, 1:2].neg_()',
        'v2=x0.sum()',
    ),
    outputs=('v1', 'v2', 'v3'),
)
