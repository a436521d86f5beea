"""A dilated bfloat16 convolution on the processor's unit read past the image, NaN times 0."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=5,
    sources=(
        Source(name='x0', sizes=(1, 2, 25, 3), dtype='BF16'),
        Source(name='w0', sizes=(6, 2, 1, 2), dtype='BF16'),
    ),
    modules=(),
    lines=(
        'v0 = F.conv2d(x0, w0, stride=2, dilation=2)',
    ),
    outputs=('v0',),
    setting=Setting(poison=True),
)
