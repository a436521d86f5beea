"""Random optimizers train as in eager mode."""

import random

import pytest
import torch

from poptorch.testing import wide
from tests.own_step import zoo
from tests.own_step.common import Beside, options


class Random(zoo.Own):
    """Operations in a random order, which depends on ``seed``."""

    def __init__(self, params, seed, **defaults):
        super().__init__(params, **defaults)
        self.seed = seed

    def update(self, p, grad, state, group):
        draw = random.Random(self.seed)
        if not state:
            state.update(step=0, one=torch.zeros_like(p), two=torch.full_like(p, 0.5))
        state["step"] += 1
        beta, rate = group["betas"][0], group["lr"] / (1 + 0.1 * state["step"])
        values = [grad, state["one"], state["two"], p.detach().clone()]
        operations = [
            lambda x, y: x.mul_(beta).add_(y, alpha=1 - beta),
            lambda x, y: x.addcmul_(y, y, value=rate),
            lambda x, y: x.lerp_(y, beta),
            lambda x, y: x.copy_(torch.where(y > rate, x, y * 0.5)),
            lambda x, y: x.clamp_(-1.0, beta),
            lambda x, y: x.sub_(y / (x.abs() + 1), alpha=rate),
            lambda x, y: x.div_(1 + beta * state["step"]).add_(y.mean()),
            lambda x, y: x.copy_(1.0 - beta * x),
            lambda x, y: x.copy_(y.where(y > rate, beta)),
            lambda x, y: x.mul_(torch.tensor(beta)).pow_(2),
            lambda x, y: torch._foreach_add_([x, x], [y, grad], alpha=rate),
            lambda x, y: x.copy_(rate / (1.5 + torch.maximum(x, y).abs())),
        ]
        for _ in range(6):
            draw.choice(operations)(draw.choice(values[1:]), draw.choice(values))
        if state["step"] % draw.choice([2, 3, 100]) == 0:
            state["two"].mul_(0.5)
        p.add_(state["one"] + state["two"] + grad, alpha=-rate)


@pytest.mark.parametrize("number", range(3))
def test_random_optimizers(number, seed):
    with wide():
        both = Beside(lambda params: Random(params, seed + number), options(2, 2))
        both.train(10)
        both.check()
        both.check_states()
