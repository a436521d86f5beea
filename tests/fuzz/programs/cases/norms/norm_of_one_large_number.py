"""The norm of one large number was inf, of one small number 0."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(4, 1), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = torch.norm(w0*1e20, dim=1)',
    ),
    outputs=('v0',),
    loss='v0.sum()*1e-20',
)
