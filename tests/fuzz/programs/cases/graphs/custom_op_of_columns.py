"""Results of custom ops are row-major; the formulas that eager computes followed the operand."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(2, 2, 2, 2), dtype='BF16', fill='normal', layout='channels_last'),
    ),
    modules=(),
    lines=(
        'v1 = custom.cube(x0, -2.0)',
        'v2, v3 = custom.pair(x0, x0)',
        'v4 = v1.as_strided((3,), (1,), 1)',
        'v5 = v2.as_strided((3,), (1,), 1)',
    ),
    outputs=('v4', 'v5', 'v3'),
    loss='',
    setting=Setting(),
)
