"""Pools."""

from tests.fuzz.programs.vocabulary.base import row
from tests.fuzz.programs.vocabulary.convolutions import RANKS, as_each, image, numbers

AFTER = ("{}",) * 8 + ("F.relu({})", "{}.flatten(1)", "{}.sum(1)", "{}.mT.tanh()",
                       "{}[..., ::2].sin()",
                       "{}.squeeze()", "{}.transpose(0, 1).square()", "{}.mean(-1)")


def window(d, rank, space, low_stride=1):
    """Kernel, stride and padding of a pool that fits, as text."""
    kernel = [min(d.rng.choice((1, 2, 2, 3, 3, 4)), max(1, size)) for size in space]
    if d.chance(0.5):
        kernel = [min(kernel)] * rank
    most = min(kernel) // 2
    padding = numbers(d, rank, 0, most) if d.chance(0.5) else 0
    more = ""
    if d.chance(0.5):
        more += f", stride={numbers(d, rank, low_stride, 3)}"
    if padding:
        more += f", padding={padding}"
    if d.chance(0.3):
        more += ", ceil_mode=True"
    shown = kernel[0] if len(set(kernel)) == 1 and d.chance(0.5) else tuple(kernel)
    return shown, more


@row("pools", 8)
def maximum(d):
    rank = d.rng.choice(RANKS)
    x = image(d, rank)
    kernel, more = window(d, rank, d.env[x].shape[2:])
    if d.chance(0.2):
        more += f", dilation={numbers(d, rank, 1, 2)}"
    if d.chance(0.3):
        d.emit(f"F.max_pool{rank}d({x}, {kernel}{more}, return_indices=True)", 2)
    else:
        d.emit(d.rng.choice(AFTER).format(f"F.max_pool{rank}d({x}, {kernel}{more})"))


@row("pools", 8)
def mean(d):
    rank = d.rng.choice(RANKS)
    x = image(d, rank)
    kernel, more = window(d, rank, d.env[x].shape[2:])
    if d.chance(0.3):
        more += f", count_include_pad={d.chance(0.3)}"
    if rank > 1 and d.chance(0.2):
        more += f", divisor_override={d.rng.randint(1, 5)}"
    d.emit(d.rng.choice(AFTER).format(f"F.avg_pool{rank}d({x}, {kernel}{more})"))


@row("pools", 7)
def adaptive(d):
    rank = d.rng.choice(RANKS)
    x = image(d, rank)
    sizes = numbers(d, rank, 1, 5)
    if rank > 1 and d.chance(0.2):
        sizes = (None, *as_each(sizes, rank)[1:])
    kind = d.rng.random()
    if kind < 0.6:
        text = f"F.adaptive_avg_pool{rank}d({x}, {sizes})"
    elif kind < 0.85:
        text = f"F.adaptive_max_pool{rank}d({x}, {sizes})"
    else:
        d.emit(f"F.adaptive_max_pool{rank}d({x}, {sizes}, return_indices=True)", 2)
        return
    d.emit(d.rng.choice(AFTER).format(text))


@row("pools", 3)
def power(d):
    rank = d.rng.choice((1, 2, 2, 3))
    x = image(d, rank)
    kernel, _ = window(d, rank, d.env[x].shape[2:])
    more = f", stride={d.rng.randint(1, 3)}" if d.chance(0.5) else ""
    more += ", ceil_mode=True" if d.chance(0.3) else ""
    d.emit(f"F.lp_pool{rank}d({x}.abs() + 0.1, {d.rng.choice((1, 2, 3.0))}, {kernel}{more})")


@row("pools", 3)
def undone(d):
    """Maxima at their places; windows do not overlap, so that no place is written twice."""
    rank = d.rng.choice(RANKS)
    x = image(d, rank, most=3_000)
    space = d.env[x].shape[2:]
    kernel = min(2, *space)
    v, places = d.emit(f"F.max_pool{rank}d({x}, {kernel}, return_indices=True)", 2)
    if d.chance(0.4):
        v = d.emit(f"{v} * 2")[0]
    to = f", output_size={tuple(space)}" if d.chance(0.5) else ""
    d.emit(f"F.max_unpool{rank}d({v}, {places}, {kernel}{to})")
