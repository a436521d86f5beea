"""int32 classes and positions where PyTorch takes int64 alone: as if they were int64.

``make operators`` tries every operator with int32 in the place of int64.
"""

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import Applied, quiet_options

X = torch.linspace(-1, 1, 12).reshape(3, 4)
ROWS = torch.tensor([2, 0, 1])
PLACES = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 0], [1, 0, 0, 2]])
CALLS = {
    "cross_entropy": lambda x, rows, places: F.cross_entropy(x, rows, ignore_index=1),
    "nll_loss": lambda x, rows, places: F.nll_loss(x, rows, weight=X[0].abs()),
    "nll_loss of images": lambda x, rows, places: F.nll_loss(x[..., None], rows[:, None]),
    "multi_margin_loss": lambda x, rows, places: F.multi_margin_loss(x, rows),
    "multilabel_margin_loss": lambda x, rows, places: F.multilabel_margin_loss(x, places),
    "CrossEntropyLoss": lambda x, rows, places: torch.nn.CrossEntropyLoss()(x, rows),
    "one_hot": lambda x, rows, places: x * F.one_hot(rows, 4),
    "take": lambda x, rows, places: x.take(places), "torch.take": lambda x, r, p: torch.take(x, r),
    "take_along_dim": lambda x, rows, places: x.take_along_dim(places, 0),
    "gather": lambda x, rows, places: x.gather(0, places),
    "scatter": lambda x, rows, places: x.scatter(0, places, x * 2),
    "scatter_add_": lambda x, rows, places: (x * 1).scatter_add_(0, places, x),
    "index_select": lambda x, rows, places: x.index_select(0, rows), "x[i]": lambda x, r, p: x[r],
    "index_put": lambda x, rows, places: x.index_put((rows, rows), x[:, 0], accumulate=True),
    "index_add": lambda x, rows, places: x.index_add(0, rows, x * 2),
    "index_fill": lambda x, rows, places: x.index_fill(1, rows[:2], 5.0),
    "index_fill_": lambda x, rows, places: (x * 1).index_fill_(1, rows[:2], 5.0),
    "index_copy": lambda x, rows, places: x.index_copy(0, rows[:2], x[1:] * 3),
    "put": lambda x, rows, places: x.put(rows, x[0, :3]),
    "embedding": lambda x, rows, places: F.embedding(places, x),
    "embedding_bag": lambda x, rows, places: F.embedding_bag(places, x),
    "max_unpool1d": lambda x, rows, places: F.max_unpool1d(x[None], places[None], 2),
    "gather of take": lambda x, rows, places: x.gather(1, places).take(rows),
    "ctc_loss": lambda x, rows, places: F.ctc_loss(
        x.log_softmax(1)[:, None], rows[None, :1] + 1, rows[1:2] + 3, rows[1:2] + 1),
}


class Calls(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call, self.x = call, torch.nn.Parameter(X.clone())

    def forward(self, rows, places):
        return poptorch.identity_loss((self.call(self.x, rows, places) * 1.5).sum(), "none")


@pytest.mark.parametrize("name", CALLS)
def test_int32_is_taken_as_int64(name):
    module = Calls(CALLS[name])
    expected = CALLS[name](module.x, ROWS, PLACES)
    (expected * 1.5).sum().backward()
    with poptorch.testing.keep_gradients():
        model = poptorch.trainingModel(module, quiet_options())
        loss = model(ROWS.int(), PLACES.int())
        gradient = poptorch.testing.gradients(model)["x"]
    torch.testing.assert_close(loss, (expected * 1.5).sum().detach())
    torch.testing.assert_close(gradient, module.x.grad)


def test_results_of_an_executor_are_classes_of_the_next():
    labels = poptorch.inferenceModel(Applied(lambda x: x.argmax(1)), quiet_options())(X)
    assert labels.dtype is torch.int32
    loss = poptorch.inferenceModel(Applied(F.cross_entropy), quiet_options())(X, labels)
    torch.testing.assert_close(loss, F.cross_entropy(X, labels.long()))


def test_a_tensor_that_is_changed_is_not_copied():
    x, places = torch.zeros(4, dtype=torch.int32), torch.tensor([1, 3], dtype=torch.int32)
    model = poptorch.inferenceModel(
        Applied(lambda x, places: x.put_(places, places * 2)), quiet_options())
    assert model(x, places).tolist() == [0, 2, 0, 6] == x.tolist()


def test_other_refusals_keep_their_words():
    model = poptorch.inferenceModel(Applied(F.cross_entropy), quiet_options())
    with pytest.raises(poptorch.Error, match="target 9 .* is not a class"):
        model(X, torch.tensor([1, 2, 9], dtype=torch.int32))
    model = poptorch.inferenceModel(Applied(torch.take), quiet_options())
    with pytest.raises(RuntimeError, match="[Ee]xpected a long tensor"):
        model(X, torch.ones(2))
