"""A custom operator that changes a tensor in place had no kernel for values that are known while
capturing, which a branch reads."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=143004117354,
    sources=(
        Source(name='x0', sizes=(1,), dtype='I64', fill='index:2', layout='plain'),
    ),
    modules=(),
    lines=(
        'v1 = torch.tensor(3).float().mean()',
        'v3 = custom.increased(v1, 0.25)',
        'v4 = poptorch.cond(x0 > 0, lambda a: -torch.tanh(a) + 0 * (v3 + v1), [v3], '
        'lambda a, b: torch.maximum(a, b) + 0 * (v3 + v1), [v3, v1])[0]',
    ),
    outputs=('v3', 'v4'),
    loss='',
)
