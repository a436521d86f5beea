"""What statistics norms refuse, as PyTorch does."""

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


class Norm(nn.Module):
    def __init__(self, kind, own, kept, **settings):
        super().__init__()
        self.norm = kind(4, **settings)
        for parameter in self.norm.parameters():
            parameter.data = parameter.data.to(own)
        self.norm.running_mean = self.norm.running_mean.to(kept)
        self.norm.running_var = self.norm.running_var.to(kept)

    def forward(self, x):
        out = self.norm(x)
        return out, poptorch.identity_loss(out.float().square().sum(), "none")


def train(kind, own, kept, x, **settings):
    return poptorch.trainingModel(Norm(kind, own, kept, **settings), quiet_options())(x)


@pytest.mark.parametrize("own, kept", [(F32, F16), (F32, BF16), (F16, BF16), (BF16, F16)])
def test_statistics_of_another_type(own, kept):
    x = torch.randn(6, 4).to(own)
    with pytest.raises(RuntimeError):
        Norm(nn.BatchNorm1d, own, kept)(x)
    with pytest.raises(poptorch.Error, match=rf"\[batch_norm\] the parameters are {own}, the "
                                             rf"running statistics {kept}. Give all"):
        train(nn.BatchNorm1d, own, kept, x)
    with pytest.raises(poptorch.Error, match="batch_norm"):
        poptorch.inferenceModel(Norm(nn.BatchNorm1d, own, kept).eval())(x)


def test_statistics_of_another_type_without_parameters():
    with pytest.raises(poptorch.Error, match=r"\[batch_norm\] the input is torch.float32, the "
                                             r"running statistics torch.float16"):
        train(nn.BatchNorm1d, F32, F16, torch.randn(6, 4), affine=False)


@pytest.mark.parametrize("own, kept", [(F32, F32), (F16, F16), (F16, F32), (BF16, F32)])
def test_types_that_go_together(own, kept):
    """Of 16-bit numbers the statistics may be of single precision."""
    train(nn.BatchNorm1d, own, kept, torch.randn(6, 4).to(own))


@pytest.mark.parametrize("own, kept", [(F32, F16), (F16, BF16)])
def test_instance_norm_takes_any(own, kept):
    """As PyTorch's, which copies the statistics for each instance."""
    x = torch.randn(2, 4, 5).to(own)
    settings = {"track_running_stats": True, "affine": True}
    Norm(nn.InstanceNorm1d, own, kept, **settings)(x)
    train(nn.InstanceNorm1d, own, kept, x, **settings)


@pytest.mark.parametrize("function", [nn.functional.batch_norm, nn.functional.instance_norm])
def test_statistics_that_are_trained(function):
    class Trained(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = nn.Parameter(torch.zeros(4))
            self.register_buffer("var", torch.ones(4))

        def forward(self, x):
            out = function(x, self.mean, self.var, None, None, True)
            return out, poptorch.identity_loss(out.square().sum(), "none")

    x, net, words = torch.randn(2, 4, 5), Trained(), "differentiable .* 'running_mean'"
    with pytest.raises(RuntimeError, match=words):
        net(x)
    with pytest.raises(poptorch.Error, match=words):
        poptorch.trainingModel(net, quiet_options())(x)
    with torch.no_grad():
        expected, _ = net(x)
    net.mean.data.zero_()
    net.var.fill_(1)
    torch.testing.assert_close(poptorch.inferenceModel(net, quiet_options())(x)[0], expected)


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_statistics_of_16_bit_images_are_float32(dtype):
    """As in eager; graphs of torch.compile call this operator."""
    weight, bias = torch.ones(4), torch.zeros(4)

    class Norm(nn.Module):
        def forward(self, x):
            return torch.ops.aten._native_batch_norm_legit.no_stats(
                x, weight, bias, True, 0.1, 1e-5)

    x = torch.randn(8, 4, 3, 3).to(dtype)
    found, expected = poptorch.inferenceModel(Norm(), quiet_options())(x), Norm()(x)
    assert [part.dtype for part in found] == [part.dtype for part in expected] == [dtype, F32, F32]
    torch.testing.assert_close(found, expected)
