"""A standard deviation is a float where the variance overflows."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=3,
    sources=(Source(name='w0', sizes=(3, 4), dtype='F32', fill='normal', layout='plain'),),
    modules=(),
    lines=('v0 = (w0 * 1e30).std(1)', 'v1 = (w0 * 1e-30).std(0)'),
    outputs=('v0', 'v1'),
    loss='(v0 * 1e-30).sum() + (v1 * 1e30).sum()',
    setting=Setting(),
)
