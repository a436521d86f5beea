"""Samples of attention."""

import torch

from poptorch import _C
from tests.ops.sample import Bad, Sample, bools, numbers, randn

INFINITY = float("inf")
SCALE, DROPOUT, SALT = 0.3, 0.25, 7
LOGSUMEXP = 5  # as an operand; never a half
RNG = (1, 2, 0, 5)

# Batch, heads, queries, keys, features, features of values.
SHAPES = [
    (2, 3, 5, 7, 4, 6),
    (1, 2, 128, 128, 64, 64),
    (2, 2, 100, 300, 16, 16),  # several blocks of rows
    (1, 1, 150, 150, 8, 8),
    (1, 2, 70, 20, 8, 8),
    (1, 1, 1, 1, 1, 1),
    (1, 2, 9, 17, 5, 1),
    (2, 1, 260, 197, 63, 65),
]


def some(*sizes):
    """A mask in which each row and column takes part somewhere."""
    return bools(*sizes) | torch.eye(sizes[-2], sizes[-1], dtype=torch.bool)


def none_in_a_row(*sizes):
    """A mask whose first row hides everything."""
    mask = some(*sizes)
    mask[..., 0, :] = False
    return mask


MASKS = {
    "added": lambda b, h, l, s: randn(l, s),
    "bool": lambda b, h, l, s: some(l, s),
    "keys": lambda b, h, l, s: some(b, 1, 1, s),
    "queries": lambda b, h, l, s: bools(b, h, l, 1),
    "hidden": lambda b, h, l, s: none_in_a_row(b, h, l, s),
}


def scores_of(q, k, mask, causal):
    scores = q @ k.transpose(-1, -2) * SCALE
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -INFINITY)
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -INFINITY) if mask.dtype is torch.bool else scores + mask


def dropped(x, rng, p):
    """Dropout as the op of that name does it."""
    if p == 0:
        return x
    ones = torch.ones(x.shape, dtype=torch.float32).numpy()
    factors, = _C.evaluate("dropout", [ones, rng.numpy()], {"p": p, "salt": SALT})
    return torch.where(torch.from_numpy(factors) == 0, 0.0, x / (1 - p))


def forward_reference(causal, p):
    def reference(q, k, v, mask, rng):
        scores = scores_of(q, k, mask, causal)
        weights = torch.ops.aten._safe_softmax(scores, -1)
        wide = torch.float64 if q.dtype is torch.float64 else torch.float32
        return dropped(weights, rng, p) @ v, torch.logsumexp(scores.to(wide), -1)

    return reference


def backward_reference(causal, p):
    def reference(grad, q, k, v, mask, logsumexp, rng):
        # As exact as its softmax; the logarithm of the sum only tells which rows are hidden.
        weights = torch.ops.aten._safe_softmax(scores_of(q, k, mask, causal), -1)
        of_weights = dropped(grad @ v.transpose(-1, -2), rng, p)
        inner = (weights * of_weights).sum(-1, keepdim=True)
        of_scores = weights * (of_weights - inner) * SCALE
        return (of_scores @ k, of_scores.transpose(-1, -2) @ q,
                dropped(weights, rng, p).transpose(-1, -2) @ grad)

    return reference


def samples(shape, mask=None, causal=False, p=0.0):
    batch, heads, queries, keys, features, value_features = shape
    attrs = {"dropout_p": p, "is_causal": causal, "scale": SCALE, "salt": SALT}

    def operands():
        made = MASKS[mask](batch, heads, queries, keys) if mask else None
        rng = numbers(*RNG, dtype=torch.int32) if p > 0 else None
        return [randn(batch, heads, queries, features), randn(batch, heads, keys, features),
                randn(batch, heads, keys, value_features), made, rng]

    def with_gradient():
        *given, rng = operands()
        results = forward_reference(causal, p)(*given, rng)
        return [torch.randn_like(results[0]), *given, results[1], rng]

    note = f"{shape}-{mask}"
    yield Sample("attention", operands, attrs, forward_reference(causal, p),
                 rounded_within=("bf16",), note=note)
    yield Sample("attention_backward", with_gradient, attrs, backward_reference(causal, p),
                 wide=(LOGSUMEXP,), rounded_within=("bf16",), note=note)


SAMPLES = [
    *[sample for shape in SHAPES for causal in (False, True)
      for sample in samples(shape, causal=causal)],
    *[sample for shape in SHAPES[:3] for mask in MASKS for sample in samples(shape, mask)],
    *samples(SHAPES[2], "bool", causal=True),
    *samples(SHAPES[0], p=DROPOUT),
    *samples(SHAPES[2], "added", p=DROPOUT),
    *samples(SHAPES[3], causal=True, p=DROPOUT),
    *samples(SHAPES[0], p=1.0),
]

GIVEN = {"scale": 1.0}


def heads(*sizes):
    return randn(1, 2, *sizes)


BADS = [
    Bad("attention", lambda: [randn(5, 4), heads(7, 4), heads(7, 4)], GIVEN,
        words="4 dimensions were expected"),
    Bad("attention", lambda: [heads(5, 4), heads(7, 3), heads(7, 4)], GIVEN,
        words="k is f32[1,2,7,3]"),
    Bad("attention", lambda: [heads(5, 4), heads(7, 4), heads(6, 4)], GIVEN,
        words="v is f32[1,2,6,4]"),
    Bad("attention", lambda: [heads(5, 4), heads(7, 4), heads(7, 4), randn(3, 5, 7)], GIVEN,
        words="do not broadcast"),
    Bad("attention", lambda: [heads(5, 4), heads(7, 4), heads(7, 4)], {**GIVEN, "dropout_p": 0.5},
        words="the operand rng is absent"),
    Bad("attention", lambda: [heads(5, 4), heads(7, 4), heads(7, 4)], {**GIVEN, "dropout_p": 1.5},
        words="dropout_p is 1.5"),
    Bad("attention_backward",
        lambda: [heads(5, 3), heads(5, 4), heads(7, 4), heads(7, 4), None, randn(1, 2, 5)], GIVEN,
        words="grad is f32[1,2,5,3]"),
]
