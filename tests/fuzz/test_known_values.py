"""Random computations with constants, views of them and changes of them, where Python code reads
values: what is known is what eager reads."""

import contextlib
import random

import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.fuzz.judge import attempt, budget
from tests.helpers import quiet_options

MAKE = ["torch.arange(6).view(2, 3)", "torch.zeros(2, 3, dtype=torch.long)", "torch.eye(3).long()",
        "torch.tensor([[1, 2, 3], [4, 5, 6]])", "m.t"]
VIEW = ["{a}[0]", "{a}[-1:]", "{a}[..., 1:]", "{a}.mT", "{a}.reshape(-1)", "{a}.diagonal()",
        "{a}.expand(2, *{a}.shape)", "{a}.unflatten(-1, (1, -1))", "{a}.detach()"]
NEW = ["{a} + 1", "{a} * {b}", "{a}.cumsum(-1)", "torch.cat([{a}, {b}])", "{a}.clone()",
       "{a}.sum(0, keepdim=True)", "torch.where({a} > 1, {a}, 3)", "{a}.float().mul(2).long()"]
CHANGE = ["{a}.add_(1)", "{a}.mul_({b})", "{a}.fill_(7)", "{a}.copy_({b})", "{a}[0] = 5",
          "{a}[..., -1] += 2", "{a}.zero_()", "torch.add({a}, {b}, out={a})", "{a}[{a} > 2] = 1",
          "{a}.clamp_(max=4)"]
READ = ["{a}.sum().item()", "int({a}.max())", "sum({a}.flatten().tolist())",
        "{a}.flatten()[0].item()", "int(({a} > 2).any())", "int(torch.equal({a}, {b}))",
        "(3 if ({a} == 1).all() else 4)"]


def drawn(seed: int) -> list[str]:
    """The lines of a function of constants that appends what it reads to ``read``."""
    rng = random.Random(seed)
    names, lines = [], []
    for number in range(rng.randint(4, 14)):
        kinds = [MAKE] if not names else [MAKE, VIEW, VIEW, NEW, CHANGE, CHANGE, READ]
        kind = rng.choice(kinds)
        a, b = (rng.choice(names) if names else "" for _ in "ab")
        text = rng.choice(kind).format(a=a, b=b)
        if kind is READ:
            lines.append(f"read.append({text})")
        elif kind is CHANGE:
            lines.append(text)
        else:
            names.append(f"v{number}")
            lines.append(f"v{number} = {text}")
    return lines + [f"read.append(sum({name}.flatten().tolist()))" for name in names]


class Reads(torch.nn.Module):
    def __init__(self, lines):
        super().__init__()
        self.code = compile("\n".join(lines), "reads", "exec")
        self.t = torch.arange(6).view(3, 2)

    def forward(self, x):
        read = []
        exec(self.code, {"torch": torch, "m": self, "read": read})
        return x * torch.tensor(read, dtype=x.dtype)


def valid(seed: int) -> tuple[list[str], torch.Tensor]:
    """The lines that eager accepts, one after another, and their result."""
    kept, result = [], torch.ones(0)
    for line in drawn(seed):
        with contextlib.suppress(RuntimeError, ValueError, IndexError, NameError, UserWarning):
            result = Reads([*kept, line])(torch.ones(()))
            kept.append(line)
    return kept, result


@budget(60)
@given(st.integers(0, 2**32))
def test_what_is_read_is_what_eager_reads(seed):
    lines, expected = valid(seed)
    module = Reads(lines)
    found, error = attempt(poptorch.inferenceModel(module, quiet_options()), torch.ones(()))
    if error is not None:
        assert isinstance(error, poptorch.Error), error
        return
    assert torch.equal(found, expected), "\n".join(lines)


def test_nearly_all_is_known():
    refused = 0
    for seed in range(25):
        lines, _ = valid(seed)
        lines = ["m.t = m.t.clone()", *lines]  # one that lasts is not known when it is changed
        try:
            poptorch.inferenceModel(Reads(lines), quiet_options())(torch.ones(()))
        except poptorch.Error:
            refused += 1
    assert refused < 5, refused

