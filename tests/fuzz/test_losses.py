"""Expressions of losses: what is minimised, or refused, is what a small rule says."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import poptorch
from poptorch._capture import capture
from tests.capture.reference import captured_step
from tests.fuzz.judge import budget

# Results of some terms; True if the first term is still among the result's parts.
OPERATIONS = {
    "add": (2, lambda a, b: a.sum() + b.sum(), False), "double": (1, lambda a: a * 2, False),
    "exp": (1, lambda a: (a * 0.1).exp(), False), "mean": (1, lambda a: a.mean() * 1.5, False),
    "detach": (1, lambda a: a.detach(), None), "view": (1, lambda a: a.reshape(-1), True),
    "clone": (1, lambda a: a.clone(), True),
    "double type": (1, lambda a: a.double().unsqueeze(0), True),
    "join": (2, lambda a, b: torch.cat([a.reshape(-1), b.reshape(-1)]), True),
}
LEAVES = ("cross_entropy", "mse_loss", "mse_loss", "unreduced", "number")


@dataclasses.dataclass(frozen=True)
class Term:
    """The rule's state of a value.

    Attributes:
        value: as eager computes it.
        flows: the reduced losses and marked values that it has its gradient from.
        holds: those of them that are among its parts as they are.
        is_of_losses: whether a loss flows into it, reduced or not.
        before: the values it is computed from.
    """

    value: torch.Tensor
    flows: frozenset = frozenset()
    holds: frozenset = frozenset()
    is_of_losses: bool = False
    before: tuple = ()

    def is_more_than(self, loss) -> bool:
        """Whether it has a gradient that does not pass through a loss."""
        return self is not loss and self.value.requires_grad and (
            not self.before or any(term.is_more_than(loss) for term in self.before))


class Program:
    """A forward made of a list of steps, and the rule for what it minimises."""

    def __init__(self, steps, returned):
        self.steps, self.returned = steps, returned

    def run(self, out, y, w):
        """``(results, losses, marks)``: all as terms."""
        terms, losses, marks = [], [], []
        for step in self.steps:
            kind, *operands = step
            before = [terms[i % len(terms)] for i in operands]
            terms.append(self._term(kind, before, out, y, w, losses, marks))
        return [terms[i % len(terms)] for i in self.returned], losses, marks

    def _term(self, kind, before, out, y, w, losses, marks):
        if kind in OPERATIONS:
            count, function, holds = OPERATIONS[kind]
            before = before[:count]
            value = function(*(term.value for term in before))
            if holds is None:
                return Term(value)
            flows = frozenset().union(*(term.flows for term in before))
            held = frozenset().union(*(term.holds for term in before))
            return Term(value, flows, held if holds else frozenset(),
                        any(term.is_of_losses for term in before), tuple(before))
        if kind == "mark":
            value = poptorch.identity_loss(before[0].value, "sum")
            return self._noted(value, before[0].flows, marks, f"mark {len(marks)}")
        if kind == "number":
            return Term((w * w).sum())
        if kind == "unreduced":
            return Term(F.mse_loss(out, torch.ones_like(out), reduction="none"),
                        is_of_losses=True)
        loss = F.cross_entropy(out, y) if kind == "cross_entropy" else F.mse_loss(out * 2, out + 1)
        return self._noted(loss, frozenset(), losses, f"loss {len(losses)}")

    @staticmethod
    def _noted(value, flows, noted, name):
        term = Term(value, flows | {name}, frozenset({name}), True)
        noted.append((name, term))
        return term

    def verdict(self, out, y, w):
        """``(minimised value, None)``, or ``(None, words of the error)``."""
        results, losses, marks = self.run(out, y, w)
        held = frozenset().union(*(result.holds for result in results))
        numbers = {result.value.grad_fn: result for result in results
                   if result.value.numel() == 1 and result.is_of_losses}
        if not marks and held.isdisjoint(name for name, _ in losses) and numbers:
            if len(numbers) > 1:
                return None, "and so is another result"
            return next(iter(numbers.values())).value.sum(), None
        noted = [(name, term) for name, term in marks or losses if term.value.requires_grad]
        if not noted:
            return (None, "Couldn't find") if not marks else (marks[-1][1].value.sum(), None)
        names = {name for name, _ in noted}
        for name, term in reversed(noted):
            if names <= term.flows:
                break
        else:
            return None, "Multiple independent"
        apart = {name for name, loss in losses if loss.value.requires_grad} - term.flows
        if marks and any(name in result.flows and apart & result.flows for result in results):
            return None, "Multiple independent"
        if not marks and name not in held and any(name in result.flows for result in results):
            return None, "is computed from the loss"
        if not marks and any(name in result.flows - result.holds and result.value.numel() == 1
                             and result.is_more_than(term) for result in results):
            return None, "which is returned too"
        return term.value.sum(), None


class Net(nn.Module):
    """A network whose forward ends with a program of losses."""

    def __init__(self, program):
        super().__init__()
        self.program = program
        self.w = nn.Parameter(torch.rand(3, 4) - 0.5)

    def forward(self, x, y):
        results, _, _ = self.program.run(x @ self.w, y, self.w)
        return [term.value for term in results]


def programs():
    number = st.integers(0, 7)
    leaf = st.tuples(st.sampled_from(LEAVES))
    # One or two losses; what is made of them; rarely a mark, but for one ending. The last
    # terms are returned.
    kind = st.sampled_from((*OPERATIONS, *OPERATIONS, "number", "unreduced", "mark"))
    steps = st.tuples(st.lists(leaf, min_size=1, max_size=2),
                      st.lists(st.tuples(kind, number, number), min_size=1, max_size=5))
    ending = st.sampled_from(([], [], [], [("mark", 0, 0), ("add", -1, 1)]))
    returned = st.lists(st.sampled_from((-1, -1, -2, -3)), min_size=1, max_size=2)
    return st.builds(Program, st.tuples(steps, ending).map(
        lambda parts: [*parts[0][0], *parts[0][1], *parts[1]]), returned)


@budget(80)
@given(program=programs())
def test_what_is_minimised(program):
    net, x, y = Net(program), torch.rand(5, 3), torch.randint(0, 4, (5,))
    expected, words = program.verdict(x @ net.w, y, net.w)
    if words is not None:
        with pytest.raises(poptorch.Error, match=words):
            capture(net, (x, y), training=True)
        return
    found = captured_step(net, x, y)
    if expected.requires_grad:
        expected.backward()
    assert math.isclose(found[1].sum().item(), expected.item(), rel_tol=1e-4), program.steps
    torch.testing.assert_close(found[2].get("w"), net.w.grad,
                               msg=lambda text: f"{program.steps}{text}")
