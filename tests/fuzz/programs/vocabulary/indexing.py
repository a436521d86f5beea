"""Reading and writing at places that tensors name."""

from tests.fuzz.programs.vocabulary.base import dtype_of, operand, row
from tests.fuzz.programs.vocabulary.shaping import slice_or_all


def indexed(d, low=1, high=4):
    """A tensor that is read at places; each of its dimensions has an element."""
    def fits(t):
        return low <= t.dim() <= high and t.numel() > 0
    if d.chance(0.15) or not d.tensors(fits):
        sizes = d.sizes(low, min(high, 4))
        dtype = d.rng.choice((d.dtype(), d.dtype(), "I64"))
        return d.fresh([max(1, size) for size in sizes], dtype)
    return d.pick(fits)


def changed(d, low=1, high=4):
    """A tensor that may be changed and is not a parameter."""
    found = d.tensors(lambda t: low <= t.dim() <= high and t.numel() > 0
                      and not (t.requires_grad and t.is_leaf))
    if found and d.chance(0.7):
        return d.rng.choice(found[-4:])
    x = indexed(d, low, high)
    return d.emit(f"{x}.clone()")[0]


def places(d, high, sizes):
    """The text of indices below ``high``, negative ones among them."""
    if not sizes and d.chance(0.5):
        sizes = (1,)
    if 0 in sizes or (d.chance(0.15) and len(sizes) == 1):
        rows = [d.rng.randint(-high, high - 1) for _ in range(0 if 0 in sizes else sizes[0])]
        return f"torch.tensor({rows}, dtype=I64)" if 0 not in sizes else (
            f"torch.zeros({list(sizes)}, dtype=I64)")
    name = d.indices(high, sizes, d.rng.choice(("I64", "I64", "I64", "I32")))
    return f"({name} - {d.rng.randint(1, high)})" if d.chance(0.3) else name


def distinct_places(d, high, count):
    """The text of different indices below ``high``, of one dimension."""
    if d.chance(0.25):
        return f"torch.tensor({d.rng.sample(range(high), count)}, dtype=I64)"
    name = d.distinct(high, (count,))
    return f"({name} - {high})" if d.chance(0.2) else name


def some(d, high=6):
    """A number of places."""
    return 0 if d.chance(0.04) else d.rng.choice((1, 2, 3, 4, high))


def a_dim(d, x):
    """A dimension, from the front and as it is written."""
    rank = d.env[x].dim()
    dim = d.rng.randrange(rank)
    return dim, dim if d.chance(0.6) else dim - rank


def whole_index(d, shape):
    """The text of an index: tensors of one shape or that broadcast, slices, None, an ellipsis."""
    base = tuple(some(d) for _ in range(d.rng.choice((1, 1, 2))))
    parts = []
    for size in shape[:d.rng.randint(1, len(shape))]:
        if d.chance(0.6):
            sizes = base if d.chance(0.7) else d.within(base)
            parts.append(places(d, size, sizes))
        else:
            parts.append(slice_or_all(d, size))
    if not any("b" in part or "x" in part or "torch" in part for part in parts):
        parts[0] = places(d, shape[0], base)
    if d.chance(0.15):
        parts.insert(d.rng.randint(0, len(parts)), "None")
    if d.chance(0.15) and len(parts) == 1:
        return f"..., {places(d, shape[-1], base)}"
    return ", ".join(parts)


@row("indexing", 9)
def at_places(d):
    x = indexed(d)
    d.emit(f"{x}[{whole_index(d, d.env[x].shape)}]")


def values_for(d, sizes, x):
    """A tensor that broadcasts to ``sizes``, of the dtype of ``x``."""
    return operand(d, d.within(sizes), dtype_of(d, x))


@row("indexing", 5)
def added_at_places(d):
    """Writes that add up, so that places may be equal."""
    x = changed(d)
    shape = d.env[x].shape
    count = some(d)
    picked = d.rng.randint(1, min(2, len(shape)))
    at = [places(d, size, (count,)) for size in shape[:picked]]
    values = values_for(d, (count, *shape[picked:]), x)
    if d.chance(0.5):
        d.change(f"{x}.index_put_(({', '.join(at)},), {values}, accumulate=True)", x)
    else:
        d.emit(f"{x}.index_put(({', '.join(at)},), {values}, accumulate=True)")


@row("indexing", 5)
def written_at_places(d):
    """Writes, each place once."""
    x = changed(d)
    shape = d.env[x].shape
    dim, _ = a_dim(d, x)
    count = min(some(d), shape[dim])
    at = distinct_places(d, shape[dim], count)
    sizes = (*shape[:dim], count, *shape[dim + 1:])
    head = ":, " * dim
    kind = d.rng.random()
    if kind < 0.35:
        value = d.rng.choice(("1.5", "0", values_for(d, sizes, x)))
        d.change(f"{x}[{head}{at}] = {value}", x)
    elif kind < 0.5:
        d.change(f"{x}[{head}{at}] {d.rng.choice(('+=', '*='))} {values_for(d, sizes, x)}", x)
    elif dim == 0:
        d.emit(f"{x}.index_put(({at},), {values_for(d, sizes, x)})")
    else:
        d.emit(f"{x}.index_copy({dim}, {at}, {operand(d, sizes, dtype_of(d, x))})")


@row("indexing", 6)
def along_a_dimension(d):
    """``index_select``, ``index_add``, ``index_copy``, ``index_fill``."""
    x = changed(d)
    dim, shown = a_dim(d, x)
    shape, dtype = d.env[x].shape, dtype_of(d, x)
    count = some(d)
    once = min(count, shape[dim])
    kind = d.rng.choice(("select", "select", "add", "add", "copy", "fill"))
    low = d.rng.choice(("", "", "_")) if kind != "select" else ""
    if kind == "select":
        text = f"{x}.index_select({shown}, {d.indices(shape[dim], (count,))})"
    elif kind == "add":
        values = operand(d, (*shape[:dim], count, *shape[dim + 1:]), dtype)
        alpha = d.rng.choice(("", ", alpha=2"))
        text = f"{x}.index_add{low}({shown}, {d.indices(shape[dim], (count,))}, {values}{alpha})"
    elif kind == "copy":
        values = operand(d, (*shape[:dim], once, *shape[dim + 1:]), dtype)
        text = f"{x}.index_copy{low}({shown}, {d.distinct(shape[dim], (once,))}, {values})"
    else:
        text = f"{x}.index_fill{low}({shown}, {d.indices(shape[dim], (count,))}, 2)"
    if low:
        d.change(text, x)
    else:
        d.emit(text)


@row("indexing", 3)
def element(d):
    """A view whose place a tensor without dimensions names; it may be changed."""
    x = changed(d)
    dim, _ = a_dim(d, x)
    head = ":, " * dim
    i = d.indices(d.env[x].shape[dim], ())
    kind = d.rng.random()
    if kind < 0.4:
        d.emit(f"{x}[{head}{i}]")
    elif kind < 0.7:
        values = d.rng.choice(("1.5", values_for(d, d.env[x].select(dim, 0).shape, x)))
        d.change(f"{x}[{head}{i}] {d.rng.choice(('=', '+=', '*='))} {values}", x)
    else:
        v = d.emit(f"{x}[{head}{i}]")[0]
        d.change(d.rng.choice((f"{v}.mul_(2)", f"{v}.zero_()", f"{v} += 1")), v)


@row("indexing", 6)
def gathered(d):
    x = indexed(d)
    dim, shown = a_dim(d, x)
    shape = list(d.env[x].shape)
    sizes = [d.rng.randint(1, size) for size in shape] if d.chance(0.4) else shape[:]
    sizes[dim] = some(d)
    i = d.indices(shape[dim], sizes)
    if d.chance(0.6):
        d.emit(f"torch.gather({x}, {shown}, {i})")
    elif d.chance(0.5):
        sizes = [size if n == dim or d.chance(0.6) else 1 for n, size in enumerate(shape)]
        i = d.indices(shape[dim], sizes)
        d.emit(f"torch.take_along_dim({x}, {i}, {shown})")
    else:
        count = d.env[x].numel()
        i = places(d, count, (some(d), *([2] if d.chance(0.3) else [])))
        d.emit(f"torch.take({x}, {i}.long())")


@row("indexing", 7)
def scattered(d):
    x = changed(d)
    dim, shown = a_dim(d, x)
    shape, dtype = list(d.env[x].shape), dtype_of(d, x)
    sizes = [d.rng.randint(1, size) for size in shape] if d.chance(0.4) else shape[:]
    low = d.rng.choice(("", "", "_"))
    kind = d.rng.choice(("scatter", "value", "add", "add", "sum", "mean", "amax", "amin", "prod"))
    if kind in ("scatter", "value"):
        i = d.distinct(shape[dim], sizes, dim)
        if kind == "value":
            text = f"{x}.scatter{low}({shown}, {i}, 1.5)"
        else:
            text = f"{x}.scatter{low}({shown}, {i}, {operand(d, sizes, dtype)})"
    else:
        sizes[dim] = some(d)
        i = d.indices(shape[dim], sizes)
        values = operand(d, sizes, dtype)
        if kind == "add":
            text = f"{x}.scatter_add{low}({shown}, {i}, {values})"
        else:
            own = d.rng.choice(("", ", include_self=False"))
            text = f"{x}.scatter_reduce{low}({shown}, {i}, {values}, {kind!r}{own})"
    if low:
        d.change(text, x)
    else:
        d.emit(text)


@row("indexing", 6)
def masked(d):
    x = changed(d, 0)
    shape = d.env[x].shape
    m = d.condition(shape)
    kind = d.rng.random()
    if kind < 0.35:
        mask = m if d.env[m].shape == shape else f"{m}.expand({list(shape)})"
        # What NaN is as a whole number is not determined.
        values = ("1.5", "0", "2", "nan") if d.env[x].is_floating_point() else ("1", "0", "2.5")
        d.change(f"{x}[{mask}] = {d.rng.choice(values)}", x)
    elif kind < 0.5:
        d.emit(f"{x}.masked_fill({m}, {d.rng.choice(('1.5', '0', '-inf', 'torch.tensor(2)'))})")
    elif kind < 0.6:
        source = operand(d, shape, dtype_of(d, x))
        d.emit(f"{x}.masked_scatter({m}, {source})")
    else:
        d.emit(d.rng.choice((f"torch.where({m}, {x}, 2)", f"torch.where({m}, 0.5, {x})",
                             f"{x} * {m}", f"torch.where({m}, {x}, {x}.new_zeros(()))",
                             f"torch.where({m}, 1, 0)", f"torch.where({x} > 0, {x}, -1)",
                             f"({x} * ~{m}).sum()")))


@row("indexing", 7)
def embedded(d):
    count, width = d.rng.choice((1, 3, 5, 10, 50)), d.rng.choice((1, 2, 3, 4, 8, 17, 33))
    weight = operand(d, (count, width), d.dtype(), "wwwxb")
    i = d.indices(count, d.sizes(0, 3), d.rng.choice(("I64", "I64", "I32")))
    more = ""
    if d.chance(0.3):
        more += f", padding_idx={d.rng.choice((0, -1, count - 1))}"
    if d.chance(0.15):
        more += ", scale_grad_by_freq=True"
    text = f"F.embedding({i}, {weight}{more})"
    d.emit(d.rng.choice(("{}",) * 4 + ("{}.sum(0)", "{}.mean(-1)", "{}.mT", "{} * 2")).format(text))


@row("indexing", 4)
def bags(d):
    count, width = d.rng.choice((1, 3, 5, 10, 50)), d.rng.choice((1, 2, 3, 4, 8, 17))
    weight = operand(d, (count, width), d.dtype(), "wwwxb")
    mode = d.rng.choice(("sum", "sum", "mean", "max"))
    more = f", mode={mode!r}"
    if d.chance(0.25):
        more += f", padding_idx={d.rng.choice((0, count - 1))}"
    if d.chance(0.5):
        sizes = (d.rng.choice((1, 2, 3, 5)), d.rng.choice((1, 2, 4)))
        if mode == "sum" and d.chance(0.3):
            more += f", per_sample_weights={operand(d, sizes, dtype_of(d, weight))}"
        d.emit(f"F.embedding_bag({d.indices(count, sizes)}, {weight}{more})")
        return
    total = d.rng.choice((1, 3, 5, 8))
    cuts = sorted(d.rng.randint(0, total) for _ in range(d.rng.randint(0, 3)))
    if d.chance(0.2):
        cuts, more = [*cuts, total], more + ", include_last_offset=True"
    d.emit(f"F.embedding_bag({d.indices(count, (total,))}, {weight}, torch.tensor([0, {cuts}])"
           f"{more})".replace("[0, [", "[0, ").replace("]])", "])").replace("0, ]", "0]"))


@row("indexing", 4)
def counted(d):
    """Which of some classes or intervals a value is in."""
    x = d.floating(0, 3)
    n = d.rng.choice((1, 2, 5, 9))
    i = d.indices(n, d.sizes(0, 3))
    line = d.indices(n, (d.rng.choice((1, 4, 9)),))
    limits = d.rng.choice(("torch.tensor([-1.0, -0.25, 0.25, 1.0])", "torch.linspace(-2, 2, 9)",
                           "torch.tensor([0.0])"))
    right = d.rng.choice(("", ", right=True"))
    rows = operand(d, (3, n), d.dtype())
    d.emit(d.rng.choice((
        f"F.one_hot({i}, {n})", f"F.one_hot({i}, {n + 2}).to({d.dtype()})",
        f"torch.bucketize({x}.to(F32), {limits}{right})",
        f"torch.searchsorted({limits}, {x}.to(F32){right})",
        f"torch.searchsorted({rows}.sort(-1).values, {rows}{right})",
        f"torch.bincount({line}, minlength={n})", f"torch.histc({x}.to(F32), 4, -1, 1)",
        f"torch.isin({i}, torch.tensor([0, 2]))", f"{i}.to(F32).cumsum(0)" if d.env[i].dim() else
        f"{i} + 1", f"torch.bincount({line}, minlength={n}).cumsum(0)")))


@row("indexing", 3)
def of_triangles(d):
    n = d.rng.choice((1, 2, 3, 5))
    x = operand(d, (n, n), d.dtype())
    k = d.rng.randint(-1, 1)
    i, j = d.emit(d.rng.choice((f"torch.tril_indices({n}, {n}, {k})",
                                f"torch.triu_indices({n}, {n}, {k})")), 2)
    d.emit(d.rng.choice((f"{x}[{i}, {j}]", f"{x}[{j}, {i}] * 2",
                         f"torch.zeros({n}, {n}, dtype={dtype_of(d, x)})"
                         f".index_put(({i}, {j}), {x}[{i}, {j}])")))
