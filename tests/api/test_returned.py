"""The tensors that a call returns."""

import copy
import io
import pickle

import pytest
import torch

import poptorch
from poptorch import Error
from tests.helpers import quiet_options

X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture
def result():
    return poptorch.inferenceModel(torch.nn.Linear(3, 1), quiet_options())(X)


def test_backward_is_refused(result):
    words = r"backward\(\) cannot be called explicitly on outputs of a PopTorch model"
    with pytest.raises(Error, match=words):
        result.sum(0, keepdim=True)
        result.backward()
    net = torch.nn.Linear(3, 1)
    net.forward = lambda x: poptorch.identity_loss(torch.nn.functional.linear(x, net.weight),
                                                   "mean")
    with pytest.raises(Error, match=words):
        poptorch.trainingModel(net, quiet_options())(X).backward()


def test_uses(result):
    assert isinstance(result, torch.Tensor) and not result.requires_grad
    assert result.numpy().shape == (2, 1)
    assert (result == result.clone()).all() and torch.equal(result.detach(), result)
    assert repr(result).startswith("tensor([[") and str(result) == str(result.clone())
    assert f"{result[0, 0]:.3f}" == f"{result[0, 0].item():.3f}"


def test_computed_results_are_plain(result):
    weight = torch.ones(1, requires_grad=True)
    for computed in (result + 1, result[0], result.detach(), result.clone(), result * weight,
                     torch.cat([result, result])):
        assert type(computed) is torch.Tensor
    (result * weight).sum().backward()
    assert torch.allclose(weight.grad, result.sum())


def test_copies_are_plain(result):
    stream = io.BytesIO()
    torch.save({"y": result}, stream)
    stream.seek(0)
    for copied in (copy.deepcopy(result), pickle.loads(pickle.dumps(result)),
                   torch.load(stream, weights_only=True)["y"]):
        assert type(copied) is torch.Tensor and torch.equal(copied, result)


def test_results_are_inputs_of_other_models(result):
    again = poptorch.inferenceModel(torch.nn.ReLU(), quiet_options())
    for _ in range(2):
        assert torch.equal(again(result), result.relu())


@pytest.mark.parametrize("name", ["max", "min", "sort", "topk", "median", "cummax"])
def test_operations_with_several_results_give_tuples(name):
    def forward(x):
        return getattr(x, name)(2, dim=1) if name == "topk" else getattr(x, name)(dim=1)

    module = torch.nn.Module()
    module.forward = lambda x: {"found": forward(x), "first": forward(x)[0]}
    x = torch.randperm(12).reshape(3, 4).float()  # without ties
    result = poptorch.inferenceModel(module, quiet_options())(x)
    values, indices = result["found"]
    assert isinstance(result["found"], tuple) and indices.dtype is torch.int32
    assert torch.equal(values, forward(x)[0]) and torch.equal(indices.long(), forward(x)[1])
    assert torch.equal(result["first"], values)


@pytest.mark.parametrize("right, equal", [(torch.float32, True), (torch.float16, False)])
def test_numbers_are_compared_after_narrowing(right, equal):
    module = torch.nn.Module()
    module.forward = lambda a, b: a == b
    left = torch.tensor(550.4, dtype=torch.float64)
    model = poptorch.inferenceModel(module, quiet_options())
    assert model(left, torch.tensor(550.4, dtype=right)).item() is equal
