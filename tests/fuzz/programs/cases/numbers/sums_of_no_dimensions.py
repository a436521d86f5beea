"""Reductions of an empty list of dimensions, and the sum of bools with a factor, as in eager."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=9,
    sources=(Source(name='x0', sizes=(2, 3), dtype='F32', fill='normal', layout='plain'),),
    modules=(),
    lines=(
        'v0 = torch.any(x0 > 0, dim=())',
        'v1 = torch.all(x0 > 0, dim=())',
        'v2 = torch.nansum(x0, dim=())',
        'v3 = torch.nanmean(x0, dim=())',
        'v4 = torch.add(x0 > 0, x0 < 1, alpha=False)',
    ),
    outputs=('v0', 'v1', 'v2', 'v3', 'v4'),
    loss='',
    setting=Setting(calls=2),
)
