"""Products of matrices and vectors in all layouts."""

from tests.fuzz.programs.vocabulary.base import a_size, dtype_of, operand, row, small

WHOLE = ("I64", "I32", "I16", "U8", "I8")
ALPHA_BETA = ("", "", ", alpha=0.5", ", beta=0", ", beta=2, alpha=-1", ", alpha=0", ", beta=0.25")
EQUATIONS = (
    "ij,jk->ik", "ij,kj->ik", "ji,jk->ik", "ij,ij->", "bij,bjk->bik", "bij,bkj->bik", "ij->ji",
    "ii->i", "ii->", "i,j->ij", "bhid,bhjd->bhij", "bihd,bjhd->bhij", "...ij,...jk->...ik",
    "ijk,jil->kl", "bn,anm,bm->ba", "ij,ij->i", "ij,j->i", "abc->ca", "ij,jk,kl->il", "ij,k->ijk",
    "bij->b", "abc,cd->abd", "abc,adc->bd", "i,i->", "bi,bi->b", "ij,ij->ij", "a,ab,b->", "ij,kl->",
)


def other_dtype(d, dtype):
    """The dtype of a second operand: eager allows no other in most products."""
    return d.dtype() if d.chance(0.03) else dtype


def left(d, low=1, high=4):
    """A tensor that is multiplied: one that there is, or whole numbers now and then."""
    if d.chance(0.06):
        return d.fresh(d.sizes(low, high), d.rng.choice(WHOLE))
    if d.chance(0.25):
        return operand(d, [a_size(d) for _ in range(d.rng.randint(low, min(high, 3)))], d.dtype())
    return d.floating(low, high)


@row("products", 12)
def matmul(d):
    x = left(d)
    shape, dtype = d.env[x].shape, other_dtype(d, dtype_of(d, x))
    batch = d.within(shape[:-2]) if d.chance(0.8) else (2, *shape[:-2])
    swapped = len(shape) > 1 and d.chance(0.4)
    inner = shape[-2] if swapped else shape[-1]
    sizes = d.rng.choice(((inner,), (inner, a_size(d)), (*batch, inner, a_size(d))))
    if swapped and len(sizes) > 1:
        sizes = (*sizes[:-2], sizes[-1], sizes[-2])
    y = operand(d, sizes, dtype)
    if swapped:
        x, y = y, x
    d.emit(d.rng.choice(("{x} @ {y}", "torch.matmul({x}, {y})", "{x}.matmul({y})",
                         "torch.matmul({x}, {y})")).format(x=x, y=y))


@row("products", 6)
def of_two_matrices(d):
    """``mm`` and ``bmm``, with one factor transposed."""
    rank = d.rng.choice((2, 2, 3))
    x = left(d, rank, rank)
    shape, n, dtype = d.env[x].shape, a_size(d), other_dtype(d, dtype_of(d, x))
    batch = tuple(shape[:-2])
    name = "mm" if rank == 2 else "bmm"
    x_text, inner = (f"{x}.mT", shape[-2]) if d.chance(0.4) else (x, shape[-1])
    if d.chance(0.3):
        y_text = operand(d, (*batch, n, inner), dtype) + ".mT"
    else:
        y_text = operand(d, (*batch, inner, n), dtype)
    if d.chance(0.2):
        x_text, y_text = f"{y_text}.mT", f"{x_text}.mT"
    d.emit(f"torch.{name}({x_text}, {y_text})")


@row("products", 6)
def added(d):
    """Products that are added to something."""
    m, k, n, b = (a_size(d) for _ in range(4))
    dtype = d.dtype() if d.chance(0.95) else d.rng.choice(WHOLE)
    name = d.rng.choice(("addmm", "addmm", "baddbmm", "addbmm", "addmv", "addr"))
    result, x, y = {"addmm": ((m, n), (m, k), (k, n)), "baddbmm": ((b, m, n), (b, m, k), (b, k, n)),
                    "addbmm": ((m, n), (b, m, k), (b, k, n)), "addmv": ((m,), (m, k), (k,)),
                    "addr": ((m, n), (m,), (n,))}[name]
    # Eager's result of an empty matrix has the sizes of the tensor that it is added to.
    own = operand(d, d.within(result) if m * k else result, dtype)
    x, y = operand(d, x, dtype), operand(d, y, other_dtype(d, dtype))
    d.emit(f"torch.{name}({own}, {x}, {y}{d.rng.choice(ALPHA_BETA)})")


@row("products", 5)
def of_vectors(d):
    n, m, dtype = a_size(d), a_size(d), d.dtype()
    if d.chance(0.4) and (found := d.tensors(lambda t: t.dim() == 1)):
        x = d.rng.choice(found)
        n, dtype = d.env[x].shape[0], dtype_of(d, x)
    else:
        x = operand(d, (n,), dtype)
    y, z, matrix = operand(d, (n,), dtype), operand(d, (m,), dtype), operand(d, (m, n), dtype)
    d.emit(d.rng.choice((f"torch.dot({x}, {y})", f"torch.vdot({x}, {y})",
                         f"torch.mv({matrix}, {x})",
                         f"torch.outer({x}, {z})", f"torch.ger({z}, {x})", f"torch.inner({x}, {y})",
                         f"torch.inner({matrix}, {x})", f"{matrix}.mv({y})", f"{x} @ {y}",
                         f"{x} @ {matrix}.t()", f"torch.linalg.vecdot({matrix}, {x})")))


@row("products", 10)
def linear(d):
    x = left(d)
    inner, out, dtype = d.env[x].shape[-1], a_size(d), dtype_of(d, x)
    weight = operand(d, (out, inner), dtype, "wwwxb")
    bias = f", {operand(d, (out,), dtype, 'wwwxb')}" if d.chance(0.6) else ""
    after = d.rng.choice(("{}",) * 6 + ("F.relu({})", "F.gelu({})", "{}.tanh()", "{}.mT",
                                        "{}.sum(0)", "{}[..., ::2]", "{} * 0.5", "{}.sum()"))
    d.emit(after.format(f"F.linear({x}, {weight}{bias})"))


@row("products", 2)
def bilinear(d):
    x = d.floating(1, 3)
    shape, dtype = d.env[x].shape, dtype_of(d, x)
    other, out = a_size(d), a_size(d)
    y = operand(d, (*shape[:-1], other), dtype)
    weight = operand(d, (out, shape[-1], other), dtype, "wwxb")
    bias = f", {operand(d, (out,), dtype)}" if d.chance(0.6) else ""
    d.emit(f"F.bilinear({x}, {y}, {weight}{bias})")


@row("products", 7)
def einsum(d):
    if d.chance(0.6):
        equation = d.rng.choice(EQUATIONS)
    else:
        terms = ["".join(d.rng.sample("abcd", d.rng.randint(1, 3)))
                 for _ in range(d.rng.randint(1, 3))]
        letters = sorted(set("".join(terms)))
        kept = d.rng.sample(letters, d.rng.randint(0, min(len(letters), 3)))
        equation = f"{','.join(terms)}->{''.join(kept)}"
    terms = equation.split("->")[0].split(",")
    sizes = {letter: d.rng.choice(d.dims) if d.chance(0.7) else d.rng.choice((1, 2, 3, 5, 8, 17))
             for letter in sorted(set("".join(terms)) - {"."})}
    dtype = d.dtype()
    batch = (d.rng.choice(d.dims),) if "..." in equation else ()
    parts = [operand(d, (*(batch if "..." in term and d.chance(0.7) else ()),
                         *(sizes[letter] for letter in term.replace("...", ""))), dtype)
             for term in terms]
    d.emit(f"torch.einsum({equation!r}, {', '.join(parts)})")


@row("products", 3)
def tensordot(d):
    x = d.floating(1, 4)
    shape, dtype = list(d.env[x].shape), dtype_of(d, x)
    if d.chance(0.5):
        count = d.rng.randint(0, min(2, len(shape)))
        y = operand(d, (*shape[len(shape) - count:], a_size(d)), dtype)
        d.emit(f"torch.tensordot({x}, {y}, {count})")
        return
    mine = d.rng.sample(range(len(shape)), d.rng.randint(1, min(2, len(shape))))
    sizes = [d.rng.choice(d.dims) for _ in range(d.rng.randint(0, 2))]
    theirs = []
    for dim in mine:
        sizes.append(shape[dim])
        theirs.append(len(sizes) - 1)
    y = operand(d, sizes, dtype)
    d.emit(f"torch.tensordot({x}, {y}, ({mine}, {theirs}))")


@row("products", 3)
def in_parts(d):
    """Products that are computed in parts."""
    parts = d.rng.choice((2, 2, 3, 4))
    m, k, n = (a_size(d) for _ in range(3))
    cut = d.rng.choice(("InputChannels", "ReducingDim", "OutputChannels"))
    m, k, n = {"InputChannels": (parts * small(d, 5), k, n), "ReducingDim": (m, parts * k, n),
               "OutputChannels": (m, k, parts * small(d, 5))}[cut]
    batch, dtype = d.rng.choice(((), (), (2,), (2, 3))), d.dtype()
    x = operand(d, (*batch, m, k), dtype)
    y = operand(d, (*d.rng.choice(((), batch)), k, n), dtype)
    # Sums of 16-bit parts, each rounded, are further from eager's than eager is from the truth.
    d.emit(f"poptorch.serializedMatMul({x}, {y}, poptorch.MatMulSerializationMode.{cut}, {parts}, "
           f"True)")


@row("products", 3)
def chained(d):
    sizes, dtype = [a_size(d) for _ in range(4)], d.dtype()
    parts = [operand(d, pair, dtype) for pair in zip(sizes, sizes[1:])]
    d.emit(d.rng.choice((f"torch.chain_matmul({', '.join(parts)})", " @ ".join(parts),
                         f"torch.linalg.multi_dot([{', '.join(parts)}])",
                         f"({parts[0]} @ {parts[1]}) * 0.5")))


@row("products", 3)
def of_few(d):
    """Products in which sizes are small."""
    dtype = d.dtype()
    n = d.rng.choice(d.dims)
    x, y = operand(d, (n, 3), dtype), operand(d, d.within((n, 3)), dtype)
    z, square = operand(d, (small_size(d), 2), dtype), operand(d, (3, 3), dtype)
    d.emit(d.rng.choice((
        f"torch.linalg.cross({x}, {y})", f"torch.cross({x}, {y}.expand({n}, 3), dim=1)",
        f"torch.linalg.cross({x}.t(), {y}.expand({n}, 3).t(), dim=0)", f"torch.kron({x}, {z})",
        f"torch.kron({x}[0], {z})" if n else f"torch.kron({z}, {z})", f"{square} @ {square}",
        f"torch.linalg.matrix_power({square}, 3)", f"torch.cdist({x}, {square})",
        f"torch.cdist({x}, {square}, p=1.0)", f"torch.linalg.vecdot({x}, {y})",
        f"torch.trace({square})", f"torch.block_diag({x}, {z})", f"torch.cov({x}.t())",
        f"torch.inner({x}, {square})", f"{square}.t() @ {square}")))


def small_size(d):
    """A size of at most 5."""
    return d.rng.choice((1, 2, 3, 4, 5))


@row("products", 2)
def long_sum(d):
    """Products with many terms."""
    k, n = d.rng.choice((513, 1000, 1024, 1030, 2049)), d.rng.choice((1, 3, 8, 17))
    m = small_size(d)
    dtype = d.dtype()
    x, y = operand(d, (m, k), dtype, "xxw"), operand(d, (k, n), dtype, "xxw")
    d.emit(d.rng.choice((f"{x} @ {y}", f"F.linear({x}, {y}.t())", f"{x}[0] @ {y}",
                         f"{y}.t() @ {x}.t()", f"torch.einsum('mk,kn->nm', {x}, {y})",
                         f"{x} @ {y}[:, 0]", f"({x} * 0.03) @ {y}",
                         f"{x}[:, ::2] @ {y}[1::2][:{(k + 1) // 2}]")))


@row("products", 2)
def large(d):
    """Products whose tiles are full, with rests."""
    m, k, n = (d.rng.choice((16, 31, 33, 48, 64, 65, 96, 100, 128, 130)) for _ in range(3))
    dtype = d.dtype()
    x, y = operand(d, (m, k), dtype), operand(d, (k, n), dtype)
    bias = operand(d, (n,), dtype)
    d.emit(d.rng.choice((f"{x} @ {y}", f"{x} @ {y} + {bias}", f"F.relu({x} @ {y} + {bias})",
                         f"F.linear({x}, {y}.t(), {bias})", f"{y}.t() @ {x}.t()",
                         f"torch.addmm({bias}, {x}, {y})", f"({x} @ {y}).t()",
                         f"({x} @ {y})[::3]")))
