"""Interpolated whole numbers that cancel leave rounding errors, whose sign says nothing."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=36000266,
    sources=(
        Source(name='x0', sizes=(2, 12, 2, 17), dtype='F32', fill='whole', layout='transposed'),
    ),
    modules=(),
    lines=(
        "v0 = F.interpolate(x0, size=(3, 18), mode='bilinear')",
        'v1 = torch.where(v0 > 0, v0, -1)',
    ),
    outputs=('v1',),
    loss='',
    setting=Setting(wide=True),
)
