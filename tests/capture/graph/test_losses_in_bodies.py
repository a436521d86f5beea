"""Losses that the bodies of loops and branches compute."""

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops import while_loop

import poptorch
from tests.capture.graph.test_losses import loss_node, told_of_losses


def mark(loss):
    return poptorch.identity_loss(loss, "sum")


def rounds(body, *carried):
    """What a loop of two rounds gives."""
    return poptorch.for_loop(2, body, list(carried))


def in_loop(out, x):
    """A tensor to go on with, and a sum of losses."""
    return rounds(lambda y, total: [y.tanh(), total + F.mse_loss(y, x)], out, torch.zeros(1))


def in_branch(out, x):
    return poptorch.cond(x.sum() > 0, lambda y: [y.tanh(), F.mse_loss(y, x)], [out],
                         lambda y: [y.clone(), torch.zeros(())], [out])


def in_inner_branch(out, x):
    return rounds(lambda y, total: [y.tanh(), total + in_branch(y, x)[1]], out, torch.zeros(1))


def one_round_later(out, x):
    """The loss is carried once before it is a result of its own."""
    y, _, total = rounds(lambda y, loss, total: [y.tanh(), F.mse_loss(y, x).view(1), loss * 2],
                         out, torch.zeros(1), torch.zeros(1))
    return y, total


BODIES = [in_loop, in_branch, in_inner_branch, one_round_later]
# What forward returns of a tensor and a sum of losses that a body gave.
AFTER_A_BODY = {
    "marked": (lambda y, loss, t: mark(loss), "fine"),
    "marked with the tensor": (lambda y, loss, t: mark(loss + y.sum()), "fine"),
    "alone": (lambda y, loss, t: loss, "fine"),
    "not returned": (lambda y, loss, t: y, "Couldn't find a loss in graph: the mse_loss of .*"
                     r"test_losses_in_bodies.py:\d+ is computed in the body of a loop or a "
                     r"branch, and nothing is marked outside of it. Mark what the loop or "
                     r"branch gave: .*identity_loss"),
    "beside a standard one": (lambda y, loss, t: (loss, F.l1_loss(y, t)), "Multiple independent"),
    "within a standard one": (lambda y, loss, t: F.l1_loss(loss.view(1), torch.zeros(1)),
                               "fine"),
    "the tensor marked": (lambda y, loss, t: mark(y.sum()), "fine"),
    "apart": (lambda y, loss, t: (mark(y.sum()), loss), "apart"),
    "mixed": (lambda y, loss, t: mark(y.sum()) + loss, "Multiple independent"),
    "detached": (lambda y, loss, t: mark(y.sum()) + loss.detach(), "fine"),
}


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("name", AFTER_A_BODY)
def test_losses_in_the_bodies_of_loops_and_branches(name, body, capsys, monkeypatch):
    monkeypatch.setattr("poptorch._capture.graph.losses._told", set())
    returned, kind = AFTER_A_BODY[name]

    def forward(m, x, y):
        return returned(*body(x @ m.w, x), x)

    if kind not in ("fine", "apart"):
        with pytest.raises(poptorch.Error, match=kind) as raised:
            loss_node(forward)
        assert "test_losses_in_bodies.py:" in raised.value.location
        return
    loss_node(forward)
    assert told_of_losses(capsys.readouterr().err) == (kind == "apart")


def test_a_marked_loss_in_the_body_of_a_loop():
    def marked(out, x):
        return rounds(lambda y, total: [y.tanh(), total + mark(y * x)], out, torch.zeros(1))

    loss_node(lambda m, x, y: mark(marked(x @ m.w, x)[1]))
    for returned, words in [
            (lambda y, loss, t: loss, "the identity_loss of .* in the body of a loop or a branch"),
            (lambda y, loss, t: (mark(y.sum()), loss), "Multiple independent.*Add them up"),
            (lambda y, loss, t: (F.mse_loss(y, t), loss), "Multiple independent.*Mark the one")]:
        with pytest.raises(poptorch.Error, match=words):
            loss_node(lambda m, x, y: returned(*marked(x @ m.w, x), x))


def test_losses_in_a_loop_without_gradient():
    def forward(m, x, y):
        out = x @ m.w
        with torch.no_grad():
            _, found = while_loop(
                lambda y, total: total.sum() < 1, lambda y, total: (
                    y * 2, total + F.mse_loss(y, x)), (out.detach(), torch.zeros(1)))
        return found, F.cross_entropy(out, y)

    loss_node(forward)
