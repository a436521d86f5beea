"""GELU of large negative numbers is 0 or nearly so, by the formula: its truth says nothing."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=6000018853,
    sources=(Source(name='x0', sizes=(5, 4), dtype='F32', fill='large'),),
    modules=(),
    lines=(
        "v0 = F.gelu(x0, approximate='tanh')",
        'v1 = v0.all(-2)',
        'v2 = v0 == 0',
    ),
    outputs=('v1', 'v2'),
    loss='',
    setting=Setting(calls=2),
)
