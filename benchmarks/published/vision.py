"""Definitions of convolutional networks, with weights on the meta device."""

import torch
from torch import nn
from torch.nn import functional

import poptorch


def classified(scores, labels):
    """The loss, or the scores without labels."""
    return scores if labels is None else functional.cross_entropy(scores.float(), labels)


def normalized(images):
    """Images of 8 bits, as the published programs stream them, in the type of the weights."""
    return images if images.is_floating_point() else images.half() * (2 / 255) - 1


class Bottleneck(nn.Module):
    """A residual block of three convolutions, the second one in groups."""

    def __init__(self, inner, width, outer, stride, groups):
        super().__init__()
        sizes = [(inner, width, 1, 1, 1), (width, width, 3, stride, groups),
                 (width, outer, 1, 1, 1)]
        self.body = nn.Sequential(*[part for one, two, kernel, step, parts in sizes for part in (
            nn.Conv2d(one, two, kernel, step, kernel // 2, groups=parts, bias=False),
            nn.BatchNorm2d(two), nn.ReLU())][:-1])
        self.short = nn.Sequential() if inner == outer and stride == 1 else nn.Sequential(
            nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        """The block's result."""
        return torch.relu(self.body(x) + self.short(x))


class ResNet(nn.Module):
    """ResNet of bottlenecks.

    Args:
        counts: blocks of each of the four sizes.
        groups: of the 3 x 3 convolutions; more than 1: ResNeXt with 4 channels a group at first.
        kept: numbers of the blocks of which the input is kept. All else before the last one of
            them is computed again in the backward pass.
        cut: number of the block with which the second IPU begins; None: one IPU.
    """

    def __init__(self, counts, groups=1, kept=(), cut=None):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64),
                                  nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks, inner = nn.ModuleList(), 64
        for number, count in enumerate(counts):
            outer = 256 << number
            width = outer // 4 if groups == 1 else 4 * groups << number
            for index in range(count):
                stride = 1 + (number > 0 and index == 0)
                self.blocks.append(Bottleneck(inner, width, outer, stride, groups))
                inner = outer
        self.head, self.kept, self.cut = nn.Linear(inner, 1000), kept, cut

    def forward(self, images, labels=None):
        """The loss, or the scores without labels."""
        poptorch.Block.start("stem", ipu_id=0)
        x = self.stem(normalized(images))
        for number, block in enumerate(self.blocks):
            if number == self.cut:
                poptorch.Block.start("second", ipu_id=1)
            x = block(poptorch.recomputationCheckpoint(x) if number in self.kept else x)
        return classified(self.head(x.mean((2, 3))), labels)


class MobileBlock(nn.Module):
    """Expansion, convolution in groups of 16 channels, squeeze and excitation, projection."""

    def __init__(self, inner, outer, expansion, kernel, stride):
        super().__init__()
        hidden = inner * expansion
        size = 16 if hidden % 16 == 0 else 8
        self.expand = nn.Identity() if expansion == 1 else _unit(inner, hidden, 1, 1, 1)
        self.middle = _unit(hidden, hidden, kernel, stride, hidden // size)
        self.squeeze = nn.Conv2d(hidden, max(1, inner // 4), 1)
        self.excite = nn.Conv2d(max(1, inner // 4), hidden, 1)
        self.project = nn.Sequential(nn.Conv2d(hidden, outer, 1, bias=False),
                                     nn.BatchNorm2d(outer))
        self.is_residual = inner == outer and stride == 1

    def forward(self, x):
        """The block's result."""
        y = self.middle(self.expand(x))
        scale = self.excite(functional.silu(self.squeeze(y.mean((2, 3), keepdim=True))))
        y = self.project(y * scale.sigmoid())
        return x + y if self.is_residual else y


def _unit(inner, outer, kernel, stride, groups):
    return nn.Sequential(
        nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outer), nn.SiLU())


class EfficientNetB4(nn.Module):
    """EfficientNet-B4 with convolutions of groups of 16 channels and expansion 4, on two IPUs.

    Args:
        cut: number of the block with which the second IPU begins.
    """

    STAGES = ((1, 24, 2, 1, 3), (4, 32, 4, 2, 3), (4, 56, 4, 2, 5), (4, 112, 6, 2, 3),
              (4, 160, 6, 1, 5), (4, 272, 8, 2, 5), (4, 448, 2, 1, 3))

    def __init__(self, cut):
        super().__init__()
        self.stem, self.blocks, inner = _unit(3, 48, 3, 2, 1), nn.ModuleList(), 48
        for expansion, outer, count, stride, kernel in self.STAGES:
            for index in range(count):
                step = stride if index == 0 else 1
                self.blocks.append(MobileBlock(inner, outer, expansion, kernel, step))
                inner = outer
        self.top, self.head, self.cut = _unit(inner, 1792, 1, 1, 1), nn.Linear(1792, 1000), cut

    def forward(self, images, labels=None):
        """The loss, or the scores without labels."""
        poptorch.Block.start("stem", ipu_id=0)
        x = self.stem(normalized(images))
        for number, block in enumerate(self.blocks):
            if number == self.cut:
                poptorch.Block.start("second", ipu_id=1)
            x = poptorch.recomputationCheckpoint(block(x))
        return classified(self.head(self.top(x).mean((2, 3))), labels)


class UNet(nn.Module):
    """U-Net for two classes, on four IPUs: two levels down on each of the first two, two up on
    each of the others."""

    def __init__(self):
        super().__init__()
        sizes = [64, 128, 256, 512, 1024]
        self.down = nn.ModuleList(_pair(a, b) for a, b in zip([1, *sizes], sizes))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, 2)
                                for size in reversed(sizes[:-1]))
        self.join = nn.ModuleList(_pair(2 * size, size) for size in reversed(sizes[:-1]))
        self.head = nn.Conv2d(64, 2, 1)

    def forward(self, images, labels=None):
        """The loss, or the scores without labels; labels have the size of the result."""
        poptorch.Block.start("down", ipu_id=0)
        x, kept = normalized(images), []
        for number, level in enumerate(self.down):
            if number == 2:
                poptorch.Block.start("bottom", ipu_id=1)
            x = poptorch.recomputationCheckpoint(
                level(functional.max_pool2d(x, 2) if number else x))
            kept.append(x)
        for number, (up, join) in enumerate(zip(self.up, self.join)):
            if number in (0, 2):
                poptorch.Block.start(f"up{number}", ipu_id=2 + number // 2)
            x, skip = up(x), kept[3 - number]
            edge = (skip.shape[2] - x.shape[2]) // 2
            size = x.shape[2]
            skip = skip[:, :, edge:edge + size, edge:edge + size]
            x = poptorch.recomputationCheckpoint(join(torch.cat([skip, x], 1)))
        return classified(self.head(x), labels)


def _pair(inner, outer):
    return nn.Sequential(nn.Conv2d(inner, outer, 3), nn.ReLU(), nn.Conv2d(outer, outer, 3),
                         nn.ReLU())
