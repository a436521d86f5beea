"""The variance of infinite numbers counted as 0."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(5, 5), dtype='F32', fill='special', layout='plain'),
        Source(name='x0', sizes=(5,), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.layer_norm(w0, (5,), None, x0)',
    ),
    outputs=('v0',),
    loss='',
    setting=Setting(calls=2),
)
