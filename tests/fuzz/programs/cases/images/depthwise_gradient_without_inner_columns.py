"""The gradient of depthwise weights read past the image where no window lies within it."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=2135084704346,
    sources=(
        Source(name='w1', sizes=(2, 8, 2, 2), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(
        ('m0', 'nn.Conv2d(8, 8, 3, padding=1, groups=8).to(F32)'),
    ),
    lines=(
        'v1 = m0(w1)',
    ),
    outputs=('v1',),
    loss='v1.to(F32).pow(2).mean()',
)
