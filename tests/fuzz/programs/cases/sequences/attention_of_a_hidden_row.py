"""The gradient of a row of attention whose scores are all -infinity is NaN if the values are."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=137000007667,
    sources=(
        Source(name='w0', sizes=(6, 2, 3, 2), dtype='F32', fill='special', layout='plain'),
        Source(name='w1', sizes=(2, 2, 1, 2), dtype='F32', fill='normal', layout='plain'),
        Source(name='x0', sizes=(1, 6), dtype='F32', fill='normal', layout='plain'),
        Source(name='x1', sizes=(2, 2, 1, 3), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = w0.permute([1, 3, 0, 2])',
        'v1 = F.scaled_dot_product_attention(v0, x1, w1, scale=0.25).sum(-2)',
    ),
    outputs=('x0',),
    loss='(v1.to(F32).reshape(-1) * torch.linspace(-1, 1, v1.numel(), dtype=F32)).sum()',
    setting=Setting(calls=2),
)
