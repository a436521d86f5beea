"""Views, copies in another layout, and changes of views in place."""

from tests.fuzz.programs.vocabulary.base import dtype_of, operand, row


def shape_of(d, name):
    return list(d.env[name].shape)


def a_dim(d, name):
    """A dimension, from either end."""
    rank = d.env[name].dim()
    return d.rng.randint(-rank, rank - 1)


def factored(d, count):
    """Sizes with a product of ``count``."""
    sizes = []
    while count > 1 and len(sizes) < 3:
        divisors = [k for k in range(1, min(count, 300) + 1) if count % k == 0]
        sizes.append(d.rng.choice(divisors))
        count //= sizes[-1]
    sizes.append(count)
    return sizes


def a_slice(d, size):
    """The text of a slice of a dimension."""
    start = d.rng.randint(-size - 1, size + 1)
    end = d.rng.choice(("", d.rng.randint(-size - 1, size + 2)))
    step = d.rng.choice(("", "", ":2", ":3", ":1"))
    return f"{d.rng.choice(('', start))}:{end}{step}"


def view_of(d, x):
    """The text of a view of ``x``."""
    kinds = [_of_other_sizes] * 3
    if d.env[x].dim():
        kinds += [_cut] * 4
    if d.env[x].dim() >= 2:
        kinds += [_reordered] * 3
    return d.rng.choice(d.rng.choice(kinds)(d, x))


def _of_other_sizes(d, x):
    """Texts of views with all elements of ``x`` in their order."""
    shape, rank = shape_of(d, x), d.env[x].dim()
    count = d.env[x].numel()
    texts = [f"{x}.view(-1)" if count else f"{x}.detach()",
             f"{x}.unsqueeze({d.rng.randint(0, rank)})",
             f"{x}.squeeze()", f"{x}.flatten()", f"{x}.ravel()",
             f"{x}.reshape({factored(d, count)})" if count else f"{x}[...]",
             f"{x}.view({factored(d, count)})" if count else f"{x}[None]",
             f"{x}.expand({[d.rng.choice((1, 2, 3)), *shape]})", f"{x}.contiguous()",
             f"{x}.view_as({x})"]
    if rank:
        dim = a_dim(d, x)
        texts += [f"{x}.squeeze({dim})", f"{x}.unsqueeze({dim})"]
        if shape[dim] and shape[dim] % 2 == 0:
            texts.append(f"{x}.unflatten({dim}, (2, {shape[dim] // 2}))")
    if rank >= 2:
        texts.append(f"{x}.flatten(0, 1)")
    return texts


def _cut(d, x):
    """Texts of views with some elements of ``x``."""
    shape, rank, dim = shape_of(d, x), d.env[x].dim(), a_dim(d, x)
    size = shape[dim]
    at = [slice_or_all(d, n) for n in shape]
    texts = [f"{x}[{', '.join(at)}]", f"{x}[{', '.join(at)}]",
             f"{x}[{', '.join(at[:d.rng.randint(1, rank)])}]", f"{x}[..., {at[-1]}]"]
    if size:
        texts += [f"{x}.select({dim}, {d.rng.randint(-size, size - 1)})",
                  f"{x}.narrow({dim}, {(s := d.rng.randint(0, size - 1))}, "
                  f"{d.rng.randint(0, size - s)})",
                  f"{x}[{d.rng.randint(-shape[0], shape[0] - 1) if shape[0] else 0}]",
                  f"{x}.unfold({dim}, {d.rng.randint(1, size)}, {d.rng.randint(1, 3)})",
                  f"{x}.chunk({d.rng.randint(1, 3)}, {dim})[0]",
                  f"{x}.tensor_split({d.rng.randint(1, 3)}, {dim})[-1]"]
    if rank >= 2:
        a, b = d.rng.sample(range(rank), 2)
        texts += [f"{x}.diagonal({d.rng.randint(-1, 1)})",
                  f"{x}.diagonal({d.rng.randint(-1, 1)}, {a}, {b})"]
    return texts


def _reordered(d, x):
    """Texts of views with the dimensions of ``x`` in another order."""
    rank = d.env[x].dim()
    texts = [f"{x}.permute({d.rng.sample(range(rank), rank)})"] * 3
    texts += [f"{x}.movedim({a_dim(d, x)}, {a_dim(d, x)})",
              f"{x}.transpose({a_dim(d, x)}, {a_dim(d, x)})", f"{x}.mT", f"{x}.swapaxes(0, -1)"]
    if rank == 2:
        texts += [f"{x}.t()", f"{x}.T"]
    return texts


def slice_or_all(d, size):
    """The text of an index of one dimension that is a view."""
    kind = d.rng.random()
    if kind < 0.3:
        return ":"
    if kind < 0.5 and size:
        return str(d.rng.randint(-size, size - 1))
    return a_slice(d, size)


@row("shaping", 14)
def view(d):
    d.emit(view_of(d, d.any(0, 5)))


@row("shaping", 4)
def view_of_a_view(d):
    x = d.any(1, 5)
    for _ in range(d.rng.randint(2, 3)):
        x = d.emit(view_of(d, x))[0]


@row("shaping", 2)
def strided(d):
    x = d.pick(lambda t: t.numel() > 3 and t.dim() > 0)
    # Offsets count from the start of the memory: of a cut input, from that of all micro-batches.
    # Gradients of places outside of the operand are known to differ: see capture.md.
    has_gradient = d.env[x].requires_grad
    # A program is given an input's elements, not what lies before them or between them.
    if has_gradient or d.setting.micro_batches > 1 or d.lies_in(
            x, "stepped", "offset", "expanded"):
        x = d.emit(f"{x} * 1")[0]
    room = d.env[x].numel()
    size = (d.rng.randint(1, 3), d.rng.randint(1, 3))
    stride = (d.rng.randint(0, 3), d.rng.randint(0, 2))
    reach = (size[0] - 1) * stride[0] + (size[1] - 1) * stride[1]
    if reach < room:
        offset = d.rng.randint(0, room - 1 - reach)
        if not has_gradient and d.chance(0.5):  # of a view with an offset of its own
            x = d.emit(view_of(d, x))[0]
        d.emit(f"{x}.as_strided({size}, {stride}, {offset})")


@row("shaping", 5)
def copy(d):
    x = d.any(0, 5)
    rank = d.env[x].dim()
    texts = [f"{x}.clone()", f"{x}.contiguous()",
             f"{x}.repeat({[d.rng.randint(1, 2) for _ in range(rank)]})",
             f"{x}.detach()", f"torch.neg({x}).neg()"]
    if rank:
        dim = a_dim(d, x)
        size = d.env[x].shape[dim]
        often = [d.rng.randint(0, 2) for _ in range(size)]
        texts += [f"{x}.repeat_interleave(2, {dim})", f"torch.tile({x}, (2,))",
                  f"{x}.repeat_interleave(torch.tensor({often}, dtype=I64), {dim})"]
        if d.chance(0.2):
            ones = f"{d.indices(3, (size,))} * 0 + torch.tensor({often}, dtype=I64)"
            texts.append(f"{x}.repeat_interleave({ones}, {dim}, output_size={sum(often)})")
    if rank >= 2:
        k = d.rng.randint(-2, 2)
        texts += [f"{x}.tril({k})", f"{x}.triu({k})"]
    d.emit(d.rng.choice(texts))


@row("shaping", 4)
def moved(d):
    """All elements at other places."""
    x = d.any(1, 5)
    rank, by = d.env[x].dim(), d.rng.randint(-3, 3)
    dims = tuple(d.rng.sample(range(rank), d.rng.randint(1, rank)))
    steps = tuple(d.rng.randint(-3, 3) for _ in dims)
    texts = [f"{x}.roll({by}, {a_dim(d, x)})", f"{x}.roll({steps}, {dims})", f"{x}.roll({by})",
             f"{x}.flip({a_dim(d, x)})", f"{x}.flip({dims})"]
    if rank > 1:
        texts += [f"torch.rot90({x}, {by}, {tuple(d.rng.sample(range(rank), 2))})",
                  f"torch.fliplr({x})"]
    d.emit(d.rng.choice(texts))


@row("shaping", 2)
def negative_view(d):
    x = d.floating()
    d.emit(d.rng.choice((f"torch._neg_view({x})", f"torch._neg_view({x}).t()" if d.env[x].dim() == 2
                         else f"torch._neg_view({x}) * 2", f"torch._neg_view({x}).contiguous()")))


CHANGES = ("{x}.add_({y})", "{x}.mul_({y})", "{x}.sub_({y})", "{x}.copy_({y})", "{x}.zero_()",
           "{x}.fill_(1.5)", "{x}.add_(1)", "{x}.mul_(0.5)", "{x}.clamp_(-1, 1)", "{x}.neg_()",
           "{x}.div_({y}.abs() + 1)", "{x}.add_({y}, alpha=2)", "{x}.masked_fill_({m}, 0.5)",
           "{x}.abs_()", "{x}.tanh_()", "{x}.relu_()", "{x}.sigmoid_()", "{x}.addcmul_({y}, {y})",
           "{x}[...] = {y}", "{x} += {y}", "{x} *= {y}", "{x}.lerp_({y}, 0.3)", "{x}.sqrt_()",
           "{x}.exp_()", "{x}.pow_(2)", "{x}.squeeze_()", "{x}.unsqueeze_(0)", "{x}.copysign_({y})",
           "{x}.eq_({y})", "{x}.floor_()", "{x}.maximum({y})", "torch.add({x}, {y}, out={x})")


def changeable(d):
    """A tensor that may be changed in place: no parameter."""
    return d.pick(lambda t: not (t.requires_grad and t.is_leaf))


@row("inplace", 6)
def change(d):
    x = changeable(d)
    y = d.partner(x)
    d.change(d.rng.choice(CHANGES).format(x=x, y=y, m=d.condition(d.env[x].shape)), x)


@row("inplace", 5)
def change_of_a_view(d):
    x = changeable(d)
    v = d.emit(view_of(d, x))[0]
    y = d.partner(v)
    d.change(d.rng.choice(CHANGES).format(x=v, y=y, m=d.condition(d.env[v].shape)), v)
    if d.chance(0.5):
        d.emit(f"{x} + 0" if d.chance(0.5) else f"{x}.clone()")


@row("inplace", 3)
def set_item(d):
    x = d.pick(lambda t: t.dim() > 0 and not (t.requires_grad and t.is_leaf))
    at = ", ".join(slice_or_all(d, n) for n in shape_of(d, x))
    try:
        part = eval(f"x[{at}]", {"x": d.env[x]})
    except (ValueError, IndexError):
        at, part = "...", d.env[x]
    value = d.rng.choice(("2.0", "0"))
    if d.chance(0.7):
        value = d.fresh(d.within(part.shape), d.dtype())
    d.change(f"{x}[{at}] {d.rng.choice(('=', '=', '+=', '*='))} {value}", x)


@row("inplace", 2)
def change_of_a_buffer(d):
    x = d.fresh(d.sizes(), d.rng.choice((d.main, d.main, "I64")), "", "b")
    d.change(d.rng.choice((f"{x}.add_(1)", f"{x}.mul_(2)", f"{x}.copy_({d.partner(x)})")), x)


@row("shaping", 4)
def view_filled(d):
    """A tensor with a part from another tensor; diagonals."""
    x = d.any(1, 4)
    shape, rank, dtype = shape_of(d, x), d.env[x].dim(), dtype_of(d, x)
    dim = a_dim(d, x)
    size = shape[dim]
    rest = [n for i, n in enumerate(shape) if i != dim % rank]
    texts = [f"torch.diag_embed({x})", f"torch.diag_embed({x}, 1)", f"{x}.expand_as({x})",
             f"torch.atleast_3d({x})", f"torch.broadcast_to({x}, {[2, *shape]})", f"{x}.flip(0)",
             f"torch.squeeze({x}, (0, {rank - 1}))" if rank > 1 else f"{x}.unsqueeze(-1)"]
    if rank <= 2:
        texts += [f"torch.diag({x})", f"torch.diag({x}, 1)", f"torch.diagflat({x})"]
    apart = f"{x}.clone()"  # eager writes into what lies on each other, after unfold
    if size:
        part = operand(d, rest, dtype)
        at = d.rng.randint(-size, size - 1)
        texts.append(f"torch.select_scatter({apart}, {part}, {dim}, {at})")
        start, step = d.rng.randint(0, size - 1), d.rng.randint(1, 3)
        sizes = [*shape]
        sizes[dim] = -(-(size - start) // step)
        part = operand(d, sizes, dtype)
        texts.append(f"torch.slice_scatter({apart}, {part}, {dim}, {start}, {size}, {step})")
    if rank == 2 and min(shape) > 0:
        part = operand(d, (min(shape),), dtype)
        texts += [f"torch.diagonal_scatter({apart}, {part})"] * 2
    d.emit(d.rng.choice(texts))


@row("inplace", 3)
def into(d):
    """Results that are written to a tensor that there is."""
    x = d.pick(lambda t: t.is_floating_point() and t.dim() > 0 and not t.requires_grad)
    shape = shape_of(d, x)
    y = d.fresh(d.within(shape), dtype_of(d, x), "", "xb")
    z = d.emit(f"{x}.clone()" if d.chance(0.5) else f"torch.empty_like({x}).fill_(9)")[0]
    text = d.rng.choice((
        f"torch.add({x}, {y}, out={z})", f"torch.mul({x}, {y}, out={z})",
        f"torch.exp(-{x}.abs(), out={z})",
        f"torch.maximum({x}, {y}.expand_as({x}), out={z})", f"torch.cumsum({x}, 0, out={z})",
        f"torch.cat([{x}], out={z})", f"torch.softmax({x}, -1, dtype={x}.dtype, out={z})",
        f"torch.where({x} > 0, {x}, {y}, out={z})", f"torch.clamp({x}, -1, 1, out={z})"))
    d.change(text, z)
