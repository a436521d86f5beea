"""A root of minus infinity is infinity where the exponent is a tensor, and NaN by a number."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=4,
    sources=(
        Source(name='x0', sizes=(6,), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v4 = torch.cat([torch.tensor([-torch.inf, -0.0, 4.0]), x0])',
        'v0 = v4 ** torch.tensor(0.5)',
        'v1 = v4 ** torch.tensor([-0.5])',
        'v2 = v4 ** 0.5',
        'v3 = v4.half() ** -0.5',
    ),
    outputs=('v0', 'v1', 'v2', 'v3'),
    loss='',
    setting=Setting(calls=2),
)
