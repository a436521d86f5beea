"""Networks on images."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.networks.zoo.base import Network, WithLoss, adam, integers, network, normal, sgd


def _images(channels, size, classes, batch=32):
    """Inputs of a classifier: images and labels."""

    def make(generator):
        images = normal(generator, batch, channels, size, size)
        return images, integers(generator, classes, batch)

    return make


@network
def digits_convnet(dropout=0.0):
    """The convolutional classifier of 8x8 digits."""
    body = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    module = WithLoss(body, nn.CrossEntropyLoss())
    return Network(
        module,
        _images(1, 8, 10),
        sgd(momentum=0.9),
        random=dict(dropout=0.25),
    )


class Residual(nn.Module):
    """Two 3x3 convolutions with batch norm, and a shortcut."""

    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x):
        shortcut = x if self.shortcut is None else self.shortcut(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += shortcut
        return self.relu(x)


@network
def resnet():
    """A small residual network with batch norm, a strided stem and max pooling."""
    body = nn.Sequential(
        nn.Conv2d(3, 8, 5, 2, 2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Residual(8, 8, 1),
        Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    module = WithLoss(body, nn.CrossEntropyLoss(label_smoothing=0.1))
    optimizer = sgd(momentum=0.9, weight_decay=1e-4, nesterov=True)
    return Network(module, _images(3, 24, 10), optimizer, splits=False)


class UNet(nn.Module):
    """An encoder and a decoder joined by concatenation, with transposed convolutions."""

    def __init__(self, channels=6, classes=3):
        super().__init__()
        self.down1 = self._double(1, channels)
        self.down2 = self._double(channels, 2 * channels)
        self.bottom = self._double(2 * channels, 2 * channels)
        self.up2 = nn.ConvTranspose2d(2 * channels, 2 * channels, 2, stride=2)
        self.join2 = self._double(4 * channels, channels)
        self.join1 = self._double(2 * channels, channels)
        self.head = nn.Conv2d(channels, classes, 1)

    @staticmethod
    def _double(channels_in, channels_out):
        return nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(channels_out, channels_out, 3, padding=1),
            nn.SiLU(),
        )

    def forward(self, x, target):
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        x = self.bottom(F.avg_pool2d(second, 2))
        x = self.join2(torch.cat([self.up2(x), second], dim=1))
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        out = self.head(self.join1(torch.cat([x, first], dim=1)))
        return (out, F.cross_entropy(out, target)) if self.training else out


@network
def unet():
    """A segmentation network: a label for each pixel."""

    def make(generator):
        return normal(generator, 4, 1, 16, 16), integers(generator, 3, 4, 16, 16)

    return Network(UNet(), make, adam())


@network
def separable_convnet():
    """Depthwise-separable convolutions with batch norm, ReLU6 and dilation."""

    def block(channels_in, channels_out, stride, dilation=1):
        return [
            nn.Conv2d(
                channels_in, channels_in, 3, stride, dilation, dilation, groups=channels_in,
                bias=False,
            ),
            nn.BatchNorm2d(channels_in),
            nn.ReLU6(),
            nn.Conv2d(channels_in, channels_out, 1, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.Hardswish(),
        ]  # fmt: skip

    body = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1),
        *block(8, 16, 1),
        *block(16, 16, 2),
        *block(16, 24, 1, dilation=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 5),
    )
    module = WithLoss(body, nn.CrossEntropyLoss())
    return Network(module, _images(3, 16, 5), sgd(momentum=0.9), splits=False)


@network
def group_norm_convnet():
    """Group norm and instance norm, ELU and Softplus, average pooling."""
    body = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1),
        nn.GroupNorm(4, 8),
        nn.ELU(),
        nn.Conv2d(8, 12, 3, padding="same", padding_mode="reflect"),
        nn.InstanceNorm2d(12, affine=True),
        nn.Softplus(),
        nn.AvgPool2d(2),
        nn.Conv2d(12, 6, 3, groups=2),
        nn.GroupNorm(1, 6),
        nn.Mish(),
        nn.Flatten(),
        nn.Linear(6 * 16, 4),
    )
    module = WithLoss(body, nn.MultiMarginLoss())
    return Network(module, _images(2, 12, 4, batch=8), sgd())


class MixerBlock(nn.Module):
    """One MLP over the patches, one over the channels."""

    def __init__(self, patches, channels):
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.tokens = nn.Sequential(nn.Linear(patches, 32), nn.GELU(), nn.Linear(32, patches))
        self.norm2 = nn.LayerNorm(channels)
        self.channels = nn.Sequential(
            nn.Linear(channels, 48), nn.GELU(approximate="tanh"), nn.Linear(48, channels)
        )

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    """An MLP-mixer: patches cut by unfold, blocks, mean over the patches."""

    def __init__(self, classes=7):
        super().__init__()
        self.embed = nn.Linear(3 * 4 * 4, 24)
        self.blocks = nn.ModuleList(MixerBlock(16, 24) for _ in range(2))
        self.norm = nn.LayerNorm(24)
        self.head = nn.Linear(24, classes)

    def forward(self, x):
        batch, channels = x.shape[:2]
        x = x.unfold(2, 4, 4).unfold(3, 4, 4)
        x = x.permute(0, 2, 3, 1, 4, 5).reshape(batch, 16, channels * 16)
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


@network
def mlp_mixer():
    """Image classification without convolutions."""
    module = WithLoss(Mixer(), nn.CrossEntropyLoss())
    return Network(module, _images(3, 16, 7, batch=8), adam())


@network
def sequence_convnet():
    """One-dimensional causal convolutions with weight norm and gated activations."""

    class Causal(nn.Module):
        def __init__(self, channels, dilation):
            super().__init__()
            conv = nn.Conv1d(channels, 2 * channels, 3, dilation=dilation)
            self.conv = nn.utils.parametrizations.weight_norm(conv)
            self.padding = 2 * dilation

        def forward(self, x):
            return x + F.glu(self.conv(F.pad(x, (self.padding, 0))), dim=1)

    body = nn.Sequential(nn.Conv1d(3, 8, 1), Causal(8, 1), Causal(8, 2), nn.Conv1d(8, 2, 1))
    module = WithLoss(body, nn.SmoothL1Loss(beta=0.5))

    def make(generator):
        return normal(generator, 8, 3, 20), normal(generator, 8, 2, 20)

    return Network(module, make, adam())
