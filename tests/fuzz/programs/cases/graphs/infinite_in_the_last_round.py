"""What a loop carries for nothing has no gradient in the last round, where it may be infinite."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=129000005453,
    sources=(
        Source(name='w0', sizes=(1, 5, 8), dtype='F16', fill='normal', layout='plain'),
        Source(name='w1', sizes=(8, 1, 2), dtype='F16', fill='whole', layout='plain'),
        Source(name='b0', sizes=(3, 1, 5, 8), dtype='F16', fill='positive', layout='plain'),
        Source(name='x6', sizes=(8, 8), dtype='F16', fill='normal', layout='plain'),
    ),
    modules=(
        ('m3', 'nn.MultiheadAttention(8, 1, batch_first=True, add_zero_attn=True).to(F16)'),
    ),
    lines=(
        'v15 = w1.permute([1, 2, 0])',
        'v16, v17 = [r.clone(memory_format=torch.contiguous_format) for r in m3(w0, v15, v15)]',
        'v18 = b0[-2]',
        'v19, v20 = poptorch.for_loop(5, lambda a, b: [(a * w0), '
        'F.linear(torch.maximum(torch.where(a > v18, a, v18).clone(), a), x6)], [v16, v16])',
    ),
    outputs=('v20',),
    loss='(v20.to(F32).reshape(-1) * torch.linspace(-1, 1, v20.numel(), dtype=F32)).sum()',
    setting=Setting(threads=3, iterations=3, accumulation=3),
)
