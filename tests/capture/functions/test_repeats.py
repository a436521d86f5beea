"""Functions to which a tensor says how long results are."""

import pytest
import torch
from torch import nn

import poptorch
from poptorch import Error
from tests.capture.common import Function
from tests.helpers import quiet_options

X, R = torch.arange(8.0).reshape(2, 4), torch.tensor([1, 2, 0, 3])


def run(function, *args):
    module = Function(lambda m, *args: function(*args))
    return poptorch.inferenceModel(module, quiet_options())(*args)


CASES = {
    "along a dimension": lambda x, r: torch.repeat_interleave(x, r, 1, output_size=6),
    "negative dimension": lambda x, r: x.repeat_interleave(repeats=r, dim=-1, output_size=6),
    "of all elements": lambda x, r: x.repeat_interleave(r.repeat(2), output_size=12),
    "one number": lambda x, r: x.repeat_interleave(r[3], 0, output_size=6),
    "one number in a dimension": lambda x, r: x.repeat_interleave(r[3:], 0, output_size=6),
    "numbers of parts": lambda x, r: torch.repeat_interleave(r, output_size=6),
    "int32": lambda x, r: torch.repeat_interleave(r.int(), output_size=6),
    "no dimensions": lambda x, r: x[0, 1].repeat_interleave(r[3], output_size=3),
    "nothing": lambda x, r: x[:, :0].repeat_interleave(r[:0], 1, output_size=0),
    "constant": lambda x, r: x.repeat_interleave(torch.tensor([2, 0]), 0),
    "constant number": lambda x, r: x.repeat_interleave(torch.tensor(2)),
    "constant with a size": lambda x, r: x.repeat_interleave(torch.tensor([2, 0]), 0,
                                                            output_size=2),
    "parts of constants": lambda x, r: r[0] + torch.repeat_interleave(torch.tensor([2, 0])),
    "number of Python": lambda x, r: x.repeat_interleave(2, 0),
    "split at constants": lambda x, r: torch.tensor_split(x, torch.tensor([1, 3]), dim=1),
    "split into a constant": lambda x, r: x.tensor_split(torch.tensor(3), 1),
    "split by name": lambda x, r: torch.tensor_split(x, tensor_indices_or_sections=torch.tensor(2)),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    expected, found = CASES[name](X, R), run(CASES[name], X, R)
    if isinstance(expected, torch.Tensor):
        expected, found = [expected], [found]
    assert len(found) == len(expected)
    for ours, eager in zip(found, expected):
        assert torch.equal(ours, eager.int() if eager.dtype is torch.int64 else eager)


def test_gradients():
    def trained(run, x):
        weight = nn.Parameter(X.clone())
        module = Function(lambda m, r: poptorch.identity_loss(
            (m.w.repeat_interleave(r, 1, output_size=6) * x).sum(), "none"), {"w": weight})
        run(module)
        return module.w.detach()

    def on_device(module):
        optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
        model = poptorch.trainingModel(module, quiet_options(), optimizer)
        model(R)
        model.copyWeightsToHost()

    def on_the_host(module):
        module(R).backward()
        torch.optim.SGD(module.parameters(), lr=1.0).step()

    x = torch.randn(2, 6)
    torch.testing.assert_close(trained(on_device, x), trained(on_the_host, x))


@pytest.mark.parametrize("repeats", [[1, 2, 0, 2], [1, 2, 0, 4], [2, 2, 3, -1]])
def test_another_sum_is_an_error(repeats):
    function = CASES["along a dimension"]
    model = poptorch.inferenceModel(Function(lambda m, x, r: function(x, r)), quiet_options())
    for _ in range(2):
        with pytest.raises(Error, match=r"\[repeat_interleave\] output_size is 6, but the repeats "
                                        r"add up to another number, or one of them is negative\."):
            model(X, torch.tensor(repeats))
        assert torch.equal(model(X, R), function(X, R))


def test_refusals():
    with pytest.raises(Error, match="output_size is 3, but the repeats add up to 2. Pass the sum"):
        run(lambda x: x.repeat_interleave(torch.tensor([2, 0]), 0, output_size=3), X)
    with pytest.raises(Error, match="shape of the result depends on the values"):
        run(lambda x, r: x.repeat_interleave(r, 1), X, R)
    with pytest.raises(Error, match=r"\[tensor_split\] the places at which it splits are a tensor, "
                                    "but forward is compiled before there are values. Pass a list"):
        run(lambda x, r: torch.tensor_split(x, r), X, R)
    with pytest.raises(Error, match=r"\[hash_tensor\] the result is an unsigned number of 64 bits"):
        run(torch.hash_tensor, X)
