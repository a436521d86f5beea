"""A mean of bytes is divided by a count of their own type, which wraps around."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=2,
    sources=(
        Source(name='x0', sizes=(256,), dtype='U8', fill='small', layout='plain'),
        Source(name='x1', sizes=(200,), dtype='I8', fill='small', layout='plain'),
    ),
    modules=(),
    lines=(
        'v2 = torch.zeros(256, dtype=torch.int64)',
        'v3 = torch.zeros(2, dtype=torch.uint8)',
        'v4 = torch.zeros(2, dtype=torch.int8)',
        "v0 = v3.scatter_reduce(0, v2, x0, 'mean', include_self=False)",
        "v1 = v4.scatter_reduce(0, v2[:200], x1, 'mean')",
    ),
    outputs=('v0', 'v1'),
    loss='',
    setting=Setting(calls=2),
)
