"""An empty constant and another constant had one address: the other one was lost."""

from tests.fuzz.programs.program import Program

PROGRAM = Program(
    seed=1,
    sources=(),
    modules=(),
    lines=(
        'v0 = torch.zeros(0, 3)',
        'v1 = torch.full((4,), 7.)',
    ),
    outputs=('v0', 'v1'),
)
