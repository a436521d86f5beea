"""In one dimension the nearest element is that by the scale, however many there are."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=3,
    sources=(
        Source(name='w0', sizes=(1, 2, 5), dtype='F32', fill='normal', layout='plain'),
        Source(name='x0', sizes=(1, 2, 8), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        "v0 = F.interpolate(x0, scale_factor=1.1, mode='nearest')",
        "v1 = F.interpolate(w0, scale_factor=2.1, mode='nearest')",
    ),
    outputs=('v0', 'v1'),
    loss='(v1.to(F32).reshape(-1) * torch.linspace(-1, 1, v1.numel(), dtype=F32)).sum()',
    setting=Setting(calls=2),
)
