"""ctc_beam_search_decoder: against a search written plainly, and against all labellings."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import quiet_options
from tests.public_ops.beam_search import decoded


class Decoder(torch.nn.Module):
    """Decodes scores."""

    def __init__(self, **settings):
        super().__init__()
        self.settings = settings

    def forward(self, scores, lengths):
        return poptorch.ctc_beam_search_decoder(scores.log_softmax(2), lengths, **self.settings)


def _check(found, probs, lengths, **settings):
    expected = decoded(probs, lengths, **settings)
    torch.testing.assert_close(list(found), list(expected))


@pytest.mark.parametrize("settings", [
    {}, {"beam_width": 1}, {"beam_width": 3, "top_paths": 3}, {"blank": 4, "top_paths": 5},
    {"blank": 2, "beam_width": 7, "top_paths": 7}])
@pytest.mark.parametrize("sharp", [0.5, 3.0])
def test_as_told(settings, sharp):
    scores, lengths = sharp * torch.randn(12, 4, 5), torch.tensor([12, 0, 1, 7])
    found = poptorch.inferenceModel(Decoder(**settings), quiet_options())(scores, lengths)
    _check(found, scores.log_softmax(2), lengths, **settings)
    _check(Decoder(**settings)(scores, lengths), scores.log_softmax(2), lengths, **settings)
    assert [t.dtype for t in found] == [torch.float32, torch.int32, torch.int32]


def test_labels_that_come_and_go():
    """A prefix that has left the beam may come back, while longer ones stayed."""
    for _ in range(20):
        probs = (2 * torch.randn(25, 3, 3)).log_softmax(2)
        lengths = torch.tensor([25, 25, 20], dtype=torch.int32)
        settings = {"beam_width": 4, "top_paths": 4}
        _check(poptorch.ctc_beam_search_decoder(probs, lengths, **settings), probs, lengths,
               **settings)


def test_a_wide_beam_is_exact():
    """The probabilities are those of CTC loss, and no labelling is likelier."""
    time, classes = 4, 3
    probs = torch.randn(time, 1, classes).log_softmax(2)
    labellings = [labels for n in range(time + 1)
                  for labels in itertools.product(range(1, classes), repeat=n)]
    losses = [F.ctc_loss(probs, torch.tensor([[*labels, *[1] * (time - len(labels))]]),
                         torch.tensor([time]), torch.tensor([len(labels)]), reduction="none").item()
              for labels in labellings]
    possible = sorted((loss, labels) for loss, labels in zip(losses, labellings)
                      if loss < math.inf)
    count = len(possible)
    totals, lengths, paths = poptorch.ctc_beam_search_decoder(
        probs, torch.tensor([time]), beam_width=200, top_paths=count + 2)
    torch.testing.assert_close(totals[0, :count], -torch.tensor([loss for loss, _ in possible]))
    assert [tuple(path[:n]) for path, n in zip(paths[0].tolist(), lengths[0].tolist())][:count] \
        == [labels for _, labels in possible]
    assert totals[0, count:].tolist() == [-math.inf] * 2 and lengths[0, count:].tolist() == [0, 0]
    torch.testing.assert_close(totals.exp().sum(), torch.tensor(1.0))


def test_equal_ones_are_in_lexicographic_order():
    probs = torch.full((2, 1, 3), 1 / 3).log()
    totals, lengths, paths = poptorch.ctc_beam_search_decoder(
        probs, torch.tensor([2]), top_paths=5)
    found = [tuple(path[:n]) for path, n in zip(paths[0].tolist(), lengths[0].tolist())]
    assert found == [(1,), (2,), (), (1, 2), (2, 1)]
    torch.testing.assert_close(totals[0].exp() * 9, torch.tensor([3.0, 3.0, 1.0, 1.0, 1.0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits(dtype):
    probs = torch.randn(6, 2, 4).log_softmax(2).to(dtype)
    lengths = torch.tensor([6, 3])
    for run in (poptorch.ctc_beam_search_decoder,
                poptorch.inferenceModel(_Plain(), quiet_options())):
        totals, counts, paths = run(probs, lengths)
        expected = decoded(probs.float(), lengths)
        assert totals.dtype is dtype and torch.equal(totals, expected[0].to(dtype))
        assert torch.equal(counts, expected[1]) and torch.equal(paths, expected[2])


class _Plain(torch.nn.Module):
    def forward(self, probs, lengths):
        return poptorch.ctc_beam_search_decoder(probs, lengths)


def test_impossible_labels():
    probs = torch.full((3, 1, 3), -torch.inf)
    totals, lengths, paths = poptorch.ctc_beam_search_decoder(probs, torch.tensor([3]), blank=2)
    assert (totals.item(), lengths.item(), paths.tolist()) == (-math.inf, 0, [[[2, 2, 2]]])
    probs[:, 0, 1] = 0
    totals, lengths, paths = poptorch.ctc_beam_search_decoder(probs, torch.tensor([3]), blank=2)
    assert (totals.item(), lengths.item(), paths.tolist()) == (0, 1, [[[1, 2, 2]]])


@pytest.mark.parametrize(("value", "length", "words"), [
    (torch.nan, 4, "probs hold nan in step 1 of sequence 1"),
    (torch.inf, 4, "probs hold inf in step 1"),
    (0.0, 5, "the length 5 of sequence 1 is out of range: there are 4 steps"),
    (0.0, -1, "the length -1 of sequence 1"),
])
def test_values_that_are_refused(value, length, words):
    probs, lengths = torch.zeros(4, 2, 3), torch.tensor([4, length])
    probs[1, 1, 0] = value
    model = poptorch.inferenceModel(_Plain(), quiet_options())
    for run in (model, poptorch.ctc_beam_search_decoder):
        with pytest.raises(poptorch.Error, match=rf"\[ctc_beam_search_decoder\] {words}"):
            run(probs, lengths)
        run(torch.zeros(4, 2, 3), torch.tensor([4, 4]))


P, L = torch.zeros(4, 2, 3), torch.tensor([4, 4])


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize(("call", "words"), [
    (lambda f: f(P[0], L), r"probs are of torch.float32 and sizes \[2, 3\]"),
    (lambda f: f(P.int(), L), "probs are of torch.int32"),
    (lambda f: f(P, L[:1]), r"lengths are of torch.int64 and sizes \[1\], probs have a batch of 2"),
    (lambda f: f(P, L.float()), "lengths are of torch.float32"),
    (lambda f: f(P, L, 3), "blank is 3, but there are 3 classes"),
    (lambda f: f(P, L, 0.0), "blank is 0.0, but an int is needed"),
    (lambda f: f(P, L, top_paths=0), "top_paths is 0 and beam_width is 100"),
    (lambda f: f(P, L, 0, 2, 3), "top_paths is 3 and beam_width is 2"),
])
def test_arguments_that_are_refused(call, words, is_compiled):
    class Net(torch.nn.Module):
        def forward(self, x):
            call(poptorch.ctc_beam_search_decoder)
            return x

    run = poptorch.inferenceModel(Net(), quiet_options()) if is_compiled else Net()
    with pytest.raises(poptorch.Error, match=rf"\[ctc_beam_search_decoder\] {words}"):
        run(torch.zeros(1))
