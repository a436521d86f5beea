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
        yield Sample(
            "embedding_backward",
            lambda e=entries, w=width, s=sizes: [randn(*s, w), tokens(e, s), randn(e, w)],
            {"num_weights": entries, "padding_idx": 1},
            lambda grad, i, x, e=entries: x + torch.ops.aten.embedding_dense_backward(
                grad, i.long(), e, 1, False), note=f"{width}{sizes}+sum")


def bag(weight, indices, offsets, weights, mode, padding, include_last=False):
    """As the row: each bag spelled out."""
    if offsets is None:
        starts = [k * indices.shape[1] for k in range(indices.shape[0] + 1)]
    else:
        starts = offsets.tolist() + ([] if include_last else [indices.numel()])
    flat, rows = indices.flatten().long(), []
    for begin, end in zip(starts, starts[1:]):
        at = torch.arange(begin, end)[flat[begin:end] != padding]
        taken = weight[flat[at]]
        if len(at) == 0:
            rows.append(torch.zeros_like(weight[0]))
        elif mode == "max":
            rows.append(taken.max(0).values)
        else:
            taken = taken if weights is None else taken * weights.flatten()[at, None]
            rows.append(taken.sum(0) if mode == "sum" else taken.mean(0))
    return torch.stack(rows)


def bag_backward(grad, weight, indices, offsets, weights, **attrs):
    """As the row: by autograd."""
    with torch.enable_grad():
        weight = weight.detach().requires_grad_()
        if weights is not None:
            weights = weights.detach().requires_grad_()
        out = bag(weight, indices, offsets, weights, attrs["mode"], attrs["padding_idx"],
                  attrs["include_last_offset"])
        wanted = [weight] if weights is None else [weight, weights]
        found = torch.autograd.grad(out, wanted, grad)
    return found[0], found[1] if weights is not None else grad.new_empty(0)


def bags():
    for mode in ("sum", "mean", "max"):
        for offsets, last in ((None, False), ([0, 3, 3, 8], False), ([0, 2, 12, 15], True)):
            for weighted in (False, True) if mode == "sum" else (False,):
                for entries, width in ((10, 5), (40, 130)):
                    yield from bag_pair(mode, offsets, last, weighted, entries, width)


def bag_pair(mode, offsets, last, weighted, entries, width):
    """Samples of both rows; entry 2 is padding."""
    attrs = {"mode": mode, "padding_idx": 2, "include_last_offset": last}
    sizes = (3, 5) if offsets is None else (15,)
    count = 3 if offsets is None else len(offsets) - last
    indices = torch.randint(0, entries, sizes, generator=torch.Generator().manual_seed(3))
    # Distinct rows: equal largest entries would be a matter of taste.
    starts = None if offsets is None else numbers(*offsets, dtype=torch.int64)

    def operands():
        return [randn(entries, width), indices.to(torch.int32), starts,
                randn(*sizes) if weighted else None]

    note = f"{offsets}-{weighted}-{width}"
    yield Sample("embedding_bag", operands, attrs, note=note,
                 reference=lambda *x: bag(*x, mode, 2, last))
    yield Sample("embedding_bag_backward", lambda: [randn(count, width), *operands()], attrs,
                 reference=lambda *x: bag_backward(*x, **attrs), note=note)


SAMPLES = [*samples(), *bags()]


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
    Bad("embedding_backward", lambda: [randn(1, 3), some(1), randn(4, 3)], {"num_weights": 5},
        "sum is f32[4,3]"),
    Bad("embedding_backward", lambda: [randn(1, 3), some(1), randn(5, 3)],
        {"num_weights": 5, "scale_grad_by_freq": True}, "cannot be divided"),
    Bad("embedding_bag", lambda: [randn(4, 3), some(1, 2)], {"mode": "sum"}, "without offsets"),
    Bad("embedding_bag", lambda: [randn(4, 3), some(1, 2), some(0, 3)], {"mode": "sum"},
        "offset 3 (entry 1) comes after 0, there are 2 indices"),
    Bad("embedding_bag", lambda: [randn(4, 3), some(1, 2), some(1)], {"mode": "sum"},
        "Start with 0"),
    Bad("embedding_bag", lambda: [randn(4, 3), some(1, 4), some(0)], {"mode": "sum"},
        "index 4 (entry 1 of the index) is out of range"),
    Bad("embedding_bag", lambda: [randn(4, 3), some(1), some(0)], {"mode": "min"},
        'mode is "min"'),
    Bad("embedding_bag", lambda: [randn(4, 3), some(1), some(0), randn(1)], {"mode": "max"},
        "per_sample_weights are f32[1]"),
    Bad("embedding_bag_backward", lambda: [randn(2, 3), randn(4, 3), some(1), some(0)],
        {"mode": "sum"}, "grad_output is f32[2,3], the sizes [1, 3] are needed"),
]
