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
        "v0 = torch.zeros(2, dtype=torch.uint8).scatter_reduce(0, torch.zeros(256, dtype=torch.long), x0, 'mean', include_self=False)",
        "v1 = torch.zeros(2, dtype=torch.int8).scatter_reduce(0, torch.zeros(200, dtype=torch.long), x1, 'mean')",
    ),
    outputs=('v0', 'v1'),
    loss='',
    setting=Setting(calls=2),
)
