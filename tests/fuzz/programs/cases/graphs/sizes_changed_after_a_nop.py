"""What ``poptorch.nop`` returns is another tensor than its argument, in eager, too."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(1, 1, 1, 1), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v6 = poptorch.nop(x0)',
        'x0.unsqueeze_(0)',
    ),
    outputs=('v6',),
    loss='',
    setting=Setting(),
)
