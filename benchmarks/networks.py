"""The networks that are measured. Each gives ``(out, loss)`` in training mode, else ``out``."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    """A network of one input with cross-entropy."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, target=None):
        out = self.body(x)
        return (out, F.cross_entropy(out, target)) if self.training else out


def mlp():
    """64 - 128 - 128 - 10, so small that only overhead counts."""
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    return Classifier(nn.Sequential(*layers))


def linears(count):
    """So many layers of 8 features, each with two parameters that every call looks at."""
    return Classifier(nn.Sequential(*(nn.Linear(8, 10 if i + 1 == count else 8)
                                      for i in range(count))))


def digits_convnet():
    """A convolutional classifier of 28x28 images."""
    layers = [
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(64 * 14 * 14, 128)),
        *(nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
    ]
    return Classifier(nn.Sequential(*layers))


class Residual(nn.Module):
    """Convolutions (kernel, channels, stride) with batch norm, and a shortcut."""

    def __init__(self, channels_in, convolutions):
        super().__init__()
        layers, channels, stride = [], channels_in, 1
        for kernel, channels_out, step in convolutions:
            padding = kernel // 2
            layers += [
                nn.Conv2d(channels, channels_out, kernel, step, padding, bias=False),
                nn.BatchNorm2d(channels_out),
                nn.ReLU(inplace=True),
            ]
            channels, stride = channels_out, stride * step
        self.body = nn.Sequential(*layers[:-1])
        self.shortcut = nn.Identity()
        if channels != channels_in or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet(depth):
    """ResNet-18 or ResNet-50 for 224x224 images."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    for group, count in enumerate({18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[depth]):
        width = 64 * 2**group
        for block in range(count):
            step = 2 if group > 0 and block == 0 else 1
            if depth == 18:
                convolutions = [(3, width, step), (3, width, 1)]
            else:
                convolutions = [(1, width, 1), (3, width, step), (1, 4 * width, 1)]
            layers.append(Residual(channels, convolutions))
            channels = convolutions[-1][1]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return Classifier(nn.Sequential(*layers))


def depthwise():
    """Blocks of a convolution of each channel by itself and one of all channels at each place."""
    layers = []
    for _ in range(4):
        layers += [nn.Conv2d(32, 32, 5, padding=2, groups=32), nn.ReLU(), nn.Conv2d(32, 32, 1)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return Classifier(nn.Sequential(*layers))


class TransformerLayer(nn.Module):
    """Attention and a feed-forward part; layer norm after (BERT) or before (GPT)."""

    def __init__(self, width, heads, dropout, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def attend(self, x):
        """Multi-head self-attention of ``[batch, length, width]``."""
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        p = self.dropout.p if self.training else 0.0
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=self.causal)
        return self.dropout(self.out(x.transpose(1, 2).reshape(batch, length, width)))

    def forward(self, x):
        def feed(x):
            return self.dropout(self.down(F.gelu(self.up(x))))

        if self.causal:
            x = x + self.attend(self.norm1(x))
            return x + feed(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + feed(x))


class Transformer(nn.Module):
    """Embeddings, layers, and scores of the words; the output layer is the embedding if tied."""

    def __init__(self, words, length, layers, dropout, causal, width=768, heads=12):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(
            *(TransformerLayer(width, heads, dropout, causal) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=not causal)
        for embedding in (self.words, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)  # with the default 1.0 scores overflow
        if causal:
            self.head.weight = self.words.weight

    def forward(self, tokens, targets=None):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.words(tokens) + self.positions(positions))
        out = self.head(self.norm(self.layers(x)))
        if not self.training:
            return out
        return out, F.cross_entropy(out.flatten(0, 1), targets.flatten())


def bert(layers):
    """A BERT-base-like encoder with dropout 0.1."""
    return Transformer(30522, 128, layers, dropout=0.1, causal=False)


def text_classifier(layers):
    """The encoder of :func:`bert` with scores of ten classes from the first word."""
    encoder = bert(layers)
    encoder.head = nn.Sequential(FirstWord(), nn.Linear(768, 10))
    return encoder


def gpt2(layers):
    """A GPT-2-small-like decoder with tied embeddings."""
    return Transformer(50257, 256, layers, dropout=0.0, causal=True)


class Patches(nn.Module):
    """Images as sequences: a word for each square of 16x16 pixels, after one for the class."""

    def __init__(self, width, size):
        super().__init__()
        self.words = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // 16) ** 2 + 1, width))

    def forward(self, x):
        words = self.words(x).flatten(2).transpose(1, 2)
        return torch.cat([self.first.expand(len(x), -1, -1), words], 1) + self.positions


class FirstWord(nn.Module):
    """Of each sequence the first."""

    def forward(self, x):
        return x[:, 0]


def vit(layers):
    """ViT-S/16 for 224x224 images, of PyTorch's own encoder layers, without dropout."""
    width = 384
    encoder = [
        nn.TransformerEncoderLayer(
            width, 6, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        for _ in range(layers)
    ]
    head = [FirstWord(), nn.LayerNorm(width), nn.Linear(width, 1000)]
    return Classifier(nn.Sequential(Patches(width, 224), *encoder, *head))


def narrow(layers):
    """A deep transformer of width 32, whose arithmetic is next to nothing."""
    return Transformer(512, 32, layers, dropout=0.1, causal=False, width=32, heads=2)


class Recurrent(nn.Module):
    """Two recurrent layers and a classifier of the last state."""

    def __init__(self, kind):
        super().__init__()
        self.layers = kind(128, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 10)

    def forward(self, x, target=None):
        out = self.head(self.layers(x)[0][:, -1])
        return (out, F.cross_entropy(out, target)) if self.training else out


class ElementwiseBlock(nn.Module):
    """Layer norm, activations, dropout, scale and shift."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        x = self.dropout(F.gelu(self.norm(x) * self.scale + self.shift)) + x
        return self.dropout(torch.tanh(x) * torch.sigmoid(x)) + x


class Elementwise(nn.Module):
    """Blocks that have no matrix product at all."""

    def __init__(self, blocks, width):
        super().__init__()
        self.blocks = nn.Sequential(*(ElementwiseBlock(width) for _ in range(blocks)))

    def forward(self, x, target=None):
        out = self.blocks(x)
        return (out, F.mse_loss(out, target)) if self.training else out


def nudged(module: torch.nn.Module, seed: int, size: float = 2.0**-23) -> torch.nn.Module:
    """A copy of a module whose parameters are moved by up to ``size`` times themselves: what it
    computes differs by as much as one more rounding makes."""
    module, generator = copy.deepcopy(module), torch.Generator().manual_seed(seed)
    for p in module.parameters():
        p.data *= 1 + size * (2 * torch.rand(p.shape, generator=generator) - 1)
    return module
