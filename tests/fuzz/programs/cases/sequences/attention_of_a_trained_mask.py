"""A row of attention that sees nothing is zero, by a mask that is trained, too."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(1, 1, 2, 3), dtype='F32', fill='normal', layout='plain'),
        Source(name='w1', sizes=(2, 2), dtype='F32', fill='normal', layout='plain'),
        Source(name='x0', sizes=(1, 1, 2, 3), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = w1.masked_fill(torch.tensor([[False, False], [True, True]]), -torch.inf)',
        'v1 = F.scaled_dot_product_attention(w0, x0, x0, attn_mask=v0)',
    ),
    outputs=('v1',),
    loss='(v1.to(F32).reshape(-1) * torch.linspace(-1, 1, v1.numel(), dtype=F32)).sum()',
    setting=Setting(calls=2),
)
