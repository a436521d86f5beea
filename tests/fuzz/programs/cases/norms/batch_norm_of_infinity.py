"""The mean of a batch with an infinite number was NaN."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(2, 3), dtype='F32', fill='special', layout='plain'),
        Source(name='b0', sizes=(3,), dtype='F32', fill='normal', layout='plain'),
        Source(name='b1', sizes=(3,), dtype='F32', fill='positive', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.batch_norm(x0, b0, b1, None, None, training=True)',
    ),
    outputs=('v0',),
    loss='',
    setting=Setting(calls=4),
)
