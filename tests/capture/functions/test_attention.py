"""Attention of operands and masks of all sizes that broadcast."""

import random

import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import quiet_options

PROGRAMS = 60


class Attention(torch.nn.Module):
    def __init__(self, is_causal):
        super().__init__()
        self.is_causal = is_causal

    def forward(self, q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.is_causal)


def some(rng, sizes, one):
    """The sizes, some of them 1, without some of the first."""
    kept = [1 if rng.random() < one else size for size in sizes]
    return kept[rng.choice((0, 0, 0, 1)):]


def drawn(rng):
    leading = [rng.choice((1, 2, 3)) for _ in range(rng.choice((0, 1, 2, 3)))]
    queries, keys, size, out = (rng.choice((1, 2, 3, 4)) for _ in range(4))
    operands = [torch.randn(*some(rng, leading, 0.3), *last)
                for last in ((queries, size), (keys, size), (keys, out))]
    how = rng.choice(("plain", "causal", "bool", "added"))
    if how in ("bool", "added"):
        sizes = (*some(rng, leading, 0.3), *(n if rng.random() < 0.8 else 1
                                             for n in (queries, keys)))
        mask = torch.randn(sizes[rng.choice((0, len(sizes) - 1)):])
        operands.append(mask > 0 if how == "bool" else mask)
    return how == "causal", operands


def test_operands_and_masks_broadcast():
    rng, compared = random.Random(torch.seed()), 0
    while compared < PROGRAMS:
        is_causal, operands = drawn(rng)
        try:
            expected = Attention(is_causal)(*operands)
        except (RuntimeError, IndexError):  # a mask of more dimensions, or of one
            continue
        compared += 1
        ours = poptorch.inferenceModel(Attention(is_causal), quiet_options())(*operands)
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5,
                                   msg=lambda m: f"{[t.shape for t in operands]}: {m}")
