"""CTC loss, with lengths that are known and lengths that are not."""

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch._capture import capture
from poptorch._capture.library.layers import ops
from tests.capture.common import Function, check_training, nodes
from tests.capture.reference import captured_step
from tests.helpers import check_wide, quiet_options

TIME, BATCH, LABELS, LENGTH = 7, 4, 5, 3


def problem():
    log_probs = torch.randn(TIME, BATCH, LABELS, dtype=torch.float64)
    targets = torch.tensor([[1, 2, 2], [3, 3, 1], [4, 0, 0], [1, 2, 3]])
    return log_probs, targets, torch.tensor([7, 6, 5, 4]), torch.tensor([3, 3, 1, 0])


def module(**options):
    def forward(m, log_probs, targets, input_lengths, target_lengths):
        log_probs = (log_probs * m.w).log_softmax(-1)
        loss = F.ctc_loss(log_probs, targets, input_lengths, target_lengths, **options)
        return loss, poptorch.identity_loss(loss, "none")

    return Function(forward, {"w": torch.ones(1, dtype=torch.float64)})


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_lengths_of_each_call(reduction):
    captured = check_training(module(reduction=reduction), *problem())
    assert len(nodes(captured, ops.ctc_loss.default)) == 1
    assert len(nodes(captured, ops.ctc_loss_backward.default)) == 1
    assert len(captured.graph.nodes) < 40


def test_impossible_targets():
    log_probs, targets, input_lengths, target_lengths = problem()
    input_lengths[1] = 2
    check_training(module(zero_infinity=True), log_probs, targets, input_lengths, target_lengths)


@pytest.mark.parametrize("zero_infinity", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_numbers_that_are_no_log_probabilities(zero_infinity, reduction):
    def forward(m, numbers, targets, input_lengths, target_lengths):
        loss = F.ctc_loss(numbers * m.w, targets, input_lengths, target_lengths,
                          zero_infinity=zero_infinity, reduction=reduction)
        return loss, poptorch.identity_loss(loss, "none")

    numbers, targets, input_lengths, target_lengths = problem()
    model = Function(forward, {"w": torch.full_like(numbers, 3.0)})
    check_training(model, numbers, targets, input_lengths, target_lengths)
    input_lengths[1] = 2  # too few for its targets
    if zero_infinity:
        check_training(model, numbers, targets, input_lengths, target_lengths)
        return
    arguments = numbers, targets, input_lengths, target_lengths
    found = captured_step(model, *arguments)[2]["w"]
    model(*arguments)[1].sum().backward()
    expected = model.w.grad
    assert expected.isnan().any() and torch.equal(found.isnan(), expected.isnan())
    check_wide(found.nan_to_num(), expected.nan_to_num())


def test_lengths_known_when_compiling():
    log_probs, targets, input_lengths, target_lengths = problem()
    packed = torch.cat([row[:n] for row, n in zip(targets, target_lengths)])
    for which, lengths in ((targets, (input_lengths, target_lengths)),
                           (packed, (input_lengths.tolist(), tuple(target_lengths.tolist())))):
        def forward(m, log_probs, targets):
            loss = F.ctc_loss((log_probs * m.w).log_softmax(-1), targets, *lengths)
            return loss, poptorch.identity_loss(loss, "none")

        check_training(Function(forward, {"w": torch.ones(1, dtype=torch.float64)}),
                       log_probs, which)


def test_one_sequence_without_batch():
    check_training(module(), *(t[0] if t.dim() < 3 else t[:, 0] for t in problem()))


def test_targets_without_padding():
    log_probs, targets, input_lengths, target_lengths = problem()
    packed = torch.cat([row[:n] for row, n in zip(targets, target_lengths)])
    check_training(module(), log_probs, packed, input_lengths, target_lengths)
    model = poptorch.inferenceModel(F.ctc_loss, quiet_options())
    given = log_probs.float().log_softmax(-1), packed, input_lengths
    torch.testing.assert_close(model(*given, target_lengths),
                               F.ctc_loss(*given, target_lengths), atol=1e-5, rtol=1e-5)
    target_lengths[0] += 1
    with pytest.raises(poptorch.Error, match=rf"\[ctc_loss\] the sum of target_lengths is not "
                                             rf"{len(packed)}, the number of targets"):
        model(*given, target_lengths)


@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_run(dtype, limit):
    """16-bit numbers, which eager refuses, are computed in float32."""
    log_probs, targets, *lengths = problem()
    net = module(reduction="none", zero_infinity=True)
    net.w = torch.nn.Parameter(net.w.detach().to(dtype))
    before, w = net.w.item(), net.w.detach().float().requires_grad_()
    given = log_probs.to(dtype)
    for ends in (lengths, [torch.tensor([2, 6, 5, 0]), lengths[1]]):
        expected = F.ctc_loss((given.float() * w).log_softmax(-1), targets, *ends,
                              reduction="none", zero_infinity=True)
        gradient, = torch.autograd.grad(expected.sum(), w)
        model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 1.0))
        found, _ = model(given, targets, *ends)
        assert found.dtype is dtype
        torch.testing.assert_close(found.float(), expected.detach(), rtol=limit, atol=limit)
        torch.testing.assert_close(before - net.w.float().item(), gradient.item(),
                                   rtol=limit, atol=limit * 3)
        model.destroy()
        with torch.no_grad():
            net.w.fill_(before)


@pytest.mark.parametrize("at, value, words", [
    (2, [8, 6, 5, 4], "the input length 8 of sequence 0 is out of range: there are 7 steps"),
    (3, [3, 4, 1, 0], "the target length 4 of sequence 1 is out of range: targets have room for 3"),
    (1, [[1, 2, 5]] * 4, "the label 5 of sequence 0 is out of range: there are 5 classes"),
])
def test_what_is_out_of_range(at, value, words):
    arguments = [*problem()]
    arguments[0], arguments[at] = arguments[0].float(), torch.tensor(value)
    net = Function(lambda m, *args: F.ctc_loss(*args))
    with pytest.raises(poptorch.Error, match=words):
        poptorch.inferenceModel(net, quiet_options())(*arguments)
