"""A parameter that forward does not read, and whose gradient is 0, was not updated."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(), dtype='F32', fill='normal', layout='plain'),
        Source(name='x0', sizes=(1,), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'x0 *= w0',
        'x0.fill_(1.5)',
    ),
    outputs=('x0',),
    loss='x0.to(F32).sin().sum()',
    setting=Setting(optimizer='optim.SGD(params, 0.125, momentum=0.5, weight_decay=0.125)'),
)
