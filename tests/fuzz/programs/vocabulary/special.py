"""Special functions, and statistics that are seldom asked for."""

from tests.fuzz.programs.vocabulary.base import Rejected, dtype_of, finite, operand, row, small

# The type of float_power is float64 in eager, and also where a program has none.
OF_ONE = (
    "torch.special.i0e({x})", "torch.special.i1({x}.clamp(-4, 4))", "torch.special.i1e({x})",
    "torch.special.erfcx({x}.clamp(-2, 3))", "torch.special.log_ndtr({x})",
    "torch.special.ndtr({x})", "torch.special.ndtri({x}.sigmoid() * 0.9 + 0.05)",
    "torch.polygamma({n}, {x}.abs() + 1)", "torch.special.multigammaln({x}.abs() + 2, {n})",
    "torch.mvlgamma({x}.abs() + 2, {n})", "torch.special.logit({x}.sigmoid() * 0.9 + 0.05)",
    "torch.special.exp2({x}.clamp(-3, 3))", "torch.special.psi({x}.abs() + 1)",
    "torch.special.gammaln({x}.abs() + 1)", "torch.float_power({x}.abs() + 0.5, {n}).to({x}.dtype)",
    "torch.special.log_softmax({x}, -1)", "torch.special.softmax({x}, -1)",
    "torch.frexp({x}.detach())[0]", "torch.frexp({x}.detach())[1]",
    "torch.special.bessel_j0({x}.detach())", "torch.special.bessel_j1({x}.detach())",
    "torch.special.bessel_y0({x}.detach().abs() + 0.5)",
    "torch.special.bessel_y1({x}.detach().abs() + 0.5)",
    "torch.special.modified_bessel_k0({x}.detach().abs() + 0.5)",
    "torch.special.modified_bessel_i1({x}.detach().clamp(-3, 3))",
    "torch.special.scaled_modified_bessel_k1({x}.detach().abs() + 0.5)",
    "torch.special.spherical_bessel_j0({x}.detach())", "torch.special.airy_ai({x}.detach())",
    "torch.special.chebyshev_polynomial_t({x}.detach().tanh(), {n})",
    "torch.special.chebyshev_polynomial_u({x}.detach().tanh(), {n})",
    "torch.special.hermite_polynomial_h({x}.detach().tanh(), {n})",
    "torch.special.laguerre_polynomial_l({x}.detach().tanh(), {n})",
    "torch.special.legendre_polynomial_p({x}.detach().tanh(), {n})",
)
OF_TWO = (
    "torch.float_power({x}.abs() + 0.5, {y}.clamp(-2, 2)).to({x}.dtype)",
    "torch.special.gammainc({x}.detach().abs() + 0.5, {y}.abs())",
    "torch.special.gammaincc({x}.detach().abs() + 0.5, {y}.abs())",
    "torch.igamma({x}.detach().abs() + 0.5, {y}.abs() + 0.1)",
    "torch.igammac({x}.detach().abs() + 0.5, {y}.abs() + 0.1)",
    "torch.special.zeta({x}.detach().abs() + 1.5, {y}.abs() + 0.5)",
    "torch.special.xlog1py({x}, {y}.abs())", "torch.special.xlogy({x}, {y}.abs() + 0.2)",
)


@row("special functions", 6)
def of_one(d):
    d.emit(d.rng.choice(OF_ONE).format(x=finite(d, d.floating()), n=d.rng.randint(1, 3)))


@row("special functions", 4)
def of_two(d):
    x = d.floating()
    y = d.partner(x)
    d.emit(d.rng.choice(OF_TWO).format(x=finite(d, x), y=finite(d, y)))


@row("special functions", 4)
def of_samples(d):
    """Statistics of rows and of their pairs."""
    x = finite(d, d.floating(1, 3))
    weights = f"torch.arange({d.env[x].numel()}.0, dtype={x}.dtype).view({x}.shape)"
    dim = d.rng.randint(-d.env[x].dim(), d.env[x].dim() - 1)
    most = 3 if d.env[x].numel() < 64 else 2  # all of a thousand numbers would take gigabytes
    d.emit(d.rng.choice((
        f"torch.nanquantile({x}, {d.rng.choice((0.25, 0.5, 0.9))}, dim={dim})",
        f"torch.corrcoef({x}.tanh() + {weights} ** 2)", f"torch.trapz({x}, dim={dim})",
        f"torch.pdist({x} + {weights}, {d.rng.choice((1, 2, 3, 'inf'))})",
        f"torch.combinations({x}, {d.rng.randint(0, most)})",
        f"torch.combinations({x}, 2, with_replacement=True)",
        f"torch.norm_except_dim({x} + 4, 2, {d.rng.randint(0, 1)})",
        f"F.lp_pool1d({x}.abs() + 0.1, 2, 2)",
    )))


@row("special functions", 3)
def of_segments(d):
    """Reductions of rows that follow each other, or that an index puts together."""
    x = finite(d, d.floating(1, 3))
    rows = d.env[x].shape[0]
    if d.chance(0.4):
        cut = d.rng.randint(0, rows)
        kind = d.rng.choice(("sum", "mean", "max", "min"))
        lengths = f"torch.tensor([{cut}, {rows - cut}])"
        d.emit(f"torch.segment_reduce({x}, '{kind}', lengths={lengths}, initial=0.5)")
        return
    count = small(d)
    kind = d.rng.choice(("mean", "amax", "amin", "prod"))
    source = operand(d, (count, *d.env[x].shape[1:]), dtype_of(d, x))
    d.emit(f"{x}.index_reduce(0, {d.indices(rows, (count,))}, {source}, '{kind}'"
           f"{d.rng.choice(('', ', include_self=False'))})")


@row("special functions", 3)
def margins(d):
    """Losses of distances."""
    x = finite(d, d.floating(2, 2))
    if not d.env[x].numel():  # eager's multi_margin_loss gives what is in the memory
        raise Rejected
    shape, dtype = tuple(d.env[x].shape), dtype_of(d, x)
    y, z = finite(d, operand(d, shape, dtype)), finite(d, operand(d, shape, dtype))
    classes = d.indices(max(shape[1], 1), (shape[0],))
    many = f"torch.where({z} > 0, torch.arange({shape[1]}), -1)"
    more = d.rng.choice(("", ", reduction='none'", ", reduction='sum'"))
    d.emit(d.rng.choice((
        f"F.triplet_margin_loss({x}, {y}, {z} + 2{more})",
        f"F.triplet_margin_loss({x}, {y}, {z} + 2, p=1, swap=True{more})",
        f"F.triplet_margin_with_distance_loss({x}, {y}, {z} + 2{more})",
        f"F.multi_margin_loss({x}, {classes}{more})",
        f"F.multi_margin_loss({x}, {classes}, p=2, margin=0.7{more})",
        f"F.multilabel_margin_loss({x}, {many}{more})",
        f"F.multilabel_soft_margin_loss({x}, ({z} > 0).to({x}.dtype){more})",
        f"F.margin_ranking_loss({x}, {y}, {z}.sign(), 0.1{more})",
        f"F.cosine_embedding_loss({x} + 3, {y} + 3, {z}[:, 0].sign(){more})",
    )))
