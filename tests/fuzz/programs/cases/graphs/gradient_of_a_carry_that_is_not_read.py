"""What a scan of PyTorch's begins with has a gradient of zeros where no result depends on it."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(1, 1, 1, 1), dtype='F64', fill='normal', layout='plain'),
        Source(name='x0', sizes=(1, 1), dtype='F32', fill='normal', layout='plain'),
        Source(name='w1', sizes=(1, 1, 1), dtype='F64', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v11, v12 = higher.scan(lambda a, b: (b, b), w1, w0, True)',
    ),
    outputs=('x0',),
    loss='v12.to(F32).mean()',
    setting=Setting(),
)
