"""The work of networks: PyTorch's own count, and what it must not depend on."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import poptorch

aten = torch.ops.aten
# What PyTorch counts, too; its table lacks attention on a CPU.
PRODUCTS = {"addmm", "attention", "attention_backward", "baddbmm", "convolution",
            "convolution_backward", "matmul"}
ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu


def attention(q, k, v, *args, out_shape=None, **kwargs):
    return sdpa_flop_count(q, k, v)


def attention_backward(grad, q, k, v, *args, out_shape=None, **kwargs):
    """The scores again, and the gradients of both products."""
    batch, heads, rows, width = q
    columns, out_width = v[-2:]
    return 2 * batch * heads * rows * columns * (3 * width + 2 * out_width)


MAPPING = {ATTENTION: attention,
           aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward}


class Loss(nn.Module):
    """A module and a loss of what it gives."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        out = self.net(x)
        return out, nn.functional.mse_loss(out, torch.zeros_like(out))


def perceptron():
    return nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 7)), torch.randn(5, 12)


def convnet():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, dilation=2, padding=2, bias=False), nn.MaxPool2d(2),
        nn.ConvTranspose2d(8, 6, 3, stride=2, output_padding=1), nn.Flatten(),
        nn.LazyLinear(10)), torch.randn(2, 3, 16, 16)


def encoder():
    net = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    return net, torch.randn(2, 6, 16)


def signals():
    return nn.Sequential(nn.Conv1d(4, 6, 5, stride=3), nn.ReLU(),
                         nn.ConvTranspose1d(6, 2, 4)), torch.randn(3, 4, 32)


def compiled(net, x, training=True):
    options = poptorch.Options().showCompilationProgressBar(False)
    if training:
        model = poptorch.trainingModel(Loss(copy.deepcopy(net)), options)
    else:
        model = poptorch.inferenceModel(copy.deepcopy(net), options)
    model.compile(x)
    return model


def products(model, phase):
    """FLOPs of the ops that PyTorch counts, too."""
    rows = model.work_report()["phases"][phase]
    return sum(row["flops"] for op, row in rows.items() if op in PRODUCTS)


def by_torch(net, x):
    """FLOPs of the forward and of the backward pass."""
    with FlopCounterMode(display=False, custom_mapping=MAPPING) as forward:
        loss = Loss(net)(x)[1]
    with FlopCounterMode(display=False, custom_mapping=MAPPING) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize("make", [perceptron, convnet, encoder, signals])
def test_products_are_those_that_pytorch_counts(make):
    net, x = make()
    net(x)  # sizes of lazy layers
    model = compiled(net, x)
    ours = products(model, "forward"), products(model, "backward")
    assert ours == by_torch(net, x) and min(ours) > 0
    assert products(compiled(net.eval(), x, training=False), "forward") == ours[0]


@pytest.mark.parametrize("make", [nn.Conv2d, nn.ConvTranspose2d])
def test_pytorch_counts_gradients_of_grouped_weights_for_each_group(make):
    net, x = make(6, 12, 3, groups=3), torch.randn(2, 6, 9, 9)
    model = compiled(net, x)
    forward, backward = by_torch(net, x)
    assert products(model, "forward") == products(model, "backward") == forward
    assert backward == 3 * forward  # of the weight alone: x needs no gradient


@pytest.mark.parametrize(("name", "value"), [
    ("POPTORCH_OFF", "fuse,channels_last,plain_weights,hoist,inplace"),
    ("POPTORCH_OFF", "fuse_convolution,batch_tiling,rematerialize_batch_norm,compact_argmax"),
    ("POPTORCH_ALGORITHM", "conv:onednn"),
    ("POPTORCH_ISA", "base"),
])
def test_work_depends_on_no_choice_of_the_cpu(name, value, monkeypatch):
    net, x = convnet()
    net(x)
    torch.manual_seed(0)
    model = compiled(net, x)
    monkeypatch.setenv(name, value)
    other = compiled(net, x)
    assert other.work_report() == model.work_report()
    if name != "POPTORCH_ISA":
        assert other.ir("plan") != model.ir("plan")  # the setting does something


def test_loops_and_opaque_operations():
    class Net(nn.Module):
        def forward(self, x):
            (x,) = poptorch.for_loop(3, lambda x: [torch.exp(x)], [x])
            return torch.special.bessel_j0(x)

    options = poptorch.Options().showCompilationProgressBar(False).deviceIterations(2)
    model = poptorch.inferenceModel(Net(), options)
    model.compile(torch.randn(8, 5))
    report = model.work_report()
    rows = report["phases"]["forward"]
    assert rows["exp"] == {"flops": 6 * 20, "bytes": 6 * 160, "count": 6}
    assert rows["aten::special_bessel_j0"] == {"flops": None, "bytes": 2 * 160, "count": 2}
    assert report["not_counted"] == {"aten::special_bessel_j0": 2}
    known = [row for row in rows.values() if row["flops"] is not None]
    assert report["total"] == {"flops": sum(row["flops"] for row in known),
                               "bytes": sum(row["bytes"] for row in rows.values())}
