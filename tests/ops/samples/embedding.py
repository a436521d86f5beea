"""Samples of the embedding family."""

import torch

from tests.ops.sample import Bad, Sample, integers, numbers, randn

# Entries, width, and the sizes of the indices.
CASES = ((10, 8, (4, 5)), (3, 1, (7,)), (50, 768, (2, 64)), (2, 40, (3000,)), (400, 33, (0,)),
         (5, 6, ()), (3000, 128, (4, 50)))


def tokens(entries, sizes, dtype=torch.int32):
    return integers(0, entries, *sizes, dtype=dtype)


def samples():
    for entries, width, sizes in CASES:
        for dtype in (torch.int32, torch.int64):
            yield Sample(
                "embedding",
                lambda e=entries, w=width, s=sizes, t=dtype: [randn(e, w), tokens(e, s, t)], {},
                lambda weight, i: weight[i.long()], note=f"{entries}x{width}{sizes}{dtype}")
        for padding, by_count in ((-1, False), (1, False), (-1, True), (1, True)):
            yield Sample(
                "embedding_backward",
                lambda e=entries, w=width, s=sizes: [randn(*s, w), tokens(e, s)],
                {"num_weights": entries, "padding_idx": padding, "scale_grad_by_freq": by_count},
                note=f"{width}{sizes}")


SAMPLES = list(samples())


def some(*values):
    return numbers(*values, dtype=torch.int32)


BADS = [
    Bad("embedding", lambda: [randn(4, 3), some(1, 4)], {},
        "index 4 (entry 1 of the index) is out of range: dimension 0 has 4 entries, so 0 to 3"),
    Bad("embedding", lambda: [randn(4, 3), some(-1)], {}, "index -1 (entry 0"),
    Bad("embedding", lambda: [randn(4), some(1)], {}, "a matrix [entries, width] is needed"),
    Bad("embedding", lambda: [randn(4, 3), randn(2)], {}, "positions are i32 or i64"),
    Bad("embedding_backward", lambda: [randn(2, 3), some(1, 9)], {"num_weights": 5},
        "dimension 0 has 5 entries"),
    Bad("embedding_backward", lambda: [randn(3, 3), some(1, 2)], {"num_weights": 5},
        "grad_output is f32[3,3], the indices are i32[2]"),
    Bad("embedding_backward", lambda: [randn(1, 3), some(1)], {"num_weights": -2},
        "num_weights is -2"),
]
