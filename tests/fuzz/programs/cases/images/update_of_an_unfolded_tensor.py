"""Outside of poptorch, dynamic_update wrote to elements that lie in one place in memory."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(2, 69), dtype='F32', fill='normal', layout='plain'),
        Source(name='x1', sizes=(1,), dtype='I64', fill='index:20', layout='plain'),
        Source(name='w0', sizes=(2, 6, 1), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = x0.unfold(-1, 64, 1)',
        'v1 = poptorch.dynamic_update(v0, w0, 2, x1, 1)',
    ),
    outputs=('v1',),
    loss='(v1.to(F32).reshape(-1) * torch.linspace(-1, 1, v1.numel(), dtype=F32)).sum()',
    setting=Setting(),
)
