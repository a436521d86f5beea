"""oneDNN writes the image of one channel in another order than ATen reads."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(4, 1, 3, 3), dtype='F16', fill='normal', layout='plain'),
        Source(name='x0', sizes=(4,), dtype='F16', fill='normal', layout='plain'),
        Source(name='x1', sizes=(2, 1, 4, 4), dtype='F16', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.conv2d(x1, w0, bias=x0, stride=(1, 3))',
    ),
    outputs=('v0',),
    loss='',
    setting=Setting(),
)
