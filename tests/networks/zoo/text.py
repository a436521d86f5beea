"""Networks on tokens: transformers and embeddings."""

import math

import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from tests.networks.zoo.base import Network, adam, adamw, integers, network, normal, sgd


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward part, each followed by layer norm (as BERT has it)."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        p = self.dropout.p if self.training else 0.0
        x2 = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
        x2 = self.out(x2.transpose(1, 2).reshape(batch, length, width))
        x = self.norm1(x + self.dropout(x2))
        return self.norm2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class Bert(nn.Module):
    """Word, position and type embeddings, encoder layers, a pooler and a masked-word head."""

    def __init__(self, words=50, width=32, heads=4, layers=2, length=12, dropout=0.0):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.positions = nn.Embedding(length, width)
        self.types = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(EncoderLayer(width, heads, dropout) for _ in range(layers))
        self.pooler = nn.Linear(width, width)
        self.classes = nn.Linear(width, 3)
        self.head = nn.Linear(width, words)

    def forward(self, tokens, types, labels, next_label):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.positions(positions) + self.types(types)
        x = self.dropout(self.norm(x))
        mask = (tokens != 0)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        word_scores = self.head(x)
        class_scores = self.classes(torch.tanh(self.pooler(x[:, 0])))
        if not self.training:
            return word_scores, class_scores
        word_loss = F.cross_entropy(word_scores.flatten(0, 1), labels.flatten())
        loss = word_loss + F.cross_entropy(class_scores, next_label)
        return (word_scores, class_scores), poptorch.identity_loss(loss, reduction="none")


def _bert_inputs(generator, batch=8, length=12, words=50):
    tokens = integers(generator, words - 1, batch, length) + 1
    lengths = integers(generator, length - 4, batch, 1) + 4
    tokens = torch.where(torch.arange(length) < lengths, tokens, 0)
    types = (torch.arange(length).expand(batch, length) > 5).long()
    labels = integers(generator, words, batch, length)
    return tokens, types, labels, integers(generator, 3, batch)


@network
def bert_encoder(dropout=0.0):
    """A BERT-style encoder with two losses, a padding mask and (as an option) dropout."""
    module = Bert(dropout=dropout)
    return Network(
        module, _bert_inputs, adamw(), random=dict(dropout=0.1)
    )


class DecoderLayer(nn.Module):
    """Layer norm before causal attention and before the feed-forward part (as GPT-2 has it)."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = dropout

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        x = x + self.out(y.transpose(1, 2).contiguous().view(batch, length, width))
        y = self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return x + F.dropout(y, self.dropout, self.training)


class Gpt(nn.Module):
    """A decoder whose output layer is its word embedding."""

    def __init__(self, words=40, width=32, heads=2, layers=2, length=16, dropout=0.0):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Parameter(0.02 * torch.randn(1, length, width))
        self.layers = nn.ModuleList(DecoderLayer(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens, targets):
        x = self.words(tokens) + self.positions[:, : tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        scores = self.head(self.norm(x))
        if not self.training:
            return scores
        return scores, F.cross_entropy(scores.view(-1, scores.shape[-1]), targets.view(-1))


@network
def gpt_decoder(dropout=0.0):
    """A GPT-style decoder with tied embeddings."""

    def make(generator):
        text = integers(generator, 40, 4, 17)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    module = Gpt(dropout=dropout)
    return Network(
        module, make, adamw(weight_decay=0.1), random=dict(dropout=0.1)
    )


class MaskedAttention(nn.Module):
    """Attention written out: relative position bias, masked_fill, softmax, dropout, einsum."""

    def __init__(self, width=24, heads=3, length=10, dropout=0.0):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.project = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(3))
        self.bias = nn.Parameter(0.1 * torch.randn(heads, length, length))
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, width)
        self.cross = nn.MultiheadAttention(width, heads, dropout=dropout, batch_first=True)

    def forward(self, x, memory, valid, target):
        q, k, v = (p(x).unflatten(-1, (self.heads, self.size)) for p in self.project)
        scores = torch.einsum("blhd,bshd->bhls", q, k) / math.sqrt(self.size) + self.bias
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(future | ~valid[:, None, None, :], float("-inf"))
        weights = self.dropout(scores.softmax(dim=-1))
        x = x + self.out(torch.einsum("bhls,bshd->blhd", weights, v).flatten(2))
        cross, weights = self.cross(x, memory, memory)
        out = x + cross
        if not self.training:
            return out, weights
        return (out, weights), F.mse_loss(out, target)


@network
def masked_attention(dropout=0.0):
    """Attention by hand with masks and bias, then cross-attention by nn.MultiheadAttention."""

    def make(generator):
        valid = torch.arange(10) < integers(generator, 5, 4, 1) + 5
        x, memory = normal(generator, 4, 10, 24), normal(generator, 4, 7, 24)
        return x, memory, valid, normal(generator, 4, 10, 24)

    module = MaskedAttention(dropout=dropout)
    return Network(
        module, make, adam(), random=dict(dropout=0.2)
    )


class Recommender(nn.Module):
    """Bags of embeddings, and messages gathered and scattered along the edges of a graph."""

    def __init__(self, items=30, width=16, nodes=12):
        super().__init__()
        self.nodes = nodes
        self.bags = nn.EmbeddingBag(items, width, mode="mean")
        self.items = nn.Embedding(items, width)
        self.message = nn.Linear(2 * width, width)
        self.score = nn.Bilinear(width, width, 1)

    def forward(self, bags, nodes, edges, target):
        history = self.bags(bags)
        states = self.items(nodes)
        source, goal = edges.unbind(1)
        index = source.unsqueeze(-1).expand(-1, -1, states.shape[-1])
        sent = torch.gather(states, 1, index)
        index = goal.unsqueeze(-1).expand_as(index)
        message = torch.sigmoid(self.message(torch.cat([sent, states.gather(1, index)], -1)))
        states = states.scatter_add(1, index, message)
        best = states.amax(dim=1)
        out = self.score(history, best).squeeze(-1)
        return (out, F.binary_cross_entropy_with_logits(out, target)) if self.training else out


@network
def recommender():
    """An embedding bag with gather and scatter over a graph, and a logistic loss."""

    def make(generator):
        bags, nodes = integers(generator, 30, 8, 5), integers(generator, 30, 8, 12)
        edges = integers(generator, 12, 8, 2, 20)
        return bags, nodes, edges, integers(generator, 2, 8).float()

    return Network(Recommender(), make, sgd())


@network
def transformer_module():
    """PyTorch's own TransformerEncoder, norm first, and a negative log-likelihood loss."""

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(
                16, 2, 32, dropout=0.0, activation="relu", batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 5)

        def forward(self, x, target):
            length = x.shape[1]
            mask = nn.Transformer.generate_square_subsequent_mask(length, dtype=x.dtype)
            x = self.encoder(x, mask=mask, is_causal=True)
            out = F.log_softmax(self.head(x.mean(1)), dim=-1)
            return (out, F.nll_loss(out, target)) if self.training else out

    def make(generator):
        return normal(generator, 8, 9, 16), integers(generator, 5, 8)

    return Network(Classifier(), make, adam())
