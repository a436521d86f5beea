"""A 1x1 convolution with a stride, whose result has one pixel, read a row-major image as
one that lies channels-last."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=50737,
    sources=(
        Source(name='w0', sizes=(8, 3, 1, 1), dtype='F32'),
        Source(name='x0', sizes=(2, 3, 2, 2), dtype='F32'),
    ),
    modules=(),
    lines=(
        'v0 = F.conv2d(x0 * w0.sum(), w0, stride=2)',
    ),
    outputs=('v0',),
    loss='(v0 * v0).sum()',
)
