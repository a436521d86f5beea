"""Tables of embeddings with gradients that are sparse in eager, and sparse buffers."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from tests.helpers import quiet_options


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 3, padding_idx=0, max_norm=1.0, sparse=True)
        self.bags = nn.EmbeddingBag(7, 3, mode="sum", sparse=True)
        self.counted = nn.EmbeddingBag(7, 3, scale_grad_by_freq=True, sparse=False)
        self.other = nn.Parameter(torch.randn(7, 3))

    def forward(self, rows):
        found = self.words(rows) * self.bags(rows)[:, None] + self.counted(rows)[:, None]
        found = found + F.embedding(rows, self.other, sparse=True)
        found = found * torch.embedding(self.other, rows, -1, False, True)
        return poptorch.identity_loss(found.pow(2).sum(), "none")


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_tables_with_sparse_gradients_train_as_in_eager(momentum):
    module = Tables().double()
    eager = copy.deepcopy(module)
    settings = {"lr": 0.01, "momentum": momentum}
    optimizer = torch.optim.SGD(eager.parameters(), **settings)
    with poptorch.testing.wide():
        model = poptorch.trainingModel(module, quiet_options(),
                                       torch.optim.SGD(module.parameters(), **settings))
        for _ in range(3):
            rows = torch.randint(0, 7, (2, 4))
            optimizer.zero_grad()
            expected = eager(rows)
            expected.backward()
            optimizer.step()
            torch.testing.assert_close(model(rows), expected)
        torch.testing.assert_close(module.state_dict(), eager.state_dict())


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 2))
        self.register_buffer("adjacency", torch.eye(3).to_sparse())

    def forward(self, x):
        found = torch.sparse.mm(self.adjacency, x @ self.weight)
        return poptorch.identity_loss(found.sum(), "none")


@pytest.mark.parametrize("wrap", [poptorch.trainingModel, poptorch.inferenceModel])
def test_a_sparse_buffer_is_refused_by_its_name(wrap):
    with pytest.raises(poptorch.Error, match=r"\[0.adjacency\] expected a dense tensor but got one "
                       r"of layout torch.sparse_coo. Pass 0.adjacency.to_dense\(\)"):
        wrap(nn.Sequential(Graph()), quiet_options())(torch.ones(3, 3))
