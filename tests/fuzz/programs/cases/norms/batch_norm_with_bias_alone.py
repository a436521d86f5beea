"""The gradient of a float32 bias was rounded to the 16 bits of what is normed."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(17,), dtype='F32', fill='normal', layout='plain'),
        Source(name='b0', sizes=(17,), dtype='F32', fill='normal', layout='plain'),
        Source(name='b1', sizes=(17,), dtype='F32', fill='positive', layout='plain'),
        Source(name='x0', sizes=(3, 17), dtype='F16', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.batch_norm(x0, b0, b1, None, w0, training=False)',
    ),
    outputs=('v0',),
    loss='v0.to(F32).mean()',
    setting=Setting(),
)
