"""Forward-mode derivatives in ``forward``: tangents of random computations, and their gradients."""

import random

import pytest
import torch
import torch.autograd.forward_ad as fw
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.capture.common import Function, check_inference, check_training
from tests.fuzz.judge import budget

NEW = ["{a} * {b}", "{a} + {b}", "{a} - 2 * {b}", "{a} * 2", "3 / ({a}.abs() + 1)", "1 - {a}",
       "{a} / 3.5", "{a}.sin()", "2 ** {a}.tanh()", "torch.where({a} > 0, {a}, 0.5)",
       "torch.lerp({a}, {b}, 0.25)", "torch.addcmul({a}, {b}, {b}, value=0.5)", "{a}.mean() + {b}",
       "torch.softmax({a}, -1)", "torch.nn.functional.gelu({a})", "({a} @ {b}.mT).tanh() @ {a}",
       "torch.tensor(2.0, dtype=torch.double) * {a}", "{a}.detach() * {b}", "{a}.clone()"]
CHANGE = ["{a}.mul_(2)", "{a}.add_({b})", "{a}[0] = {b}[1]", "{a}[:, 1].mul_({b}[:, 0])",
          "{a}.div_(2.5)"]


def drawn(seed: int) -> str:
    """A function of ``x`` and ``w`` that computes with a dual tensor; the tangent is a result."""
    rng = random.Random(seed)
    made, lines = [], ["d = fw.make_dual(x * 1.0, x.cos() * w)"]
    for number in range(rng.randint(1, 6)):
        a, b = (rng.choice([*made, "d", "x", "w"]) for _ in "ab")
        if made and rng.random() < 0.25:
            lines.append(rng.choice(CHANGE).format(a=rng.choice(made), b=b))
        else:
            made.append(f"v{number}")
            lines.append(f"v{number} = {rng.choice(NEW).format(a=a, b=b)} * 1.0")
    return "\n".join([*lines, f"out = fw.unpack_dual(d * 0.5 + {' + '.join(made)})"])


def module(code: str) -> Function:
    def forward(m, x):
        names = {"fw": fw, "torch": torch, "x": x, "w": m.w}
        with fw.dual_level():
            exec(code, names)
        out = names["out"]
        return *out, poptorch.identity_loss(out.tangent.sin().sum() + out.primal.sum(), "sum")

    return Function(forward, {"w": torch.rand(3, 3, dtype=torch.double) + 0.5})


@given(seed=st.integers(0, 2**32))
@budget(15)
def test_tangents_are_those_of_eager(seed):
    code = drawn(seed)
    x = torch.randn(3, 3, dtype=torch.double)
    try:
        check_inference(module(code), x)
        net = module(code)
        try:
            net(x)[-1].backward()
        except RuntimeError:  # a change of what the gradient reads
            return
        net.zero_grad()
        check_training(net, x)
    except Exception as error:
        error.add_note(f"seed {seed}:\n{code}")
        raise


@pytest.mark.parametrize("line", ("2 * d", "d / 2", "1 / d", "d.clone().mul_(3)"))
def test_python_numbers_beside_a_dual_tensor(line):
    check_inference(module(f"d = fw.make_dual(x, x.cos()); out = fw.unpack_dual({line})"),
                    torch.rand(3, 3, dtype=torch.double) + 1)
