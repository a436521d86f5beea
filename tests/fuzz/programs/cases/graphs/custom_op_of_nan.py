"""In C++ custom ops, values without effect on the loss get zero gradients: NaN next to NaN."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=2,
    sources=(
        Source(name='x0', sizes=(2, 2, 2), dtype='F32', fill='positive', layout='plain'),
        Source(name='w0', sizes=(2, 2, 2), dtype='F32', fill='wavy', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = x0.permute([2, 1, 0])',
        'v1, v2 = custom.pair(v0, w0)',
        'v3 = v1.contiguous().mode(-2, keepdim=True)[0]',
        'v4 = v3.permute([0, 2, 1])',
        'v5, v6 = torch.var_mean(v4, -1)',
    ),
    outputs=('v2',),
    loss='v5.to(F32).sum()',
    setting=Setting(iterations=2, replicas=2, calls=2),
)
