"""Convolutions of all kinds, what is fused with them, and resampling of images."""

from tests.fuzz.programs.vocabulary.base import (
    Rejected,
    dtype_of,
    finite,
    fixed_statistics,
    operand,
    row,
    small,
)

CHANNELS = (1, 1, 2, 3, 4, 5, 6, 8, 8, 12, 16, 17, 24, 32, 40)
SPACES = {1: (1, 2, 3, 5, 8, 9, 16, 17, 33, 64), 2: (1, 2, 3, 4, 5, 7, 8, 9, 12, 17),
          3: (1, 2, 3, 4, 5, 6)}
# What happens to a result, so that its gradient comes in many layouts.
AFTER = (
    "{c}", "{c}", "{c}", "{c}.relu()", "F.gelu({c})", "{c}.transpose(0, 1)", "{c}.movedim(0, -1)",
    "{c}.mT", "{c}[..., ::2]", "{c}[:, ::2]", "{c}[:, 0]", "{c}.sum(1)", "{c}.sum(0)", "{c}.sum()",
    "{c}.mean((0, -1))", "{c}.flatten(1)", "{c}.flip(-1)", "{c}[..., -1]", "{c} * 0.5 + 1",
    "{c}.expand(2, *{c}.shape)", "{c}.transpose(1, -1)", "{c} + {c}.tanh()",
)
BENT = ("", "", "", ".sin()", ".tanh()", ".square()")
RANKS = (1, 1, 2, 2, 2, 2, 3)


def ended(d, text):
    """Adds a line that does something with a result."""
    after = d.rng.choice(AFTER)
    if after.count("{c}") > 1:
        text = d.emit(text)[0]
    # Of a linear loss, the gradient would be constant.
    d.emit(f"({after.format(c=text)}){bent}" if (bent := d.rng.choice(BENT))
           else after.format(c=text))


def numbers(d, rank, low, high):
    """A number for all dimensions, or one for each."""
    if d.chance(0.6):
        return d.rng.randint(low, high)
    return tuple(d.rng.randint(low, high) for _ in range(rank))


def image(d, rank, dtype=None, channels=None, most=9_000):
    """A tensor with ``rank`` dimensions of space: one that there is, or a new one."""
    found = d.tensors(lambda t: t.dim() == rank + 2 and t.is_floating_point()
                      and 0 < t.shape[1] <= 64 and t.numel() <= most)
    if found and channels is None and d.chance(0.5):
        return d.rng.choice(found)
    while True:
        space = [d.rng.choice(SPACES[rank]) for _ in range(rank)]
        batch = 0 if d.chance(0.02) else d.rng.choice((1, 1, 2, 2, 3, 4, 8))
        sizes = (batch, channels or d.rng.choice(CHANNELS), *space)
        count = 1
        for size in sizes:
            count *= size
        if count <= most:
            break
    x = operand(d, sizes, dtype or d.dtype(), "xxxxwb")
    if rank == 2 and d.chance(0.2):
        x = d.emit(f"{x}.contiguous(memory_format=torch.channels_last)")[0]
    return x


def as_each(numbers, rank):
    """A number for each dimension."""
    return (numbers,) * rank if isinstance(numbers, int) else numbers


def kernel_of(d, rank, space, dilation):
    """Sizes of a kernel that fits."""
    sizes = []
    for size, step in zip(space, as_each(dilation, rank)):
        most = max(1, (size + 1) // step)
        sizes.append(min(d.rng.choice((1, 1, 2, 3, 3, 3, 4, 5, 7)), most))
    return [sizes[0]] * rank if d.chance(0.4) and min(sizes) == sizes[0] else sizes


def grouping(d, channels):
    """Groups: one, one for each channel, or a divisor."""
    kind = d.rng.random()
    if kind < 0.6:
        return 1
    if kind < 0.8:
        return channels
    return d.rng.choice([k for k in range(1, channels + 1) if channels % k == 0])


def convolved(d, rank=None, x=None):
    """The text of a convolution, and its number of channels."""
    rank = rank or d.rng.choice(RANKS)
    x = x or image(d, rank)
    channels, dtype, space = d.env[x].shape[1], dtype_of(d, x), d.env[x].shape[2:]
    dilation = numbers(d, rank, 1, 2) if d.chance(0.25) else 1
    groups = grouping(d, channels)
    out = groups * small(d, max(1, 24 // groups)) if groups > 1 else d.rng.choice(CHANNELS)
    weight = operand(d, (out, channels // groups, *kernel_of(d, rank, space, dilation)), dtype,
                     "wwwwxb")
    if d.chance(0.1):
        weight = d.emit(d.rng.choice((f"{weight} * 0.5", f"{weight}.flip(-1)",
                                      f"{weight} * {weight}",
                                      f"{weight}.tanh()")))[0]
    more = []
    if d.chance(0.6):
        more.append(f"bias={operand(d, (out,), dtype, 'wwwwxb')}")
    if d.chance(0.35):
        more.append(f"stride={numbers(d, rank, 1, 3)}")
        padding = numbers(d, rank, 0, 3)
    else:
        padding = d.rng.choice((0, 0, 1, 1, 2, "'same'", "'valid'", numbers(d, rank, 0, 3)))
    if padding != 0:
        finite(d, weight)  # eager's kernels differ in whether they multiply the zeros outside
        more.append(f"padding={padding}")
    if dilation != 1:
        more.append(f"dilation={dilation}")
    if groups > 1:
        more.append(f"groups={groups}")
    return f"F.conv{rank}d({', '.join([x, weight, *more])})", out


@row("convolutions", 12)
def convolution(d):
    text, _ = convolved(d)
    if d.chance(0.4):
        d.emit(text)
    else:
        ended(d, text)


@row("convolutions", 3)
def unbatched(d):
    rank = d.rng.choice((1, 2))
    channels, out, dtype = d.rng.choice(CHANNELS), d.rng.choice(CHANNELS), d.dtype()
    space = [d.rng.choice(SPACES[rank]) for _ in range(rank)]
    x = operand(d, (channels, *space), dtype)
    sizes = out, channels, *(min(3, size) for size in space)
    weight = finite(d, operand(d, sizes, dtype, "wwxb"))
    d.emit(f"F.conv{rank}d({x}, {weight}, padding={d.rng.randint(0, 1)})")


@row("convolutions", 8)
def transposed(d):
    rank = d.rng.choice(RANKS)
    x = image(d, rank, most=3_000)
    channels, dtype = d.env[x].shape[1], dtype_of(d, x)
    groups, stride = grouping(d, channels), numbers(d, rank, 1, 3)
    dilation = numbers(d, rank, 1, 2) if d.chance(0.25) else 1
    per_group = small(d, 6) if groups > 1 else d.rng.choice((1, 2, 3, 5, 8, 16))
    kernel = [d.rng.choice((1, 2, 3, 3, 4)) for _ in range(rank)]
    weight = operand(d, (channels, per_group, *kernel), dtype, "wwwwxb")
    more = [f"stride={stride}"]
    if d.chance(0.6):
        more.append(f"bias={operand(d, (per_group * groups,), dtype, 'wwwxb')}")
    if d.chance(0.5):
        more.append(f"padding={numbers(d, rank, 0, 2)}")
    if d.chance(0.3):
        more.append("output_padding=1" if stride != 1 or dilation != 1 else "output_padding=0")
    more += [f"dilation={dilation}"] * (dilation != 1) + [f"groups={groups}"] * (groups > 1)
    ended(d, f"F.conv_transpose{rank}d({', '.join([x, weight, *more])})")


@row("convolutions", 5)
def normalized(d):
    """A convolution and a batch norm in evaluation, which are folded where weights are constant."""
    text, out = convolved(d)
    c = d.emit(text)[0]
    dtype = dtype_of(d, c)
    statistics = fixed_statistics(d, (out,), dtype)
    affine = ""
    if d.chance(0.7):  # eager's gradients read other memory of weights with steps
        weight, bias = operand(d, (out,), dtype, "wwb"), operand(d, (out,), dtype, "wwb")
        affine = f", {weight}.contiguous(), {bias}"
    n = d.emit(f"F.batch_norm({c}, {statistics}{affine})")[0]
    if d.chance(0.5):
        d.emit(d.rng.choice((f"F.relu({n})", f"F.relu({n} + {c})", f"F.silu({n})",
                             f"F.relu6({n})", f"{n} + {c}")))


@row("convolutions", 5)
def with_residual(d):
    """A convolution, something added, and an activation."""
    text, _ = convolved(d)
    c = d.emit(text)[0]
    y = d.partner(c, dtype_of(d, c))
    d.emit(d.rng.choice((f"F.relu({c} + {y})", f"{c} + {y}", f"F.relu({y} + {c})",
                         f"F.silu({c}) * {y}",
                         f"{c} * {y}", f"F.hardswish({c} + {y})", f"torch.sigmoid({c}) * {y} + {c}",
                         f"{c} - {y}", f"F.leaky_relu({c} * 0.5 + {y}, 0.1)")))


@row("convolutions", 3)
def of_two(d):
    """One convolution after the other."""
    rank = d.rng.choice((1, 2, 2))
    text, out = convolved(d, rank)
    text = d.rng.choice(("{}", "F.relu({})", "{}.transpose(-1, -2)")).format(text)
    first = d.emit(text)[0]
    if d.env[first].dim() == rank + 2 and d.env[first].shape[1] == out:
        d.emit(convolved(d, rank, first)[0])


@row("convolutions", 3)
def patches(d):
    x = image(d, 2, most=3_000)
    channels, *space = d.env[x].shape[1:]
    kernel = [min(size, d.rng.randint(1, 3)) for size in space]
    more = (f"{tuple(kernel)}, dilation=1, padding={d.rng.randint(0, 1)}, "
            f"stride={d.rng.randint(1, 2)}")
    if d.chance(0.5):
        d.emit(f"F.unfold({x}, {more})")
    elif d.chance(0.5):
        d.emit(f"F.fold(F.unfold({x}, {more}), {tuple(space)}, {more})")
    else:
        count = (space[0] - kernel[0] + 1) * (space[1] - kernel[1] + 1)
        columns = operand(d, (2, 2 * kernel[0] * kernel[1], count), dtype_of(d, x))
        d.emit(f"F.fold({columns}, {tuple(space)}, {tuple(kernel)})")


@row("convolutions", 6)
def resampled(d):
    rank = d.rng.choice(RANKS)
    x = image(d, rank, most=2_000)
    if d.env[x].numel() == 0:  # torch's own rules of shapes fail
        raise Rejected
    space = d.env[x].shape[2:]
    smooth = {1: ("linear",), 2: ("bilinear", "bilinear", "bicubic"), 3: ("trilinear",)}[rank]
    mode = d.rng.choice(("nearest", "nearest", "nearest-exact", "area", *smooth, *smooth))
    if d.chance(0.5):
        to = f"size={tuple(max(1, size + d.rng.randint(-3, 5)) for size in space)}"
    else:
        to = f"scale_factor={d.rng.choice((2, 2, 3, 0.5, 1.5, 1.7, 2.0))}"
    more = ""
    if mode in smooth and d.chance(0.6):
        more = f", align_corners={d.chance(0.5)}"
        if rank == 2 and d.chance(0.15):
            more = ", antialias=True"
    elif "scale" in to and d.chance(0.2):
        more = ", recompute_scale_factor=True"
    if mode in smooth and not d.env[x].isfinite().all():
        x = f"{x}.nan_to_num()"  # eager multiplies neighbours by 0
    d.emit(f"F.interpolate({x}, {to}, mode={mode!r}{more})")


@row("convolutions", 3)
def shuffled(d):
    k = d.rng.choice((1, 2, 2, 3))
    if d.chance(0.5):
        sizes = (d.rng.choice((1, 2)), k * k * small(d, 4), *(small(d, 6) for _ in range(2)))
        text = f"F.pixel_shuffle({{}}, {k})"
    elif d.chance(0.6):
        sizes = (d.rng.choice((1, 2)), small(d, 4), k * small(d, 4), k * small(d, 4))
        text = f"F.pixel_unshuffle({{}}, {k})"
    else:
        sizes = (2, k * small(d, 4), *(small(d, 6) for _ in range(2)))
        text = f"F.channel_shuffle({{}}, {k})"
    d.emit(text.format(operand(d, sizes, d.dtype())))


@row("convolutions", 3)
def sampled(d):
    """Values between those of an image."""
    rank = d.rng.choice((2, 2, 3))
    x = image(d, rank, most=1_000)
    batch, dtype = d.env[x].shape[0], dtype_of(d, x)
    sizes = (batch, *(small(d, 5) for _ in range(rank)), rank)
    grid = d.fresh(sizes, dtype, d.rng.choice(("normal", "uniform", "positive")))
    if d.chance(0.3):
        channels = d.env[x].shape[1]
        theta = operand(d, (batch, rank, rank + 1), dtype, "xxw")
        grid = f"F.affine_grid({theta}, {(batch, channels, *sizes[1:-1])}, align_corners=False)"
    mode = d.rng.choice(("bilinear", "bilinear", "nearest", "bicubic" if rank == 2 else "bilinear"))
    padding = d.rng.choice(("zeros", "border", "reflection"))
    d.emit(f"F.grid_sample({x}, {grid}, mode={mode!r}, padding_mode={padding!r}, "
           f"align_corners={d.chance(0.5)})")
