"""A formula of an optimizer added 0 times an infinite weight, where the weight decay is 0."""

from tests.fuzz.programs.program import Program, Setting, Source

PROGRAM = Program(
    seed=111000013142,
    sources=(
        Source(name="w0", sizes=(1, 1, 1), dtype="F32", fill="normal", layout="plain"),
        Source(name="w1", sizes=(1,), dtype="F32", fill="special", layout="plain"),
        Source(name="x0", sizes=(1, 1, 1), dtype="F32", fill="normal", layout="plain"),
    ),
    modules=(),
    lines=(
        "v0, v1 = torch.cummax(w0, dim=-1)",
        "v6 = torch.exp(-w1.abs())",
    ),
    outputs=("v1",),
    loss="v6.to(F32).mean()",
    setting=Setting(
        calls=2,
        optimizer="optim.Adagrad(params, 0.0625, eps=0.125, lr_decay=0.25, maximize=True)"),
)
