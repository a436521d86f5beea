"""What a network of the zoo is, and the list of them."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from tests.helpers import to_dtype

NETWORKS = {}


@dataclass(frozen=True)
class Network:
    """A whole training program in miniature.

    ``module(*inputs)`` returns ``(out, loss)`` in training mode and ``out`` alone in eval mode.
    """

    module: nn.Module
    # Makes the float32 inputs of one step; every random number comes from the generator.
    make_inputs: Callable[[torch.Generator], tuple]
    # Makes the optimizer for a list of parameters.
    make_optimizer: Callable[[list], torch.optim.Optimizer]
    # One batch equals its parts: dim 0 of all inputs is the batch, the loss is its plain mean,
    # and there are no batch statistics.
    splits: bool = True
    # Why eager's own float32 error may be large, where it may.
    coarse: str = ""
    # Options of the factory that turn its dropout or noise on: eager draws other numbers then.
    random: dict = field(default_factory=dict)

    def to(self, dtype):
        """A copy whose parameters and buffers have ``dtype``."""
        return replace(self, module=copy.deepcopy(self.module).to(dtype))

    def batches(self, count, seed, dtype=torch.float32):
        """Inputs of ``count`` steps, in ``dtype``; the values are the same in every dtype."""
        generator = torch.Generator().manual_seed(seed)
        return [to_dtype(self.make_inputs(generator), dtype) for _ in range(count)]


def network(factory):
    """Adds ``factory() -> Network`` to the zoo under its own name."""
    NETWORKS[factory.__name__] = factory
    return factory


def build(name, seed, **options):
    """A network of the zoo, in float32, with the weights that the seed gives."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETWORKS[name](**options)


def normal(generator, *shape):
    """Standard normal float32 values."""
    return torch.randn(*shape, generator=generator)


def integers(generator, high, *shape):
    """Uniform int64 values from 0 to ``high - 1``."""
    return torch.randint(0, high, shape, generator=generator)


class WithLoss(nn.Module):
    """Gives a network of one input the form ``forward(x, target) -> (out, loss)``."""

    def __init__(self, body, loss):
        super().__init__()
        self.body = body
        self.loss = loss

    def forward(self, x, target):
        out = self.body(x)
        return (out, self.loss(out, target)) if self.training else out


def sgd(lr=1e-3, **options):
    """Stochastic gradient descent; a learning rate small enough for the float32 rule."""
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, **options)


def adam(lr=1e-3, **options):
    """Adam with an epsilon that keeps tiny gradients from deciding the direction."""
    return lambda parameters: torch.optim.Adam(parameters, lr=lr, eps=1e-4, **options)


def adamw(lr=1e-3, **options):
    """AdamW, see :func:`adam`."""
    return lambda parameters: torch.optim.AdamW(parameters, lr=lr, eps=1e-4, **options)
