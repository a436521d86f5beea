"""Below -3 the gradient of hardswish is 0, also of an infinite one."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=7,
    sources=(
        Source(name='w0', sizes=(2,), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0 = F.hardswish(w0 + torch.tensor([-9.0, 9.0]))',
        'v1 = v0 * torch.tensor([torch.inf, 1.0])',
    ),
    outputs=('v0',),
    loss='v1.nan_to_num(0.0, 1.0, 1.0).sum() + v1.sum()',
    setting=Setting(calls=2),
)
