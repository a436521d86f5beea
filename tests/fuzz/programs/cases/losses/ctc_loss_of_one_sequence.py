"""The loss of a sequence without a batch is a number."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=5,
    sources=(
        Source(name='w0', sizes=(7, 4), dtype='F32', fill='normal', layout='plain'),
    ),
    modules=(),
    lines=(
        'v1 = w0.log_softmax(-1)',
        'v2 = torch.tensor([1, 2])',
        "v0 = F.ctc_loss(v1, v2, torch.tensor(7), torch.tensor(2), reduction='none')",
    ),
    outputs=('v0',),
    loss='v0.sum()',
    setting=Setting(calls=2),
)
