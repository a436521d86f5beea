"""A row of attention that is NaN is NaN in hidden columns too, and so are their gradients."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=2,
    sources=(
        Source(name='x0', sizes=(1, 1, 8, 4), dtype='F32', fill='special', layout='plain'),
        Source(name='w0', sizes=(1, 1, 8, 4), dtype='F32', fill='normal', layout='plain'),
        Source(name='w1', sizes=(1, 1, 8, 2), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.scaled_dot_product_attention(x0[:, :, :3], w0, w1, is_causal=True, scale=0.25)',
    ),
    outputs=('v0',),
    loss='v0.to(F32).sum()',
    setting=Setting(),
)
