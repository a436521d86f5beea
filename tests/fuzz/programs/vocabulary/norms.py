"""Normalizations."""

from tests.fuzz.programs.vocabulary.base import (
    a_size,
    dtype_of,
    finite,
    fixed_statistics,
    operand,
    row,
    small,
)

AFTER = ("{}",) * 8 + ("F.relu({})", "{}.mT.tanh()", "{}[..., ::2].sin()", "{}.sum(0)", "{} * 2",
                       "F.gelu({})",
                       "{}.flip(0)", "{}.transpose(0, 1).square()", "{}.sum()")


def parameter(d, sizes, dtype, p=0.7):
    """A finite parameter of these sizes, or None: ``inf`` gives what the order of steps makes it.
    """
    if not d.chance(p):
        return None
    name = operand(d, sizes, dtype, "wwwwxb", d.rng.choice(("", "normal", "wavy", "positive")))
    return finite(d, name)


def mixed(d, dtype):
    """The dtype of a norm's parameters: those of a 16-bit tensor may be float32."""
    return "F32" if dtype in ("F16", "BF16") and d.chance(0.2) else dtype


def channelled(d, low=2):
    """A tensor whose dimension 1 holds channels."""
    if d.chance(0.4):
        sizes = (d.rng.choice((1, 2, 2, 3, 4)), d.rng.choice((1, 2, 3, 4, 6, 8, 12, 16, 17, 32)),
                 *(small(d, 9) for _ in range(d.rng.randint(low - 2, 3))))
        return operand(d, sizes, d.dtype(), "xxxwb")
    x = d.pick(lambda t: t.is_floating_point() and low <= t.dim() <= 5 and t.shape[1] > 0)
    return x


RESIDUAL = ("F.relu({y} + {r})", "F.relu({r} + {y})", "{y} + {r}", "{r} + {y}", "{r} - {y}",
            "{y} + F.relu({y})", "F.relu({y}) + {r}", "F.gelu({y}) + {r}", "{y} * {r} + {r}",
            "F.dropout({y}, 0.0) + {r}", "F.silu({y} + {r})", "torch.add({r}, {y}, alpha=0.5)")


def with_residual(d, text, x):
    """What is normed, and added to something, as blocks of networks do; others may read it, too."""
    y = d.emit(text)[0]
    r = x if d.env[x].shape == d.env[y].shape and d.chance(0.5) else operand(
        d, d.env[y].shape, dtype_of(d, y))
    d.emit(d.rng.choice(RESIDUAL).format(y=y, r=r))


def unambiguous(d, x: str, call: str) -> str:
    """``call``, a norm of ``x`` over its batch, with an operand and a gradient that lie in one
    order of dimensions only: eager's gradients are wrong where it takes one for the other."""
    call = call.replace(f"({x}", f"({x}.clone(memory_format=torch.contiguous_format)", 1)
    return f"{call}.index_select(0, torch.arange({d.env[x].shape[0]}))"


def ended(d, text, x):
    """Adds lines with the norm of ``x``, and what comes after it."""
    if d.chance(0.25):
        with_residual(d, text, x)
    else:
        d.emit(d.rng.choice(AFTER).format(text))


@row("norms", 9)
def batch(d):
    x = channelled(d)
    dtype = mixed(d, dtype_of(d, x))
    sizes = (d.env[x].shape[1],)
    weight, bias = parameter(d, sizes, dtype), parameter(d, sizes, dtype)
    if weight:  # eager's gradients read other memory of weights with steps
        weight = f"{weight}.contiguous()"
    training = d.chance(0.6)
    running = "None, None"
    if not training:
        running = fixed_statistics(d, sizes, dtype)
    elif d.chance(0.7):
        mean, var = d.fresh(sizes, dtype, "", "b"), d.fresh(sizes, dtype, "positive", "b")
        running = f"{mean}, {var}"
    more = f", momentum={d.rng.choice((0.1, 0.5, 0.01, 1.0))}" if d.chance(0.4) else ""
    more += f", eps={d.rng.choice((1e-3, 0.1))}" if d.chance(0.2) else ""
    call = f"F.batch_norm({x}, {running}, {weight}, {bias}, training={training}{more})"
    ended(d, unambiguous(d, x, call) if 1 in d.env[x].shape else call, x)


@row("norms", 4)
def instance(d):
    x = channelled(d, 3)
    dtype = dtype_of(d, x)
    sizes = (d.env[x].shape[1],)
    weight, bias = parameter(d, sizes, dtype), parameter(d, sizes, dtype)
    running = "None, None"
    if d.chance(0.4):
        mean, var = d.fresh(sizes, dtype, "", "b"), d.fresh(sizes, dtype, "positive", "b")
        running = f"{mean}, {var}"
    more = ", use_input_stats=False" if running[0] != "N" and d.chance(0.4) else ""
    call = f"F.instance_norm({x}, {running}, {weight}, {bias}{more})"
    ended(d, unambiguous(d, x, call), x)


@row("norms", 6)
def group(d):
    x = channelled(d)
    dtype = dtype_of(d, x)
    channels = d.env[x].shape[1]
    groups = d.rng.choice([k for k in range(1, channels + 1) if channels % k == 0])
    dtype = mixed(d, dtype)
    weight = parameter(d, (channels,), dtype)
    bias = parameter(d, (channels,), dtype) if weight else None  # eager's backward fails
    more = f", eps={d.rng.choice((1e-3, 0.1))}" if d.chance(0.2) else ""
    ended(d, f"F.group_norm({x}, {groups}, {weight}, {bias}{more})", x)


def last_sizes(d):
    """A tensor and the sizes of its last dimensions."""
    if d.chance(0.3):
        x = operand(d, (d.rng.choice(d.dims), small(d, 5), a_size(d)), d.dtype(), "xxwb")
    else:
        x = d.floating(1, 5)
    shape = tuple(d.env[x].shape)
    return x, shape[-d.rng.choice((1, 1, 1, 2, 3)):]


@row("norms", 8)
def layer(d):
    x, sizes = last_sizes(d)
    dtype = mixed(d, dtype_of(d, x))
    weight, bias = parameter(d, sizes, dtype), parameter(d, sizes, dtype, 0.5)
    more = f", eps={d.rng.choice((1e-3, 0.1))}" if d.chance(0.2) else ""
    ended(d, f"F.layer_norm({x}, {sizes}, {weight}, {bias}{more})", x)


@row("norms", 4)
def root_mean_square(d):
    x, sizes = last_sizes(d)
    weight = parameter(d, sizes, dtype_of(d, x))
    more = f", eps={d.rng.choice((1e-3, 0.1))}" if d.chance(0.4) else ""
    ended(d, f"F.rms_norm({x}, {sizes}, {weight}{more})", x)


@row("norms", 3)
def of_neighbours(d):
    x = channelled(d, 3)
    ended(d, f"F.local_response_norm({x}, {d.rng.choice((1, 2, 3, 5))}, alpha=0.1, beta=0.75)", x)


@row("norms", 3)
def of_weights(d):
    """Directions and lengths apart."""
    # Eager ends the process where there are no elements.
    x = d.pick(lambda t: t.is_floating_point() and 2 <= t.dim() <= 4 and t.numel() > 0)
    dim = d.rng.choice((0, 0, d.env[x].dim() - 1))
    sizes = [1] * d.env[x].dim()
    sizes[dim] = d.env[x].shape[dim]
    g = operand(d, sizes, dtype_of(d, x), "wwx")
    d.emit(f"torch._weight_norm({x}, {g}, {dim})")


@row("norms", 3)
def by_hand(d):
    """Norms as users write them."""
    x = d.floating(1, 4)
    dim = d.rng.choice((-1, -1, 0))
    mean, var = f"{x}.mean({dim}, keepdim=True)", f"{x}.var({dim}, keepdim=True, correction=0)"
    d.emit(d.rng.choice((
        f"({x} - {mean}) / ({var} + 1e-3).sqrt()", f"({x} - {mean}) * torch.rsqrt({var} + 0.1)",
        f"{x} * torch.rsqrt({x}.pow(2).mean({dim}, keepdim=True) + 1e-3)",
        f"{x} / ({x}.norm(dim={dim}, keepdim=True) + 0.1)", f"{x} - {mean}",
        f"F.normalize({x}, p=1.0, dim={dim})", f"F.normalize({x}, dim={dim}, eps=0.1)",
        f"({x} - {x}.amax({dim}, keepdim=True)).exp()")))
