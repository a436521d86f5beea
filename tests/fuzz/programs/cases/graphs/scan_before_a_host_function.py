"""A scan has gradients of zeros where nothing reads its results: one before an argument of a
function of the host that the result which counts does not depend on was reached, unlike in eager.
"""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=143002904299,
    sources=(
        Source(name='w0', sizes=(1, 2), dtype='F32', fill='normal', layout='plain'),
        Source(name='w1', sizes=(1, 1, 2), dtype='F32', fill='normal', layout='plain'),
        Source(name='w2', sizes=(1, 1), dtype='F32', fill='normal', layout='plain'),
        Source(name='w3', sizes=(1,), dtype='F32', fill='normal', layout='plain'),
        Source(name='x0', sizes=(1,), dtype='I64', fill='few', layout='plain'),
    ),
    modules=(),
    lines=(
        'v0, v1 = higher.scan(lambda a, b: (torch.where(a > w0, a, w0), '
        '((b.reshape(-1).reshape((1, 2)) + b) - (b.reshape(-1).reshape((1, 2)) + b).mean())), '
        'w0, w1, True)',
        'v2 = v0[..., 1]',
        "v13, v14 = poptorch.CPU(lambda a, b: (a + b, a.sum()), 'host')(w2, v2)",
        'v16, v17 = higher.scan(lambda a, b: ((torch.maximum(b, b).contiguous().view(()) * 0.5), '
        '(a * 0.5)), v14, w3, False)',
    ),
    outputs=('x0',),
    loss='v17.to(F32).mean()',
    setting=Setting(),
)
