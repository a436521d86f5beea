"""Large batches of images in parts: the numbers stay, the images between ops take less memory."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import check_op_sample, quiet_options


class Residual(nn.Module):
    """A convolution to which the image before it is added, which is not made in parts."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        y = self.first(x).relu()
        return nn.functional.max_pool2d((self.second(y) + y).relu(), 4)


def convnet():
    layers = [nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 40, 3, stride=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(3, padding=1), nn.Flatten(), nn.Linear(1000, 7))


# What they are, and the size of their images.
NETWORKS = {"convnet": (convnet, (64, 1, 29, 29)), "residual": (Residual, (30, 3, 60, 60))}


def compiled(module, x, monkeypatch, off=""):
    monkeypatch.setenv("POPTORCH_OFF", off)
    model = poptorch.inferenceModel(module, quiet_options())
    model.compile(x)
    return model


def check(models, module, x):
    with torch.no_grad():
        eager, reference = module(x), copy.deepcopy(module).double()(x.double())
    for model in models:
        check_op_sample(model(x), eager, reference)


@pytest.mark.parametrize("name", NETWORKS)
def test_numbers_and_memory(name, monkeypatch):
    build, sizes = NETWORKS[name]
    module, x = build().eval(), torch.randn(sizes)
    whole, parts = (compiled(module, x, monkeypatch, off) for off in ("batch_tiling", ""))
    check([whole, parts], module, x)
    before, now = (model.memory_report()["activations"] for model in (whole, parts))
    assert now < 0.8 * before


def test_images_of_half_precision(monkeypatch):
    module, x = convnet().eval(), torch.randn(64, 1, 29, 29)
    half = copy.deepcopy(module).half()
    whole, parts = (compiled(half, x.half(), monkeypatch, off) for off in ("batch_tiling", ""))
    assert torch.equal(whole(x.half()), parts(x.half()))


def test_weights_that_change(monkeypatch):
    """The weights are packed for the parts, and packed again where the host writes them."""
    module, x = convnet().eval(), torch.randn(64, 1, 29, 29)
    model = compiled(module, x, monkeypatch)
    model(x)
    with torch.no_grad():
        module[2].weight.neg_()
    model.copyWeightsToDevice()
    check([model], module, x)
