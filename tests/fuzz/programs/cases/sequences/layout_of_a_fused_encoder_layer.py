"""The result of an encoder's layer lay in memory as that of the operations it is made of, where
eager calls a fused one."""

from tests.fuzz.programs.program import Program, Source

PROGRAM = Program(
    seed=143003840800,
    sources=(
        Source(name='x0', sizes=(2, 2, 1), dtype='F32', fill='normal', layout='transposed'),
    ),
    modules=(
        ('m2', 'nn.TransformerEncoderLayer(2, 2, 1, dropout=0.0, batch_first=True, '
               'norm_first=True).to(F32)'),
    ),
    lines=(
        'v9 = x0.expand([2, 2, 2])',
        'v10 = m2(v9)',
        'v13 = v10.as_strided((1, 1), (0, 1), 2)',
    ),
    outputs=('v13',),
    loss='',
)
