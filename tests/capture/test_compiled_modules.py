"""Functions and modules wrapped by torch.compile are captured as they were written."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options

compiled_frames = []


def backend(graph_module, example_inputs):
    compiled_frames.append(graph_module)
    return graph_module.forward


@torch.compile(backend=backend)
def squashed(x):
    return torch.tanh(x) * x.shape[0]


@torch.compile(backend=backend, fullgraph=True)
def whole(x):
    return torch.sigmoid(x) + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x, target):
        scores = self.second(self.between(self.norm(self.first(x))))
        return scores, nn.functional.cross_entropy(scores, target)

    def between(self, x):
        return x


class Decorated(Net):
    def between(self, x):
        return whole(squashed(x))


def in_place(net):
    net.compile(backend=backend)
    return net


def inner(net):
    net.first = torch.compile(net.first, backend=backend)
    return net


FORMS = {
    "module": lambda net: torch.compile(net, backend=backend),
    "module, full graph": lambda net: torch.compile(net, backend=backend, fullgraph=True),
    "in place": in_place,
    "inner module": inner,
    "functions": lambda net: Decorated(),
}


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()
    compiled_frames.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("form", FORMS)
def test_training_and_inference(form):
    module = FORMS[form](Net())
    eager = Decorated() if form == "functions" else Net()
    eager.load_state_dict(copy.deepcopy({name.replace("_orig_mod.", ""): value
                                         for name, value in module.state_dict().items()}))
    x, target = torch.randn(6, 4), torch.randint(0, 3, (6,))
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    model = poptorch.trainingModel(module, quiet_options(),
                                   torch.optim.SGD(module.parameters(), lr=0.1))
    for _ in range(2):
        results = model(x, target)
        assert not compiled_frames
        optimizer.zero_grad()
        with torch.compiler.set_stance("force_eager"):
            expected = eager(x, target)
        expected[1].backward()
        optimizer.step()
        torch.testing.assert_close(results, expected)
    for ours, other in zip(module.state_dict().values(), eager.state_dict().values()):
        torch.testing.assert_close(ours, other)
    results = poptorch.inferenceModel(module.eval(), quiet_options())(x, target)
    assert not compiled_frames
    with torch.compiler.set_stance("force_eager"):
        torch.testing.assert_close(results, eager.eval()(x, target))


def test_outside_it_is_compiled():
    poptorch.inferenceModel(Decorated(), quiet_options())(torch.ones(2, 4), torch.tensor([0, 1]))
    assert not compiled_frames
    squashed(torch.ones(2)), whole(torch.ones(2))
    assert len(compiled_frames) == 2
