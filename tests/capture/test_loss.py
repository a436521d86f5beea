"""Which tensor is differentiated."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function


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
                       r"test_loss.py:\d+ does not flow.*(Mark|Add)") as raised:
        loss_node(forward)
    assert "test_loss.py:" in raised.value.location


def joined(*parts):
    return {"all": [(part,) for part in parts]}


# What forward makes of the loss, and whether it is still the loss that is returned.
RETURNED = {
    "alone": (lambda loss: loss, True),
    "nested": (lambda loss: joined(loss * 2, loss), True),
    "with a number computed from it": (lambda loss: (loss.exp(), loss), True),
    "with a number without gradient": (lambda loss: (loss, loss.detach().exp()), True),
    "only a number without gradient": (lambda loss: loss.detach().exp(), True),
    "not returned": (lambda loss: None, True),
    "in another shape": (lambda loss: loss.reshape(1, 1).squeeze(0), True),
    "in another type": (lambda loss: loss.double(), True),
    "copied": (lambda loss: loss.clone(), True),
    "among others": (lambda loss: torch.stack([loss * 2, loss]), True),
    "joined with others": (lambda loss: torch.cat([loss.view(1), torch.ones(2)]), True),
    "a changed one that is marked": (lambda loss: poptorch.identity_loss(loss * 2, "none"), True),
    "changed in place": (lambda loss: loss.mul_(2), True),
    "a sum": (lambda loss: loss * 2 + 1, False),
    "a sum, nested": (lambda loss: joined(torch.ones(2), loss + 1), False),
    "a sum, with the loss detached": (lambda loss: (loss + 1, loss.detach()), False),
    "a sum without dimension": (lambda loss: (loss + 1).reshape(1, 1), False),
    "a root": (lambda loss: loss.sqrt(), False),
    "several numbers": (lambda loss: loss * torch.ones(3), False),
    "sums of parts": (lambda loss: torch.stack([loss + 1, torch.ones(())]), False),
    "changed in place and then changed": (lambda loss: loss.mul_(2) + 1, False),
}


@pytest.mark.parametrize("name", RETURNED)
def test_what_is_computed_from_the_loss_is_not_returned_in_its_stead(name):
    returned, is_loss = RETURNED[name]

    def forward(m, x, y):
        return returned(F.mse_loss(x @ m.w, x))

    if is_loss:
        loss_node(forward)
        return
    with pytest.raises(poptorch.Error, match=r"\[loss\] (result all.1.0 of forward|result 0 of "
                       r"forward|what forward returns) is computed from the loss, the mse_loss of "
                       r".*test_loss.py:\d+, which itself is not returned. .*identity_loss\("
                       r"result, reduction=\"mean\"\).*return it too, or detach\(\)") as raised:
        loss_node(forward)
    assert "test_loss.py:" in raised.value.location


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
    with pytest.raises(poptorch.Error, match=r"Couldn't find a loss in graph: the \w+_(loss|"
                       r"entropy) of .*test_loss.py:\d+ does not reduce .*identity_loss"):
        loss_node(lambda m, x, y: UNREDUCED[name](x @ m.w, y))
    loss_node(lambda m, x, y: poptorch.identity_loss(UNREDUCED[name](x @ m.w, y), "mean"))
    loss_node(lambda m, x, y: (UNREDUCED[name](x @ m.w, y), F.cross_entropy(x @ m.w, y)))


@pytest.mark.filterwarnings("ignore:size_average and reduce")
@pytest.mark.parametrize("arguments", [{"size_average": False}, {"reduce": True},
                                       {"reduce": True, "reduction": "none"},
                                       {"reduction": "sum"}])
def test_a_loss_that_is_reduced_marks_itself(arguments):
    loss_node(lambda m, x, y: F.mse_loss(x @ m.w, x, **arguments))


def test_no_loss():
    with pytest.raises(poptorch.Error, match="Couldn't find a loss in graph.*identity_loss"):
        loss_node(lambda m, x, y: x @ m.w)


def test_a_loss_apart_from_all_parameters():
    with pytest.raises(poptorch.Error, match="does not depend on any parameter"):
        loss_node(lambda m, x, y: F.mse_loss((x @ m.w).detach(), x))


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
