"""A group norm of one element leaves only rounding errors; any() of them may be either."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(2, 2), dtype='F32', fill='whole', layout='expanded'),
        Source(name='w0', sizes=(1,), dtype='F32', fill='positive', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = w0.expand([2])',
        'v1 = F.group_norm(x0, 2, v0, None)',
        'v2 = torch.linalg.vector_norm(v1, 1)',
        'v3 = v2.any()',
    ),
    outputs=('v3',),
    loss='',
    setting=Setting(off=('simplify', 'winograd'), wide=True, calls=2),
)
