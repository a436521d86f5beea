"""Attention in 16 bits with a mask in single precision that takes a gradient was refused."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=555473,
    sources=(
        Source(name='w0', sizes=(3, 4), dtype='F16'),
        Source(name='w1', sizes=(3, 5), dtype='F32'),
        Source(name='b0', sizes=(5, 4), dtype='F16'),
        Source(name='x0', sizes=(5, 2), dtype='F16'),
    ),
    modules=(),
    lines=('v0 = F.scaled_dot_product_attention(w0, b0, x0, attn_mask=w1)',),
    outputs=('v0',),
    loss='v0.to(F32).sin().sum()',
)
