"""Networks that exercise how programs are built: losses, buffers, nesting, recomputation."""

from collections import namedtuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import poptorch
from tests.networks.zoo.base import (
    Network,
    WithLoss,
    adam,
    adamw,
    integers,
    network,
    normal,
    sgd,
)


def _regression(batch, features, targets):
    def make(generator):
        return normal(generator, batch, features), normal(generator, batch, targets)

    return make


@network
def mlp():
    """A multi-layer perceptron with a mean squared error."""
    body = nn.Sequential(
        nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)
    )
    return Network(WithLoss(body, nn.MSELoss()), _regression(8, 10, 4), sgd())


class Autoencoder(nn.Module):
    """Three losses, summed and marked by identity_loss."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 8), nn.GELU(), nn.Linear(8, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 12))

    def forward(self, x, target):
        code = self.encoder(x)
        out = self.decoder(code)
        if not self.training:
            return out, code
        losses = F.mse_loss(out, target) + 0.1 * F.l1_loss(out, x)
        sparse = code.abs().sum(dim=1)
        return (out, code), poptorch.identity_loss(losses + 1e-2 * sparse, reduction="mean")


@network
def autoencoder():
    """An autoencoder with several losses."""
    return Network(Autoencoder(), _regression(16, 12, 12), adam())


class Vae(nn.Module):
    """A variational autoencoder; the noise is an input, so that numbers can be compared."""

    def __init__(self, draws_noise):
        super().__init__()
        self.draws_noise = draws_noise
        self.encoder = nn.Linear(20, 16)
        self.mean, self.log_variance = nn.Linear(16, 4), nn.Linear(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 20))

    def forward(self, x, noise):
        hidden = F.leaky_relu(self.encoder(x))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        if self.draws_noise:
            noise = torch.randn_like(mean)
        out = self.decoder(mean + torch.exp(0.5 * log_variance) * noise)
        if not self.training:
            return out, mean
        likeness = F.binary_cross_entropy_with_logits(out, x, reduction="none").sum(1)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1)
        return (out, mean), poptorch.identity_loss(likeness + divergence, reduction="mean")


@network
def vae(draws_noise=False):
    """A variational autoencoder with the reparametrisation trick."""

    def make(generator):
        return torch.rand(12, 20, generator=generator), normal(generator, 12, 4)

    return Network(Vae(draws_noise), make, adam(), random=dict(draws_noise=True))


class Stateful(nn.Module):
    """Changes buffers, inputs of layers and slices in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("history", torch.zeros(3, 6))
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 6), persistent=False)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x, target):
        x = self.first(x)
        self.steps += 1
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(dim=0), alpha=0.1)
            self.history.copy_(torch.roll(self.history, 1, dims=0))
            self.history[0] = self.mean
        x = x * self.scale
        x -= self.mean
        x[:, 0] = 0.5
        x[:, 1:3].mul_(2.0).clamp_(-3, 3)
        out = self.second(F.relu_(x.clone()) + self.history.sum(0) / self.steps)
        return (out, F.mse_loss(out, target)) if self.training else out


@network
def buffers_in_place():
    """A network with changing buffers and in-place operations on slices."""
    return Network(Stateful(), _regression(8, 6, 2), sgd(), splits=False)


Pair = namedtuple("Pair", ["first", "second"])


class Nested(nn.Module):
    """Takes and returns dictionaries, tuples, named tuples, None and constants."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({"a": nn.Linear(4, 8), "b": nn.Linear(6, 8)})
        self.head = nn.Linear(8, 3)

    def forward(self, batch, pair, options, *, target):
        scale, offsets = options
        hidden = self.layers["a"](batch["a"]) * scale + self.layers["b"](batch["b"]["inner"])
        hidden = torch.tanh(hidden + sum(offsets))
        out = self.head(hidden)
        best, where = torch.max(out, dim=1)
        result = {
            "out": out,
            "best": Pair(best, where),
            "same": [out, batch["a"]],
            "nothing": None,
            "number": 3,
        }
        if not self.training:
            return result
        loss = F.cross_entropy(out, target) + F.mse_loss(hidden, pair.first + pair.second)
        return result, poptorch.identity_loss(loss, reduction="none")


@network
def nested_structures():
    """Nested inputs and outputs, a keyword argument, constants among them."""

    class Positional(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = Nested()

        def forward(self, batch, pair, options, target):
            return self.body(batch, pair, options, target=target)

    def make(generator):
        batch = {"a": normal(generator, 8, 4), "b": {"inner": normal(generator, 8, 6)}}
        pair = Pair(normal(generator, 8, 8), normal(generator, 8, 8))
        offsets = [normal(generator, 8, 8), normal(generator, 8, 1)]
        return batch, pair, (0.5, offsets), integers(generator, 3, 8)

    return Network(Positional(), make, sgd())


class Recomputed(nn.Module):
    """Two regions that are recomputed in the backward pass, one inside the other's network."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(dropout)) for _ in range(2)
        )
        self.head = nn.Linear(16, 4)

    def forward(self, x, target):
        x = self.first(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        out = self.head(x)
        return (out, F.mse_loss(out, target)) if self.training else out


@network
def checkpointed(dropout=0.0):
    """torch.utils.checkpoint around the blocks."""
    module = Recomputed(dropout)
    return Network(
        module, _regression(8, 8, 4), adamw(), random=dict(dropout=0.2)
    )


class Autocast(nn.Module):
    """Runs its body in bfloat16 by autocast, its loss in float32."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 5)

    def forward(self, x, target):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = torch.tanh(self.conv(x)).mean(dim=(2, 3))
            out = self.down(F.gelu(self.up(self.norm(x))))
        out = out.to(target.dtype)
        return (out, F.mse_loss(out, target)) if self.training else out


@network
def autocast_bfloat16():
    """Autocast inside forward."""

    def make(generator):
        return normal(generator, 16, 1, 6, 6), normal(generator, 16, 5)

    words = "float64 is not autocast, so eager's error is that of bfloat16"
    return Network(Autocast(), make, sgd(), coarse=words)


class Shared(nn.Module):
    """A layer called three times, a frozen layer, a hook, and parameters outside layers."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(6, 6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.gain = nn.Parameter(torch.ones(6))
        self.unused = nn.Linear(2, 2)
        self.prelu = nn.PReLU()
        self.shared.register_forward_hook(lambda module, args, out: out * 0.5)

    def forward(self, x, target):
        for _ in range(3):
            x = x + torch.sigmoid(self.shared(x))
        x = self.prelu(self.frozen(x)) * self.gain
        out = torch.stack([x.cumsum(1), x.flip(1)]).prod(dim=0)
        out = torch.where(out > 0, out, 0.1 * out)
        return (out, F.huber_loss(out, target)) if self.training else out


@network
def shared_and_frozen():
    """Weights used several times, weights that are not trained, weights never used."""
    return Network(Shared(), _regression(8, 6, 6), sgd(weight_decay=1e-2))


class Experts(nn.Module):
    """A mixture of experts: stacked weights, top-k routing, batched products."""

    def __init__(self, experts=4, width=8):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.weights = nn.Parameter(torch.randn(experts, width, width) / width**0.5)
        self.head = nn.Linear(width, 2)

    def forward(self, x, target):
        scores, chosen = self.gate(x).topk(2, dim=-1)
        share = scores.softmax(-1)
        outputs = torch.bmm(x.expand(len(self.weights), -1, -1), self.weights).transpose(0, 1)
        index = chosen.unsqueeze(-1).expand(-1, -1, outputs.shape[-1])
        mixed = (outputs.gather(1, index) * share.unsqueeze(-1)).sum(1)
        out = self.head(F.normalize(mixed, dim=-1))
        return (out, F.cross_entropy(out, target)) if self.training else out


@network
def mixture_of_experts():
    """Top-k routing between experts."""

    def make(generator):
        return normal(generator, 16, 8), integers(generator, 2, 16)

    return Network(Experts(), make, adam())


@network
def plain_and_frozen_batch_norm():
    """One-dimensional batch norm: without affine parts, with frozen statistics, usual."""
    frozen = nn.BatchNorm1d(12)
    frozen.running_mean.uniform_(-0.5, 0.5)
    frozen.running_var.uniform_(0.5, 1.5)

    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = frozen

        def train(self, mode=True):
            super().train(mode)
            self.norm.eval()
            return self

        def forward(self, x):
            return self.norm(x)

    body = nn.Sequential(
        nn.Linear(6, 12),
        nn.BatchNorm1d(12, affine=False),
        nn.Tanh(),
        Frozen(),
        nn.Linear(12, 12),
        nn.BatchNorm1d(12, momentum=0.3),
        nn.Sigmoid(),
        nn.Linear(12, 3),
    )
    module = WithLoss(body, nn.KLDivLoss(reduction="batchmean"))

    def make(generator):
        return normal(generator, 32, 6), normal(generator, 32, 3).softmax(-1)

    return Network(module, make, sgd(), splits=False)
