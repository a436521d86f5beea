"""Operands of several types: results and gradients of eager's types and values."""

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch._capture.decompose.table import DECOMPOSITIONS
from tests.helpers import quiet_options

aten = torch.ops.aten
FLOATS = [torch.float16, torch.bfloat16, torch.float32]


class Loss(torch.nn.Module):
    """A loss of a parameter and a target."""

    def __init__(self, function, x, reduction):
        super().__init__()
        self.function, self.reduction = function, reduction
        self.x = torch.nn.Parameter(x)

    def forward(self, target):
        y = self.function(self.x, target, reduction=self.reduction)
        return y, poptorch.identity_loss(y.float().sum(), reduction="none")


def trained(net, target):
    with poptorch.testing.keep_gradients():
        model = poptorch.trainingModel(
            net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.0))
        y, _ = model(target)
        return y, poptorch.testing.gradients(model)["x"]


@pytest.mark.sampled
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("function", [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.l1_loss])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_losses_of_targets_of_other_types(function, dtype, reduction):
    x = 3 * torch.randn(4, 5)
    for other in (torch.int64, torch.int32, torch.uint8, *FLOATS):
        target = torch.randint(0, 4, (4, 5)).to(other)
        net, wide = (Loss(function, x.to(dtype).to(t), reduction) for t in (dtype, torch.float64))
        wide(target.double())[1].backward()
        expected = net(target)
        try:
            expected[1].backward()
        except RuntimeError:
            continue  # eager refuses it
        y, gradient = trained(Loss(function, x.to(dtype), reduction), target)
        assert (y.dtype, gradient.dtype) == (expected[0].dtype, dtype), other
        for ours, exact in ((y, wide(target.double())[0]), (gradient, wide.x.grad)):
            error = (ours.double() - exact).abs().max()
            assert error <= 2 * torch.finfo(dtype).eps * exact.abs().max(), other


@pytest.mark.parametrize("wrong, words", [
    (lambda x: x.diagonal().sum().double(), "torch.float64[] as result 0, PyTorch gives "
                                            "torch.float32[]"),
    (lambda x: x.diagonal(), "torch.float32[3] as result 0, PyTorch gives torch.float32[]"),
])
def test_a_decomposition_of_another_type_is_no_silent_one(monkeypatch, wrong, words):
    monkeypatch.setitem(DECOMPOSITIONS, aten.trace.default, wrong)

    class Trace(torch.nn.Module):
        def forward(self, x):
            return x.trace()

    with pytest.raises(poptorch.Error) as caught:
        poptorch.inferenceModel(Trace(), quiet_options())(torch.ones(3, 3))
    message = str(caught.value)
    assert message.startswith(f"[trace] the decomposition gives {words}. Please report this.")
    assert "test_promotion.py" in message
