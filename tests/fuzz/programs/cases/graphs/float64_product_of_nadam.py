"""NAdam's product of momenta was float32 where the default type is float64."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=1,
    sources=(
        Source(name='w0', sizes=(1,), dtype='F32', fill='whole', layout='plain'),
    ),
    modules=(),
    lines=(),
    outputs=('w0',),
    loss='(w0.to(F32).reshape(-1) * torch.linspace(-1, 1, w0.numel(), dtype=F32)).sum()',
    setting=Setting(wide=True, optimizer='optim.NAdam(params, 0.0625, eps=0.125, '
                    'decoupled_weight_decay=True, weight_decay=0.25)'),
)
