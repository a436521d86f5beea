"""Putting tensors together and taking them apart; tensors from nothing."""

from tests.fuzz.programs.vocabulary.base import dtype_of, operand, row


def like_but(d, x, dim):
    """A tensor of the sizes of ``x`` but for one dimension."""
    sizes = list(d.env[x].shape)
    others = sizes[:dim] + sizes[dim + 1:]
    found = d.tensors(lambda t: t.dim() == len(sizes) and t.dtype == d.env[x].dtype and [
        *t.shape[:dim], *t.shape[dim + 1:]] == others)
    if found and d.chance(0.6):
        return d.rng.choice(found)
    sizes[dim] = d.rng.choice((0, 1, 2, 3, sizes[dim]) if d.chance(0.2) else (1, 2, sizes[dim]))
    return d.fresh(sizes, d.dtype())


@row("joining", 6)
def cat(d):
    x = d.any(1, 5)
    dim = d.rng.randrange(d.env[x].dim())
    parts = [x, *(like_but(d, x, dim) for _ in range(d.rng.randint(1, 3)))]
    if d.chance(0.1):
        parts.append("torch.zeros(0)")
    d.rng.shuffle(parts)
    shown = dim if d.chance(0.6) else dim - d.env[x].dim()
    d.emit(f"torch.cat([{', '.join(parts)}], {shown})")


@row("joining", 3)
def stack(d):
    x = d.any(0, 4)
    shape, dtype = d.env[x].shape, d.env[x].dtype
    same = d.tensors(lambda t: t.shape == shape and t.dtype == dtype)
    parts = [x, *(d.rng.choice(same) for _ in range(d.rng.randint(0, 2)))]
    d.emit(f"torch.stack([{', '.join(parts)}], {d.rng.randint(-len(shape) - 1, len(shape))})")


@row("joining", 5)
def split(d):
    x = d.any(1, 5)
    rank = d.env[x].dim()
    dim = d.rng.randint(-rank, rank - 1)
    size = d.env[x].shape[dim]
    kind = d.rng.choice(("split", "parts", "chunk", "unbind", "tensor_split"))
    if kind == "parts":
        cuts = sorted(d.rng.randint(0, size) for _ in range(d.rng.randint(1, 3)))
        parts = [b - a for a, b in zip([0, *cuts], [*cuts, size])]
        text = f"{x}.split({parts}, {dim})"
    elif kind == "unbind":
        text = f"{x}.unbind({dim})"
    elif kind == "split":
        text = f"{x}.split({d.rng.randint(1, max(1, size))}, {dim})"
    else:
        text = f"{x}.{kind}({d.rng.randint(1, 4)}, {dim})"
    count = len(eval(text, {x: d.env[x]})) if size or kind != "unbind" else 0
    if 1 < count <= 5:
        d.emit(text, count)


@row("joining", 3)
def from_nothing(d):
    sizes = d.sizes(1, 3)
    like = d.any()
    d.emit(d.rng.choice((
        f"torch.zeros({sizes}, dtype={d.dtype()})", f"torch.ones({sizes}, dtype={d.dtype()})",
        f"torch.full({sizes}, 1.75, dtype={d.dtype()})", f"torch.arange({sizes[0]})",
        f"torch.arange(0, 1, 0.25, dtype={d.dtype()})",
        f"torch.linspace(-1, 1, {sizes[0]}, dtype=F32)",
        f"torch.eye({sizes[0]}, {sizes[-1]}, dtype={d.dtype()})", f"torch.zeros_like({like})",
        f"torch.ones_like({like})", f"torch.full_like({like}, 2)", f"{like}.new_zeros({sizes})",
        f"{like}.new_full({sizes}, 3)", f"torch.zeros(0, {sizes[0]})",
        "torch.tensor([1.0, -2.0, 0.5])",
        "torch.tensor(3)", f"torch.empty({sizes}, dtype={d.dtype()}).fill_(0.25)",
        f"torch.scalar_tensor(1.5, dtype={d.dtype()})",
        f"torch.tril_indices({sizes[0]}, {sizes[0]})")))


@row("joining", 3)
def padded(d):
    x = d.floating(1, 5)
    rank = d.env[x].dim()
    pads = [d.rng.randint(-1, 2) for _ in range(2 * d.rng.randint(1, min(rank, 3)))]
    if d.chance(0.6) or rank < 2:
        d.emit(f"F.pad({x}, {pads}, value={d.rng.choice((0.0, 1.5))})")
    else:
        pads = [abs(p) for p in pads[:2]]
        d.emit(f"F.pad({x}, {pads}, mode={d.rng.choice(('reflect', 'replicate', 'circular'))!r})")


@row("joining", 2)
def grids(d):
    x, y = d.any(1, 1), d.any(1, 1)
    if d.chance(0.5) and d.env[x].dtype == d.env[y].dtype:
        d.emit(f"torch.meshgrid({x}, {y}, indexing='ij')", 2)
    else:
        d.emit(f"torch.broadcast_tensors({x}[:, None], {y})", 2)


@row("joining", 3)
def stacked(d):
    """Tensors of one shape side by side."""
    x = d.any(0, 4)
    y = operand(d, d.env[x].shape, dtype_of(d, x))
    z = operand(d, d.env[x].shape, d.dtype())
    d.emit(d.rng.choice((
        f"torch.hstack(({x}, {y}))", f"torch.vstack(({x}, {y}))", f"torch.dstack(({x}, {y}))",
        f"torch.column_stack(({x}, {y}))", f"torch.row_stack(({x}, {y}))",
        f"torch.stack(({x}, {z}))",
        f"torch.stack(({x}, {y}, {x}), -1)", f"torch.cat(({x}, {z}, {y}), -1)", f"{x}[None] - {y}",
        f"torch.concat(({x}[..., :1], {y}), -1)", f"torch.atleast_2d({x})")))


@row("joining", 2)
def apart(d):
    x = d.any(2, 4)
    shape = d.env[x].shape
    texts = [f"torch.hsplit({x}, [1])", f"torch.vsplit({x}, [1])",
             f"torch.tensor_split({x}, [1], -1)", f"torch.chunk({x}, 2, -1)",
             f"torch.split({x}, {max(1, (shape[0] + 1) // 2)}, 0)",
             f"({x}[:1], {x}[1:])", f"torch.split({x}, [{shape[-1]}, 0], -1)"]
    d.emit(d.rng.choice(texts), 2)
