"""The gradient of what given statistics norm was NaN where that is infinite."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(4,), dtype='F32', fill='normal', layout='plain'),
        Source(name='x0', sizes=(3, 4), dtype='F32', fill='special', layout='plain'),
        Source(name='b0', sizes=(4,), dtype='F32', fill='normal', layout='plain'),
        Source(name='b1', sizes=(4,), dtype='F32', fill='positive', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.batch_norm(w0 + x0, b0, b1)',
    ),
    outputs=('v0',),
    loss='v0.to(F32).sum()',
    setting=Setting(),
)
