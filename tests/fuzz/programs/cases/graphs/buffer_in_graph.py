"""A buffer that forward changed to a value that requires grad was taken for a parameter."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=20426,
    sources=(
        Source(name='w0', sizes=(1, 1), dtype='F32'),
        Source(name='b0', sizes=(1, 1, 1), dtype='F32'),
        Source(name='x0', sizes=(1, 1, 1, 1), dtype='F32'),
    ),
    modules=(),
    lines=(
        'b0.copysign_(w0)',
        'v0 = b0.unsqueeze(1)',
    ),
    outputs=('v0',),
    loss='v0.to(F32).sin().sum()',
)
