"""The largest of a bag was NaN where only a later row has one."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=3,
    sources=(
        Source(name='w0', sizes=(9, 5), dtype='F32', fill='normal', layout='plain'),
        Source(name='x0', sizes=(6, 3), dtype='I64', fill='index:9', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = torch.where(w0 > 0, w0, torch.nan)',
        'v1 = F.embedding_bag(x0, v0, mode="max")',
    ),
    outputs=('v1',),
    loss='v1.to(F32).nan_to_num(1.0).sum()',
    setting=Setting(),
)
