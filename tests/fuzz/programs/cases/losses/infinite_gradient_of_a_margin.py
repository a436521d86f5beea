"""The gradient of a root at 0, an infinite one, times the 0 of what costs nothing: NaN in eager."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=81000028431,
    sources=(
        Source(name='b0', sizes=(1,), dtype='I64', fill='index:1', layout='plain'),
        Source(name='w0', sizes=(1, 1), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        "v0 = F.multi_margin_loss(w0, b0, reduction='none', p=1).sqrt()",
    ),
    outputs=('v0',),
    loss='v0.to(F32).sum()',
    setting=Setting(),
)
