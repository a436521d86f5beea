"""Only a part of the gradient was NaN where the loss is."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(3, 2, 3), dtype='F32', fill='special', layout='plain'),
        Source(name='x0', sizes=(2, 3), dtype='I64', fill='index:2', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.ctc_loss(w0, x0 % 2 + 1, [2, 3], [2, 2], reduction="none")',
    ),
    outputs=('v0',),
    loss='v0.sum()',
    setting=Setting(calls=2),
)
