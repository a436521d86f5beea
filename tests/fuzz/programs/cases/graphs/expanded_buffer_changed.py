"""A column of an expanded buffer was changed; its new values could not be written back."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='b0', sizes=(3, 3), dtype='F32', fill='normal', layout='expanded'),
    ),
    modules=(),
    lines=(
        'b0[:, 1] *= 2.0',
        'v0 = b0 * 1',
    ),
    outputs=('v0',),
    setting=Setting(calls=2),
)
