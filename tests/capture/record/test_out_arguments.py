"""Empty tensors that are passed as ``out=``, and functions that change lists of tensors."""

import copy

import pytest
import torch

import poptorch
from tests.capture.common import Function
from tests.helpers import quiet_options

X = torch.linspace(-2, 2, 24).reshape(4, 6)


def of_int(function, *rest):
    def call(x, out):
        indices = torch.empty(0, dtype=torch.int64)
        function(x, *rest, out=(out, indices))
        return out * 2, indices.int() + 1

    return call


def of_bool(x, out):
    found = torch.empty(0, dtype=torch.bool)
    torch.gt(x, 0, out=found)
    return found


CALLS = {
    "add": lambda x, out: torch.add(x, 1, out=out),
    "used": lambda x, out: (torch.mul(x, x, out=out), out.t() + out.sum())[1],
    "changed": lambda x, out: (torch.mul(x, x, out=out), out[1:].mul_(2), out)[2],
    "product": lambda x, out: (torch.mm(x, x.t(), out=out), out)[1],
    "concatenation": lambda x, out: (torch.cat([x, x], out=out), out)[1],
    "sum": lambda x, out: (torch.sum(x, 0, out=out), out)[1],
    "composite": lambda x, out: (torch.matmul(x, x[0], out=out), out)[1],
    "decomposed": lambda x, out: (torch.logaddexp(x, x, out=out), out)[1],
    "from nothing": lambda x, out: (torch.arange(5, out=out), out + x.sum())[1],
    "twice": lambda x, out: (torch.add(x, 1, out=out), torch.mul(out, 2, out=out))[1],
    "maximum": of_int(torch.max, 0),
    "largest": of_int(torch.topk, 2),
    "sorted": of_int(torch.sort),
    "bool": of_bool,
    "another type": lambda x, out: (lambda wide: torch.add(x, 1, out=wide).to(x.dtype))(
        torch.empty(0, dtype=torch.float64)),
}
MAKERS = {"empty": lambda x: torch.empty(0, dtype=x.dtype), "like": lambda x: x.new_empty(0),
          "zeros": lambda x: x.new_zeros(0, 3), "constant": lambda x: torch.tensor([]).to(x.dtype)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("name", CALLS)
def test_the_shape_of_the_result(name, maker, dtype):
    def forward(m, x):
        return CALLS[name](x, MAKERS[maker](x))

    x = X.to(dtype)
    found = poptorch.inferenceModel(Function(forward), quiet_options())(x)
    torch.testing.assert_close(found, forward(None, x))


REFUSED = {
    r"shape \[0\] but the result has \[4, 6\]": lambda m, x, out: torch.add(x, 1, out=out),
    r"shape \[24\] but the result has \[4, 6\]":
        lambda m, x, out: torch.add(x, 1, out=torch.zeros(24)),
    r"shape \[0, 6\] but the result has \[4, 6\]":
        lambda m, x, out: torch.add(x, 1, out=(x * 2)[1:1]),
    "result type Float can't be cast": lambda m, x, out: torch.add(
        x, 1, out=torch.empty(0, dtype=torch.int64)),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_resized(words):
    with pytest.raises(poptorch.Error, match=f"(?s){words}.*\n  at .*test_out_arguments.py:"):
        poptorch.inferenceModel(Function(REFUSED[words]), quiet_options())(X, torch.zeros(0))


def each(name, *rest):
    return lambda x, w: getattr(torch, f"_foreach_{name}_")(
        [x], *([w + 2] if item is torch.Tensor else item for item in rest))


LISTS = {
    "add": each("add", 2.0), "add each": each("add", [2.0]),
    "add tensors": each("add", torch.Tensor),
    "sub": each("sub", torch.Tensor), "mul": each("mul", torch.Tensor), "div": each("div", 3.0),
    "copy": each("copy", torch.Tensor), "zero": each("zero"), "neg": each("neg"),
    "exp": each("exp"), "sigmoid": each("sigmoid"), "clamp_min": each("clamp_min", 0.5),
    "maximum": each("maximum", torch.Tensor), "lerp": each("lerp", torch.Tensor, 0.25),
    "addcmul": each("addcmul", torch.Tensor, torch.Tensor, 0.5),
    "addcdiv": each("addcdiv", torch.Tensor, torch.Tensor, 0.5), "pow": each("pow", 2),
    "polygamma": lambda x, w: x.abs_().add_(1).polygamma_(1),
}


class Listed(torch.nn.Module):
    """Changes an input and a buffer; in training a view of what its weight gives."""

    def __init__(self, change, is_trained):
        super().__init__()
        self.weight = torch.nn.Parameter(X / 3)
        self.register_buffer("sums", X * 0.7)
        self.change, self.is_trained = change, is_trained

    def forward(self, x):
        with torch.no_grad():
            self.change(x, self.weight)
            self.change(self.sums, self.weight)
        y = self.sums * self.weight
        if self.is_trained:
            part = y.t()[::2]
            self.change(part.t(), self.weight[:, ::2])
            y = y + part.sum()
        loss = (y * torch.arange(24.0).reshape(4, 6)).sum()
        return y.detach(), poptorch.identity_loss(loss, "none")


@pytest.mark.parametrize("name, is_trained", [
    (name, is_trained) for name in LISTS for is_trained in (False, True)
    if not (name == "copy" and is_trained)])  # which has no gradient in PyTorch
def test_lists_that_change(name, is_trained):
    net = Listed(LISTS[name], is_trained)
    eager, ours, theirs = copy.deepcopy(net), X.clone(), X.clone()
    expected, loss = eager(theirs)
    if is_trained:
        loss.backward()
        with torch.no_grad():
            eager.weight -= 0.01 * eager.weight.grad
        model = poptorch.trainingModel(
            net, quiet_options(), torch.optim.SGD(net.parameters(), 0.01))
    else:
        model = poptorch.inferenceModel(net, quiet_options())
    found, _ = model(ours)
    model.copyWeightsToHost()
    for a, b in ((found, expected), (ours, theirs), (net.sums, eager.sums),
                 (net.weight, eager.weight)):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("words, call", [
    ("more than once", lambda m, x: torch._foreach_add_([x, x], 1.0)),
    ("result type Float can't be cast to the desired output type Int",
     lambda m, x: torch._foreach_add_([x.int()], [x])),
])
def test_lists_that_are_refused(words, call):
    with pytest.raises(poptorch.Error, match=f"(?s){words}"):
        poptorch.inferenceModel(Function(call), quiet_options())(X.clone())
