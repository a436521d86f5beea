"""The gradient of a value that only the first round of a loop reads was missing."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(3,), dtype='F32', fill='normal', layout='plain'),
        Source(name='w0', sizes=(3,), dtype='F32', fill='normal', layout='plain'),
        Source(name='w1', sizes=(3,), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0, v1 = poptorch.for_loop(3, lambda a, b: [b.detach(), b * x0 + torch.sin(a)], [w0, w1])',
    ),
    outputs=('v1',),
    loss='v1.to(F32).pow(2).sum()',
    setting=Setting(calls=2),
)
