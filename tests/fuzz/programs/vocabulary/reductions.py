"""Reductions, scans, softmax, sorting."""

from tests.fuzz.programs.vocabulary.base import Rejected, row

OVER_DIMS = ("sum", "mean", "amax", "amin", "std", "var", "logsumexp", "nansum", "nanmean")
OVER_ONE = ("prod", "argmax", "argmin", "all", "any")
SCANS = ("cumsum", "cumprod", "logcumsumexp")


def some_dims(d, rank):
    """The text of one or several dimensions."""
    if d.chance(0.5) or rank == 1:
        return str(d.rng.randint(-rank, rank - 1))
    return str(tuple(d.rng.sample(range(rank), d.rng.randint(1, rank))))


@row("reductions", 10)
def over_dims(d):
    x = d.floating()
    rank, name = d.env[x].dim(), d.rng.choice(OVER_DIMS[:6] if d.chance(0.8) else OVER_DIMS)
    if rank == 0 or d.chance(0.2):
        d.emit(f"{x}.{name}()" if name != "logsumexp" else f"{x}.logsumexp(())")
        return
    keep = d.rng.choice(("", ", keepdim=True"))
    more = ", correction=0" if name in ("std", "var") and d.chance(0.4) else ""
    d.emit(f"{x}.{name}({some_dims(d, rank)}{more}{keep})")


@row("reductions", 4)
def over_one(d):
    x = d.any()
    rank, name = d.env[x].dim(), d.rng.choice(OVER_ONE)
    keep = d.rng.choice(("", ", keepdim=True"))
    if rank and d.chance(0.8):
        d.emit(f"{x}.{name}({d.rng.randint(-rank, rank - 1)}{keep})")
    else:
        d.emit(f"{x}.{name}()")


@row("reductions", 4)
def of_integers(d):
    x = d.pick(lambda t: not t.is_floating_point())
    rank = d.env[x].dim()
    name = d.rng.choice(("sum", "amax", "amin", "prod", "cumsum", "any", "all", "sum"))
    dim = d.rng.randint(-rank, rank - 1) if rank else ""
    d.emit(d.rng.choice((f"{x}.{name}({dim})", f"{x}.sum()", f"{x}.float().mean()",
                         f"{x}.sum({dim}, dtype=F32)" if rank else f"{x}.sum(dtype=F32)")))


@row("reductions", 4)
def extreme(d):
    x = d.any(1)
    rank = d.env[x].dim()
    dim, keep = d.rng.randint(-rank, rank - 1), d.rng.choice(("", ", keepdim=True"))
    name = d.rng.choice(("max", "min", "median", "sort", "topk", "cummax", "cummin", "kthvalue",
                         "mode", "aminmax"))
    if name == "aminmax":
        d.emit(f"torch.aminmax({x}, dim={dim})", 2)
    elif name in ("sort", "cummax", "cummin"):
        stable = ", stable=True" if name == "sort" else ""
        d.emit(f"torch.{name}({x}, dim={dim}{stable})", 2)
    elif name in ("topk", "kthvalue"):
        # Which of equal ones it is, and so which one has the gradient, is not specified.
        if d.env[x].requires_grad and d.env[x].unique().numel() < d.env[x].numel():
            raise Rejected
        k = d.rng.randint(1, max(1, min(3, d.env[x].shape[dim])))
        d.emit(f"{x}.{name}({k}, {dim})[0]")
    elif name in ("median", "mode"):  # eager's median reads other memory of expanded tensors
        d.emit(f"{x}.contiguous().{name}({dim}{keep})[0]")
    else:
        d.emit(f"{x}.{name}({dim}{keep})", 2)


@row("reductions", 3)
def place(d):
    """Where the extreme stands: of equal ones, the first. Rounded numbers are often equal."""
    x = d.any(1)
    rank = d.env[x].dim()
    dim, keep = d.rng.randint(-rank, rank - 1), d.rng.choice(("", ", keepdim=True"))
    text = x
    if d.env[x].is_floating_point() and d.chance(0.6):
        text = d.rng.choice((f"{x}.round()", f"{x}.sign()", f"F.relu({x})", f"{x}.clamp(-1, 1)"))
    d.emit(d.rng.choice((f"{text}.argmax({dim}{keep})", f"{text}.argmin({dim}{keep})",
                         f"{text}.max({dim}{keep})[1]", f"{text}.min({dim}{keep}).indices",
                         f"{text}.argmax()", f"{text}.argmin()")))


@row("reductions", 4)
def scan(d):
    x = d.floating(1)
    rank = d.env[x].dim()
    d.emit(f"{x}.{d.rng.choice(SCANS)}({d.rng.randint(-rank, rank - 1)})")


@row("reductions", 6)
def softmax(d):
    x = d.floating(1)
    rank = d.env[x].dim()
    dim = d.rng.randint(-rank, rank - 1)
    d.emit(d.rng.choice((f"F.softmax({x}, {dim})", f"F.log_softmax({x}, {dim})",
                         f"F.softmin({x}, {dim})", f"F.softmax({x}, {dim}, dtype=F32)",
                         f"F.normalize({x}, dim={dim})")))


@row("reductions", 4)
def norm(d):
    x = d.floating(1)
    rank = d.env[x].dim()
    dim = d.rng.randint(-rank, rank - 1)
    p = d.rng.choice(("2", "1", "3", "inf", "0", "1.5", "-inf"))
    y = d.partner(x)
    d.emit(d.rng.choice((f"torch.linalg.vector_norm({x}, {p})", f"{x}.norm()",
                         f"{x}.norm({p}, {dim})",
                         f"torch.linalg.vector_norm({x}, {p}, {dim}, keepdim=True)",
                         f"F.cosine_similarity({x}, {y}, {dim})", f"torch.dist({x}, {y}, {p})",
                         f"F.pairwise_distance({x}, {y})", f"torch.renorm({x}, 2, 0, 1.0)")))


@row("reductions", 2)
def statistics(d):
    x = d.floating(1)
    rank = d.env[x].dim()
    dim = d.rng.randint(-rank, rank - 1)
    if not d.env[x].isfinite().all():
        x = f"{x}.nan_to_num()"  # where it stands in a row decides whether eager's mean is NaN
    d.emit(d.rng.choice((f"torch.var_mean({x}, {dim})", f"torch.std_mean({x}, {dim})")), 2)


@row("reductions", 2)
def counted(d):
    x = d.any(1)
    rank = d.env[x].dim()
    dim = d.rng.randint(-rank, rank - 1)
    d.emit(d.rng.choice((f"torch.count_nonzero({x}, {dim})", f"torch.count_nonzero({x})",
                         f"torch.diff({x}, dim={dim})", f"torch.trapezoid({x}, dim={dim})")))


@row("reductions", 4)
def of_all(d):
    x = d.floating(1, 4)
    rank, shape = d.env[x].dim(), d.env[x].shape
    dim = d.rng.randint(-rank, rank - 1)
    m = d.condition(shape)
    first = f"torch.arange({shape[dim]}) > 0" if rank == 1 else f"{m}"
    d.emit(d.rng.choice((
        f"{x}.max()", f"{x}.min()", f"{x}.argmax()", f"{x}.median()",
        f"{x}.contiguous().nanmedian({dim})[0]",
        f"torch.argsort({x}, dim={dim}, stable=True)", f"torch.msort({x}.detach())",
        f"torch.cumulative_trapezoid({x}, dim={dim})", f"torch.std({x}, unbiased=False)",
        f"torch.sum({x}, {dim}, dtype=F32)", f"torch.cumsum({x}, {dim}, dtype=F32)",
        f"F.softmax({x}.masked_fill({first}, -inf), {dim})", f"{x}.sum_to_size({list(shape)})",
        f"F.log_softmax({x}.masked_fill({m}, -1e4), {dim})", f"torch.mean({x}, {dim}, dtype=F32)",
        f"torch.cummax({x}, {dim})[0]", f"torch.quantile({x}.to(F32), 0.3, dim={dim})",
        f"({x} * {m}).sum({dim}) / ({m} * 1.0).sum().clamp(min=1)", f"{x}.amax()", f"{x}.amin()",
        f"torch.gradient({x}, dim={dim})[0]", f"{x}.pow(2).mean({dim}).sqrt()",
        f"{x}.count_nonzero()",
        f"F.glu({x}, {dim})", f"torch.linalg.norm({x})", f"torch.linalg.matrix_norm({x})")))
