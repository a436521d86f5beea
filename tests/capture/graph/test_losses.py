"""Which tensor is differentiated."""

import itertools
import re

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function
from tests.capture.reference import captured_step
from tests.helpers import quiet_options


def loss_node(forward):
    module = Function(forward, {"w": torch.ones(3, 3)})
    captured = capture(module, (torch.randn(2, 3), torch.tensor([0, 2])), training=True)
    (loss,) = [s.node for s in captured.outputs if s.kind == "loss"]
    return str(loss.target) if loss.op == "call_function" else loss.op


def test_identity_loss_outside_of_a_capture():
    x = torch.tensor([1.0, 3.0])
    assert poptorch.identity_loss(x, "sum") == 4.0
    assert poptorch.identity_loss(x, reduction="mean") == 2.0
    assert poptorch.identity_loss(x, "none") is x
    with pytest.raises(poptorch.Error, match='unknown reduction \'max\'. Choose "sum"'):
        poptorch.identity_loss(x, "max")
    with pytest.raises(poptorch.Error, match="unknown reduction None"):
        poptorch.identity_loss(x, None)
    with pytest.raises(TypeError, match=r"^\[identity_loss\] x is expected to be a tensor, got "
                       r"list"):
        poptorch.identity_loss([x], "none")


@pytest.mark.parametrize("reduction, target", [
    ("sum", "aten.sum.default"), ("mean", "aten.mean.default"), ("none", "aten.mm.default")])
def test_reductions(reduction, target):
    assert loss_node(lambda m, x, y: poptorch.identity_loss(x @ m.w, reduction)) == target


STANDARD = {
    "cross_entropy": lambda o, y: F.cross_entropy(o, y),
    "nll_loss": lambda o, y: F.nll_loss(o.log_softmax(1), y),
    "mse_loss": lambda o, y: F.mse_loss(o, torch.ones(2, 3)),
    "l1_loss": lambda o, y: F.l1_loss(o, torch.ones(2, 3)),
    "smooth_l1_loss": lambda o, y: F.smooth_l1_loss(o, torch.ones(2, 3)),
    "huber_loss": lambda o, y: F.huber_loss(o, torch.ones(2, 3)),
    "bce": lambda o, y: F.binary_cross_entropy(o.sigmoid(), torch.ones(2, 3)),
    "bce_with_logits": lambda o, y: F.binary_cross_entropy_with_logits(o, torch.ones(2, 3)),
    "kl_div": lambda o, y: F.kl_div(o.log_softmax(1), torch.ones(2, 3) / 3, reduction="batchmean"),
    "poisson": lambda o, y: F.poisson_nll_loss(o, torch.ones(2, 3)),
    "gaussian": lambda o, y: F.gaussian_nll_loss(o, torch.ones(2, 3), o.exp()),
    "hinge": lambda o, y: F.hinge_embedding_loss(o, torch.ones(2, 3)),
    "cosine": lambda o, y: F.cosine_embedding_loss(o, o + 1, torch.ones(2)),
    "ranking": lambda o, y: F.margin_ranking_loss(o, o + 1, torch.ones(2, 3)),
    "soft_margin": lambda o, y: F.soft_margin_loss(o, torch.ones(2, 3)),
    "multi_margin": lambda o, y: F.multi_margin_loss(o, y),
    "multilabel_margin": lambda o, y: F.multilabel_margin_loss(o, y[:, None].expand(2, 3)),
    "multilabel_soft": lambda o, y: F.multilabel_soft_margin_loss(o, torch.ones(2, 3)),
    "triplet": lambda o, y: F.triplet_margin_loss(o, o + 1, o - 1),
    "module": lambda o, y: torch.nn.CrossEntropyLoss(label_smoothing=0.1)(o, y),
    "linear_cross_entropy": lambda o, y: F.linear_cross_entropy(o, torch.ones(3, 3), y),
    "triplet_distance": lambda o, y: F.triplet_margin_with_distance_loss(o, o + 1, o - 1),
}


@pytest.mark.parametrize("name", STANDARD)
def test_standard_losses_mark_themselves(name):
    module = Function(lambda m, x, y: (x @ m.w, STANDARD[name](x @ m.w, y)),
                      {"w": torch.ones(3, 3)})
    captured = capture(module, (torch.randn(2, 3), torch.tensor([0, 2])), training=True)
    outputs = {s.kind + s.name: s.node for s in captured.outputs}
    assert outputs["lossloss"] is outputs["output1"]


def test_identity_loss_wins_over_standard_losses():
    def forward(m, x, y):
        out = x @ m.w
        a, b = F.cross_entropy(out, y), F.mse_loss(out, x)
        return out, a, b, poptorch.identity_loss(a * b, "none")

    assert loss_node(forward) == "aten.mul.Tensor"


# What forward returns of a marked loss and one of PyTorch, and what it is: "fine"; "mixed" where a
# result holds both; "apart" where they are results of their own.
BESIDE_A_MARKED_LOSS = {
    "a sum": (lambda loss, other: loss + other, "mixed"),
    "a sum, nested": (lambda loss, other: joined(loss * 2, loss + other.sqrt()), "mixed"),
    "a sum, changed in place": (lambda loss, other: loss * 1 + other.mul_(2), "mixed"),
    "together": (lambda loss, other: torch.stack([loss, other]), "mixed"),
    "apart": (lambda loss, other: (loss, other), "apart"),
    "apart, nested": (lambda loss, other: joined(other + 1, loss), "apart"),
    "apart, twice": (lambda loss, other: (loss, other, other * 2), "apart"),
    "the other alone": (lambda loss, other: other, "apart"),
    "unused": (lambda loss, other: (loss, loss * 2), "fine"),
    "detached": (lambda loss, other: (loss + other.detach(), other.detach()), "fine"),
    "without gradient": (lambda loss, other: loss + F.mse_loss(torch.ones(2), torch.ones(2)),
                         "fine"),
    "joined": (lambda loss, other: mark(loss + other), "fine"),
    "joined in place": (lambda loss, other: loss.add_(other), "fine"),
    "joined and apart": (lambda loss, other: (
        mark(loss + other), other, loss * other), "fine"),
}


def told_of_losses(err: str) -> int:
    return err.count("it does not flow into the loss that is marked at")


@pytest.mark.parametrize("name", BESIDE_A_MARKED_LOSS)
def test_a_standard_loss_beside_a_marked_one(name, capsys, monkeypatch):
    monkeypatch.setattr("poptorch._capture.graph.losses._told", set())
    returned, kind = BESIDE_A_MARKED_LOSS[name]

    def forward(m, x, y):
        out = x @ m.w
        return returned(poptorch.identity_loss(F.cross_entropy(out, y), "mean"),
                        F.mse_loss(out, x))

    if kind == "mixed":
        with pytest.raises(poptorch.Error, match=r"Multiple independent losses found in graph. "
                           r"Graph must have one final loss. Wrap final graph loss in poptorch."
                           r"identity_loss. The one from .*test_losses.py:\d+ does not flow into "
                           r"the one from .*test_losses.py:\d+. Add them up and mark the sum"):
            loss_node(forward)
        return
    for _ in range(2):
        loss_node(forward)
    err = capsys.readouterr().err
    assert told_of_losses(err) == (kind == "apart"), err
    if kind == "apart":
        assert re.search(r"the mse_loss of \S+test_losses.py:\d+ is returned, but .*marked at "
                         r"\S+test_losses.py:\d+: it is not trained. Mark the sum of both", err)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_marked_losses_that_flow_into_one(order):
    def forward(m, x, y):
        out = x @ m.w
        losses = [F.cross_entropy(out, y), F.mse_loss(out, x)]
        losses.append(losses[0] * losses[1])
        for index in order:
            poptorch.identity_loss(losses[index], "none")
        return losses

    assert loss_node(forward) == "aten.mul.Tensor"


def test_a_standard_loss_within_a_standard_loss():
    def forward(m, x, y):
        inner = F.mse_loss(x @ m.w, x, reduction="none")
        return F.l1_loss(inner, torch.zeros_like(inner))

    assert "mean" in loss_node(forward)


@pytest.mark.parametrize("mark", [lambda loss: loss,
                                  lambda loss: poptorch.identity_loss(loss, "none")])
def test_independent_losses(mark):
    def forward(m, x, y):
        out = x @ m.w
        return out, mark(F.cross_entropy(out, y)), mark(F.mse_loss(out, x))

    with pytest.raises(poptorch.Error, match=r"Multiple independent losses found in graph.*"
                       r"test_losses.py:\d+ does not flow.*(Mark|Add)") as raised:
        loss_node(forward)
    assert "test_losses.py:" in raised.value.location


def mark(loss):
    return poptorch.identity_loss(loss, "sum")


def joined(*parts):
    return {"all": [(part,) for part in parts]}


# What forward makes of the loss, and what is minimised: "loss", "result", or the words of an error.
BESIDE = r"mse_loss of .*test_losses.py:\d+, which is returned too. .*mark it: .*detach\(\)"
SEVERAL = r"mse_loss of .*test_losses.py:\d+, and so is another result. .*mark it: .*detach\(\)"
MANY = (r"has [123] elements and is computed from the loss, the mse_loss of .*test_losses.py:\d+, "
        r"which itself is not returned. .*identity_loss\(result, reduction=\"mean\"\)")
RETURNED = {
    "alone": (lambda loss, w: loss, "loss"),
    "nested": (lambda loss, w: joined(loss * 2, loss), "loss"),
    "with a number computed from it": (lambda loss, w: (loss.exp(), loss), "loss"),
    "with a number without gradient": (lambda loss, w: (loss, loss.detach().exp()), "loss"),
    "with a sum": (lambda loss, w: joined(loss, (loss + w.sum()) * 2), BESIDE),
    "with a sum without gradient": (lambda loss, w: (loss, loss + w.detach().sum()), "loss"),
    "with several numbers": (lambda loss, w: (loss, loss + w), "loss"),
    "only a number without gradient": (lambda loss, w: loss.detach().exp(), "loss"),
    "not returned": (lambda loss, w: None, "loss"),
    "in another shape": (lambda loss, w: loss.reshape(1, 1).squeeze(0), "loss"),
    "in another type": (lambda loss, w: loss.double(), "loss"),
    "copied": (lambda loss, w: loss.clone(), "loss"),
    "among others": (lambda loss, w: torch.stack([loss * 2, loss]), "loss"),
    "joined with others": (lambda loss, w: torch.cat([loss.view(1), torch.ones(2)]), "loss"),
    "a changed one that is marked": (lambda loss, w: mark(loss * 2), "result"),
    "changed in place": (lambda loss, w: loss.mul_(2), "result"),
    "a sum": (lambda loss, w: loss * 2 + 1, "result"),
    "a sum twice": (lambda loss, w: [loss * 2 + 1] * 2, "result"),
    "a sum, nested": (lambda loss, w: joined(torch.ones(2), loss - w.sum()), "result"),
    "a sum, with the loss detached": (lambda loss, w: (loss + 1, loss.detach()), "result"),
    "a sum without dimension": (lambda loss, w: (loss + 1).reshape(1, 1), "result"),
    "a sum with tensors of it": (lambda loss, w: (loss + 1, loss * w), "result"),
    "a sum with another number": (lambda loss, w: (loss + 1, w.sum()), "result"),
    "a root": (lambda loss, w: loss.sqrt(), "result"),
    "two sums": (lambda loss, w: (loss + 1, loss.sqrt()), SEVERAL),
    "several numbers": (lambda loss, w: loss * torch.ones(3), MANY),
    "sums of parts": (lambda loss, w: torch.stack([loss + 1, torch.ones(())]), MANY),
    "changed in place and then changed": (lambda loss, w: loss.mul_(2) + 1, "result"),
}


@pytest.mark.parametrize("name", RETURNED)
def test_what_is_computed_from_the_loss(name):
    returned, minimised = RETURNED[name]

    def forward(m, x, y):
        return returned(F.mse_loss(x @ m.w, x), m.w)

    if minimised in ("loss", "result"):
        check_minimised(forward, lambda loss, results: loss if minimised == "loss" else results[0])
        return
    with pytest.raises(poptorch.Error, match=minimised) as raised:
        loss_node(forward)
    assert "test_losses.py:" in raised.value.location


def test_printed_losses():
    def printed(tensor):
        return poptorch.ipu_print_tensor(tensor, "loss")

    assert "print" not in loss_node(lambda m, x, y: printed(F.mse_loss(x @ m.w, x).view(1)))
    assert "print" in loss_node(lambda m, x, y: printed(F.mse_loss(x @ m.w, x) + 1))


def check_minimised(forward, choose):
    """The gradient is that of what ``choose`` takes of the last loss and the scalars returned."""
    module, x = Function(forward, {"w": torch.rand(3, 3)}), torch.rand(2, 3)
    y = torch.tensor([0, 2])
    _, loss, gradients, _ = captured_step(module, x, y)
    results = [leaf for leaf in pytree.tree_leaves(module(x, y))
               if leaf is not None and leaf.numel() == 1 and leaf.requires_grad]
    expected = choose(F.mse_loss(x @ module.w, x), results)
    (gradient,) = torch.autograd.grad(expected.sum(), [module.w])
    torch.testing.assert_close(loss.reshape(()), expected.detach().reshape(()))
    torch.testing.assert_close(gradients["w"], gradient)


# Numbers computed from several losses: the one that is returned is minimised.
OF_SEVERAL = {
    "a sum": lambda a, b, w: a - 0.1 * b,
    "a part of them": lambda a, b, w: (w, b * 2),
    "with metrics": lambda a, b, w: {"total": a + b, "a": a.detach(), "w": w},
    "a sum of a loss that is not reduced": lambda a, b, w: b + F.mse_loss(
        w, w * 2, reduction="none").mean(),
}


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_the_number_computed_from_several_losses(name):
    check_minimised(
        lambda m, x, y: OF_SEVERAL[name](F.mse_loss(x @ m.w, x), F.cross_entropy(x @ m.w, y), m.w),
        lambda loss, results: results[0])


def test_a_loss_beside_a_sum_of_it():
    with pytest.raises(poptorch.Error, match="Multiple independent losses found in graph"):
        loss_node(lambda m, x, y: (F.mse_loss(x @ m.w, x), F.cross_entropy(x @ m.w, y) * 2))


def test_the_sum_of_a_loss_that_was_changed_in_place():
    def forward(m, x, y):
        loss = F.mse_loss(x @ m.w, x)
        loss += F.l1_loss(m.w, torch.zeros(3, 3))
        return loss

    assert loss_node(forward) == "aten.add.Tensor"


UNREDUCED = {
    "mean": lambda o, y: F.cross_entropy(o, y, reduction="none").mean(),
    "masked": lambda o, y: (F.cross_entropy(o, y, reduction="none") * (y > 0)).sum(),
    "module": lambda o, y: torch.nn.MSELoss(reduction="none")(o, o * 2).sum(),
    "number": lambda o, y: F.cross_entropy(o[0], y[0], reduction="none"),
    "positional": lambda o, y: F.l1_loss(o, o * 2, None, None, "none"),
    "legacy": lambda o, y: F.cross_entropy(o, y, reduce=False).sum(),
    "gaussian": lambda o, y: F.gaussian_nll_loss(o, o * 2, o.exp(), reduction="none").mean(),
}


@pytest.mark.filterwarnings("ignore:size_average and reduce")
@pytest.mark.parametrize("name", UNREDUCED)
def test_a_loss_that_is_not_reduced_does_not_mark_itself(name):
    def forward(m, x, y):
        return UNREDUCED[name](x @ m.w, y)

    if name == "positional":  # still of several elements
        with pytest.raises(poptorch.Error, match=r"Couldn't find a loss in graph: the l1_loss of "
                           r".*test_losses.py:\d+ does not reduce .*identity_loss"):
            loss_node(forward)
    else:
        check_minimised(forward, lambda loss, results: results[0])
    loss_node(lambda m, x, y: poptorch.identity_loss(forward(m, x, y), "mean"))
    loss_node(lambda m, x, y: (forward(m, x, y), F.cross_entropy(x @ m.w, y)))
    with pytest.raises(poptorch.Error, match="Couldn't find a loss in graph"):
        loss_node(lambda m, x, y: (forward(m, x, y), None)[1])


@pytest.mark.filterwarnings("ignore:size_average and reduce")
@pytest.mark.parametrize("arguments", [{"size_average": False}, {"reduce": True},
                                       {"reduce": True, "reduction": "none"},
                                       {"reduction": "sum"}])
def test_a_loss_that_is_reduced_marks_itself(arguments):
    loss_node(lambda m, x, y: F.mse_loss(x @ m.w, x, **arguments))


def test_no_loss():
    with pytest.raises(poptorch.Error, match="Couldn't find a loss in graph.*identity_loss"):
        loss_node(lambda m, x, y: x @ m.w)


def test_a_loss_apart_from_all_parameters(capsys):
    net, x = torch.nn.Linear(3, 2), torch.rand(4, 3)
    net.forward = lambda x: F.mse_loss(F.linear(x, net.weight.detach()), torch.zeros(4, 2))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    options = quiet_options()
    model = poptorch.trainingModel(net, options, optimizer)
    for _ in range(2):
        torch.testing.assert_close(model(x), net(x))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert capsys.readouterr().err.count("does not depend on any parameter that requires grad: "
                                         "calls run forward and update nothing") == 1


def test_losses_and_scalars_that_are_all_marked():
    """As programs with several outputs do: the loss is the one that the others flow into."""
    def forward(m, x, y):
        out = x @ m.w
        mlm, nsp = F.cross_entropy(out, y), F.mse_loss(out, x)
        accuracy = (out.argmax(1) == y).float().mean()
        return [poptorch.identity_loss(value, "none")
                for value in (mlm * 2 + nsp, mlm, nsp, accuracy, accuracy)]

    assert loss_node(forward) == "aten.add.Tensor"


def test_no_parameter_to_train():
    module = Function(lambda m, x: F.mse_loss(x * m.w, x), {"w": torch.ones(3)})
    module.w.requires_grad_(False)
    captured = capture(module, (torch.ones(3),), training=True)
    assert [s.kind for s in captured.outputs] == ["output", "loss"]


def test_only_the_loss_is_differentiated():
    def forward(m, x, y):
        return (x @ m.w).exp(), F.mse_loss(x @ m.w, x)

    module = Function(forward, {"w": torch.ones(3, 3), "unused": torch.ones(2)})
    captured = capture(module, (torch.randn(2, 3), torch.tensor([0, 2])), training=True)
    assert [s.name for s in captured.outputs if s.kind == "grad"] == ["w"]
    exp = [n for n in captured.graph.nodes if n.target is torch.ops.aten.exp.default]
    assert len(exp) == 1 and all(user.op == "output" for user in exp[0].users)


def test_losses_of_inference_are_nothing_special():
    module = Function(lambda m, x: (F.mse_loss(x, x), F.l1_loss(x, x)))
    captured = capture(module, (torch.ones(3),), training=False)
    assert [s.kind for s in captured.outputs] == ["output", "output"]
