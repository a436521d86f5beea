"""The gate of -infinity was not quite 0, so that it let an infinite state pass."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=81000096351,
    sources=(
        Source(name='x0', sizes=(4, 1), dtype='F32', fill='normal', layout='plain'),
        Source(name='x1', sizes=(2, 4), dtype='F32', fill='special', layout='plain'),
    ),
    modules=(
        ('m0', 'nn.LSTM(1, 4, num_layers=2, batch_first=True, bias=False).to(F32)'),
    ),
    lines=(
        'v1, v2, v3 = (lambda y, s: (y, *s))(*m0(x0[::2], (x1, x1)))',
    ),
    outputs=('v1', 'v2', 'v3'),
    loss='',
    setting=Setting(),
)
