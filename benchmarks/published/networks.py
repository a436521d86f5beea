"""Definitions of transformers and of one product, with weights on the meta device."""

import torch
from torch import nn
from torch.nn import functional

import poptorch


class Layer(nn.Module):
    """A transformer layer; ``is_pre_norm``: norms come before attention and the two products."""

    def __init__(self, hidden, heads, is_pre_norm, is_causal, dropout):
        super().__init__()
        self.heads, self.is_pre_norm, self.is_causal = heads, is_pre_norm, is_causal
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def attention(self, x):
        """Self-attention with a dropout after it."""
        batch, length, hidden = x.shape
        size = hidden // self.heads
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * size ** -0.5
        if self.is_causal:
            scores = scores + torch.full((length, length), -1e4, dtype=x.dtype).triu(1)
        values = self.dropout(scores.softmax(-1)) @ v
        return self.dropout(self.out(values.transpose(1, 2).reshape(batch, length, hidden)))

    def products(self, x):
        """The two products with a GELU between them."""
        return self.dropout(self.down(functional.gelu(self.up(x))))

    def half(self, x, number):
        """The half 0 or 1 of a layer, of the same shape."""
        part, norm = ((self.attention, self.norm1), (self.products, self.norm2))[number]
        return x + part(norm(x)) if self.is_pre_norm else norm(x + part(x))


class Transformer(nn.Module):
    """Layers on several IPUs, ``split`` of them on each; the head is on the IPU ``head_ipu``. An
    IPU may have the first or the second half of a layer.

    The published programs recompute layer by layer.
    """

    def __init__(self, hidden, heads, split, head_ipu, is_pre_norm=False, is_causal=False,
                 dropout=0.1):
        super().__init__()
        self.layers = nn.ModuleList(Layer(hidden, heads, is_pre_norm, is_causal, dropout)
                                    for _ in range(int(sum(split))))
        self.norm = nn.LayerNorm(hidden)
        self.split, self.head_ipu = split, head_ipu

    def encoded(self, x):
        """Runs the layers; what follows is in the block of the head."""
        begins = {2 * sum(self.split[:ipu]): ipu for ipu, count in enumerate(self.split) if count}
        for number in range(2 * len(self.layers)):
            if begins.get(number, 0) > 0:
                poptorch.Block.start(f"layers{begins[number]}", ipu_id=begins[number])
            x = self.layers[number // 2].half(x, number % 2)
            if number % 2:
                x = poptorch.recomputationCheckpoint(x)
        if self.head_ipu < len(self.split) - 1:
            poptorch.Block.start("head", ipu_id=self.head_ipu)
        return x


class Bert(Transformer):
    """BERT with the head of its task; labels are those of masked tokens, or the ends of spans."""

    def __init__(self, hidden, heads, split, length, masked):
        super().__init__(hidden, heads, split, 0 if masked else len(split) - 1)
        self.words, self.masked = nn.Embedding(30528, hidden), masked
        self.positions = nn.Parameter(torch.zeros(length, hidden))
        self.transform, self.span = nn.Linear(hidden, hidden), nn.Linear(hidden, 2)

    def forward(self, ids, labels=None):
        """The loss, or the encoded tokens without labels."""
        poptorch.Block.start("embedding", ipu_id=0)
        x = self.encoded(self.norm(self.words(ids) + self.positions))
        if labels is None:
            return self.span(x)
        if not self.masked:
            scores = self.span(x).transpose(1, 2).flatten(0, 1)
        else:
            x = functional.gelu(self.transform(x[:, :self.masked])).flatten(0, 1)
            scores = x @ self.words.weight.t()
        return functional.cross_entropy(scores.float(), labels.flatten())


class Gpt(Transformer):
    """A GPT that predicts characters."""

    def __init__(self, hidden, heads, split, length):
        super().__init__(hidden, heads, split, len(split) - 1, is_pre_norm=True, is_causal=True)
        self.words = nn.Embedding(65, hidden)
        self.positions = nn.Parameter(torch.zeros(length, hidden))

    def forward(self, ids, labels):
        """The loss."""
        poptorch.Block.start("embedding", ipu_id=0)
        x = self.norm(self.encoded(self.words(ids) + self.positions))
        scores = (x @ self.words.weight.t()).flatten(0, 1)
        return functional.cross_entropy(scores.float(), labels.flatten())


class Vit(Transformer):
    """ViT with patches of 16 pixels."""

    def __init__(self, hidden, heads, split, pixels):
        super().__init__(hidden, heads, split, len(split) - 1, is_pre_norm=True)
        self.patches = nn.Conv2d(3, hidden, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, hidden))
        self.positions = nn.Parameter(torch.zeros((pixels // 16) ** 2 + 1, hidden))
        self.head = nn.Linear(hidden, 1000)

    def forward(self, images, labels=None):
        """The loss, or the scores without labels."""
        poptorch.Block.start("embedding", ipu_id=0)
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        scores = self.head(self.norm(self.encoded(x))[:, 0])
        return scores if labels is None else functional.cross_entropy(scores.float(), labels)


class Product(nn.Module):
    """One product with a weight."""

    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inner, outer))

    def forward(self, x):
        """The product."""
        return x @ self.weight
