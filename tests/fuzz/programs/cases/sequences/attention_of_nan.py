"""Attention scores that are all NaN counted as hidden."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='x0', sizes=(1, 2, 4), dtype='F32', fill='special', layout='plain'),
        Source(name='x1', sizes=(1, 2, 4), dtype='F32', fill='normal', layout='plain'),
        Source(name='x2', sizes=(1, 2, 4), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.scaled_dot_product_attention(x0, x1, x2, attn_mask=(torch.arange(2) == 0))',
    ),
    outputs=('v0',),
    loss='',
    setting=Setting(),
)
