"""A product of whole numbers has the type asked for, also one of few bits."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=8,
    sources=(Source(name='x0', sizes=(2, 3), dtype='I64', fill='few', layout='plain'),),
    modules=(),
    lines=(
        'v0 = x0.prod(dtype=torch.int16)',
        'v1 = x0.prod(1, dtype=torch.uint8)',
        'v2 = (x0 + 0.5).prod(0, dtype=torch.bfloat16)',
    ),
    outputs=('v0', 'v1', 'v2'),
    loss='',
    setting=Setting(calls=2),
)
