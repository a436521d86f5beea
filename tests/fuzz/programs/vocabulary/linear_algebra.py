"""Decompositions, inverses and norms of matrices that are far from singular."""

from tests.fuzz.programs.vocabulary.base import a_size, dtype_of, finite, operand, row

# Of {a}, whose diagonal is large; {b} has as many rows.
OF_REGULAR = (
    "torch.linalg.det({a})", "torch.det({a})", "torch.linalg.slogdet({a})[1]", "torch.logdet({a})",
    "torch.linalg.inv({a})", "torch.inverse({a})", "{a}.inverse()", "torch.linalg.pinv({a})",
    "torch.linalg.solve({a}, {b})", "torch.linalg.solve({a}.mT, {b})",
    "torch.linalg.solve({b}.mT, {a}, left=False)", "torch.linalg.solve({a}, {b}[..., 0])",
    "torch.linalg.solve_triangular({a}.tril(), {b}, upper=False)",
    "torch.linalg.solve_triangular({a}.triu(), {b}, upper=True)",
    "torch.linalg.solve_triangular({a}.mT, {b}, upper=True, unitriangular=True)",
    "torch.triangular_solve({b}, {a})[0]",
    "torch.linalg.lu_factor({a})[0]", "torch.linalg.lu({a})[2]",
    "torch.linalg.lu_solve(*torch.linalg.lu_factor({a}), {b})", "torch.linalg.qr({a})[1].abs()",
    "torch.linalg.qr({a})[0].abs()", "torch.linalg.matrix_power({a}, -1)",
    "torch.linalg.cond({a}, 1)", "torch.linalg.matrix_rank({a})", "torch.linalg.inv_ex({a})[0]",
    "torch.linalg.solve_ex({a}, {b})[0]", "torch.linalg.tensorsolve({a}, {b}[..., 0])",
)
# Of {s}, which is symmetric and positive definite, with distinct eigenvalues.
OF_SYMMETRIC = (
    "torch.linalg.cholesky({s})", "torch.linalg.cholesky({s}, upper=True)", "torch.logdet({s})",
    "torch.cholesky_inverse(torch.linalg.cholesky({s}))", "torch.linalg.eigvalsh({s})",
    "torch.cholesky_solve({b}, torch.linalg.cholesky({s}))", "torch.linalg.eigh({s})[0]",
    "torch.linalg.svdvals({s})", "torch.linalg.svd({s})[1]", "torch.linalg.eigh({s})[1].abs()",
    "torch.linalg.cholesky_ex({s})[0]", "torch.linalg.pinv({s}, hermitian=True)",
    "torch.linalg.matrix_norm({s}, 'nuc')", "torch.linalg.matrix_norm({s}, 2)",
    "torch.linalg.cond({s})",
)
OF_ANY = (
    "torch.linalg.matrix_exp({x}.tanh() / {n})", "torch.linalg.matrix_power({x}.tanh(), 2)",
    "torch.matrix_power({x}.tanh(), 3)", "torch.linalg.matrix_norm({x})",
    "torch.linalg.matrix_norm({x}, 1)", "torch.linalg.matrix_norm({x}, float('inf'))",
    "torch.linalg.norm({x}, dim=(-2, -1), keepdim=True)", "torch.linalg.norm({x})",
    "torch.linalg.multi_dot([{x}, {x}, {b}])", "torch.linalg.diagonal({x})",
    "torch.linalg.vecdot({x}, {b}[..., :1])", "torch.trace({x})", "torch.matrix_power({x}, 0)",
)


def square(d):
    """A finite square matrix, or several, and another matrix with as many rows."""
    def fits(t):
        return t.is_floating_point() and t.dim() > 1 and t.shape[-1] == t.shape[-2] < 40
    dtype = d.rng.choice(("F32", "F32", "F64"))
    if d.tensors(fits) and d.chance(0.5):
        x = d.pick(fits)
    else:
        n = min(a_size(d), 33)
        batch = () if d.chance(0.6) else (d.rng.choice(d.dims),)
        x = operand(d, (*batch, n, n), dtype)
    b = operand(d, (*d.env[x].shape[:-1], d.rng.randint(1, 4)), dtype_of(d, x))
    return finite(d, x), finite(d, b)


@row("linear algebra", 5)
def of_regular(d):
    x, b = square(d)
    n = d.env[x].shape[-1]
    a = f"({x}.tanh() / {max(n, 1)} + 2 * torch.eye({n}, dtype={x}.dtype))"
    a, = d.emit(a) if d.chance(0.5) else (a,)
    d.emit(d.rng.choice(OF_REGULAR).format(a=a, b=b))


@row("linear algebra", 4)
def of_symmetric(d):
    x, b = square(d)
    n = d.env[x].shape[-1]
    steps = f"torch.diag(3 * torch.arange({n}, dtype={x}.dtype) + 3)"
    s, = d.emit(f"({x}.tanh() + {x}.mT.tanh()) / {2 * max(n, 1)} + {steps}")
    d.emit(d.rng.choice(OF_SYMMETRIC).format(s=s, b=b))


@row("linear algebra", 3)
def of_any(d):
    x, b = square(d)
    d.emit(d.rng.choice(OF_ANY).format(x=x, b=b, n=max(d.env[x].shape[-1], 1)))


@row("linear algebra", 2)
def of_vectors(d):
    x = d.floating(1)
    y = operand(d, tuple(d.env[x].shape), dtype_of(d, x))
    d.emit(d.rng.choice((f"torch.linalg.vander({x}.tanh(), N={d.rng.randint(1, 4)})",
                         f"torch.linalg.cross({x}, {y})", f"torch.linalg.vecdot({x}, {y})",
                         f"torch.linalg.norm({x}, {d.rng.choice((1, 2, 3))}, dim=-1)")))
