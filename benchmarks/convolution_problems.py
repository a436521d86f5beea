"""Convolutions of published networks: what the part 'convolutions' measures.

Each layer runs with several batches and in three directions: its result, the gradient of its input
and that of its weight; each of images in the layouts that PyTorch has for them.
"""

from dataclasses import dataclass, replace
from math import prod

from torch import nn

BATCHES = (1, 8, 64)
DIRECTIONS = ("forward", "dx", "dw")
ROWS, LAST = "row-major", "channels-last"
MOST_PRODUCTS = 3e9  # of a call: larger ones are left out


@dataclass(frozen=True)
class Layer:
    """A convolution: sizes of the image without its batch, and of the kernel."""

    name: str
    inputs: int
    outputs: int
    size: tuple[int, ...]
    kernel: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    batch: int = 1

    def module(self):
        """The layer, with the padding that keeps sizes."""
        kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[len(self.size)]
        padding = self.dilation * (self.kernel - 1) // 2
        return kind(self.inputs, self.outputs, self.kernel, self.stride, padding, self.dilation,
                    self.groups, bias=False)

    def products(self):
        """Multiplications of a call."""
        pixels = prod(self.size) / self.stride ** len(self.size)
        kernel = self.kernel ** len(self.size)
        return self.batch * pixels * self.outputs * self.inputs / self.groups * kernel


# The distinct kinds of layers: He et al. 2015 (ResNet), Howard et al. 2017 and Sandler et al. 2018
# (MobileNet), Tan and Le 2019 (EfficientNet), Ronneberger et al. 2015 (U-Net), van den Oord et al.
# 2016 (WaveNet), Bai et al. 2018 (TCN), Tran et al. 2015 and 2018 (C3D, R(2+1)D).
LAYERS = [
    Layer("resnet stem", 3, 64, (224, 224), 7, 2),
    *(Layer(f"resnet 3x3 {c}", c, c, (s, s), 3) for c, s in ((64, 56), (128, 28), (256, 14),
                                                           (512, 7))),
    Layer("resnet 3x3 /2", 128, 256, (28, 28), 3, 2),
    Layer("resnet 1x1 64", 64, 256, (56, 56), 1),
    Layer("resnet 1x1 256", 256, 64, (56, 56), 1),
    Layer("resnet 1x1 /2", 256, 512, (56, 56), 1, 2),
    Layer("cifar 3x3 16", 16, 16, (32, 32), 3),
    Layer("cifar 3x3 32", 32, 32, (16, 16), 3),
    Layer("digits 5x5", 1, 32, (28, 28), 5),
    *(Layer(f"mobilenet depthwise {c}", c, c, (s, s), 3, groups=c)
      for c, s in ((32, 112), (144, 56), (512, 14))),
    Layer("mobilenet depthwise /2", 96, 96, (112, 112), 3, 2, groups=96),
    Layer("mobilenet 1x1 24", 144, 24, (56, 56), 1),
    Layer("mobilenet 1x1 512", 512, 512, (14, 14), 1),
    Layer("efficientnet depthwise 5x5", 240, 240, (28, 28), 5, groups=240),
    Layer("resnext 3x3, 32 groups", 128, 128, (56, 56), 3, groups=32),
    Layer("unet 3x3 64", 64, 64, (128, 128), 3),
    Layer("unet 3x3 512", 512, 512, (16, 16), 3),
    Layer("deeplab 3x3, dilated", 256, 256, (28, 28), 3, dilation=2),
    Layer("wavenet, dilated", 64, 128, (4096,), 3, dilation=16),
    Layer("wavenet 1x1", 64, 256, (4096,), 1),
    Layer("tcn", 128, 128, (512,), 7, dilation=4),
    Layer("c3d 3x3x3 3", 3, 64, (16, 56, 56), 3),
    Layer("c3d 3x3x3 64", 64, 64, (8, 28, 28), 3),
]


def every_problem():
    """All layers with all batches, directions and layouts, but for those that take too long."""
    layers = [replace(layer, batch=batch) for layer in LAYERS for batch in BATCHES]
    return [(layer, direction, layout) for layer in layers if layer.products() <= MOST_PRODUCTS
            for direction in DIRECTIONS
            for layout in ((ROWS, LAST) if len(layer.size) > 1 else (ROWS,))]
