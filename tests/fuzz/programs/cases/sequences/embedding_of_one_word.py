"""The gradient of a word that occurs often is summed for each micro-batch before it is added."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(1, 2), dtype='F32', fill='normal', layout='plain'),
        Source(name='x0', sizes=(129, 3, 3), dtype='I32', fill='index:1', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.embedding(x0, w0)',
    ),
    outputs=(),
    loss='v0.to(F32).mean() + w0.to(F32).sum()',
    setting=Setting(accumulation=2, replicas=2),
)
