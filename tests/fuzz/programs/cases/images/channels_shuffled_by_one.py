"""Channels shuffled in one group were the input itself, not a copy of it."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(2, 4, 2, 2), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.channel_shuffle(w0 , 1)',
        'v1 = v0.mul_(2.0)',
    ),
    outputs=('v0',),
    loss='(v0*w0).sum()',
)
