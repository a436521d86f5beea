"""Arithmetic of whole numbers and truths."""

import torch

from tests.fuzz.programs.vocabulary.base import dtype_of, operand, row

DTYPES = ("I64", "I64", "I32", "I32", "I16", "I8", "U8", "U8", "BOOL", "BOOL")
ONE = (
    "-{x}", "~{x}", "{x}.abs()", "{x}.sign()", "{x} + 1", "{x} - 2", "3 - {x}", "{x} * 2",
    "{x} // 2",
    "{x} % 3", "{x} / 2", "7 // ({x}.abs() + 1)", "{x} + 1.5", "{x} * 0.5", "{x} ** 2", "{x} << 1",
    "{x} >> 1", "{x} & 3", "{x} | 4", "{x} ^ 5", "{x} + True", "{x} * False", "{x}.clamp(0, 3)",
    "{x}.clamp(max=2)", "{x}.clamp(min=0.5)", "{x}.bool()", "{x}.float()", "{x}.int()",
    "{x}.long()",
    "{x} == 1", "{x} > 0", "{x} < 1.5", "{x} != 0", "{x}.logical_not()", "torch.relu({x})",
    "{x}.square()", "{x}.floor()", "{x}.round()", "torch.exp(-{x}.abs())", "torch.sqrt({x}.abs())",
    "torch.sigmoid({x})", "torch.softmax({x}.float(), -1)", "torch.remainder({x}, -3)",
    "torch.fmod({x}, 3)", "torch.floor_divide({x}, -2)", "torch.div({x}, 3, rounding_mode='trunc')",
    "torch.div({x}, 2, rounding_mode='floor')", "torch.bitwise_left_shift({x}, 1)", "{x}.T",
    "torch.reciprocal({x}.abs() + 1)", "torch.true_divide({x}, 4)", "{x}.positive()",
    "torch.nan_to_num({x})", "torch.isfinite({x})", "{x}.sgn()", "torch.rsub({x}, 2)", "{x} - 0.5",
    "{x}.float().mean()", "{x}.to(U8)", "{x}.signbit()", "torch.trunc({x})", "torch.erf({x})",
)
TWO = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / ({y}.abs() + 1)", "{x} & {y}", "{x} | {y}",
    "{x} ^ {y}", "{x} // ({y}.abs() + 1)", "{x} % ({y}.abs() + 1)", "torch.maximum({x}, {y})",
    "torch.minimum({x}, {y})", "torch.gcd({x}, {y})", "torch.lcm({x}, {y})", "{x} == {y}",
    "{x} > {y}", "{x} <= {y}", "{x} != {y}", "torch.where({x} > {y}, {x}, {y})",
    "torch.logical_and({x}, {y})", "torch.logical_xor({x}, {y})", "torch.add({x}, {y}, alpha=-2)",
    "torch.rsub({x}, {y}, alpha=-3)", "torch.sub({x}, {y}, alpha=3)",
    "torch.fmod({x}, {y}.abs() + 1)", "{x} << ({y}.abs() % 3)",
    "{x} >> ({y}.abs() % 3)", "torch.pow({x}, {y}.abs() % 3)", "torch.atan2({x}, {y}.abs() + 1)",
    "torch.div({x}, {y}.abs() + 1, rounding_mode='trunc')", "torch.copysign({x}, {y})",
    "torch.div({x}, {y}.abs() + 1, rounding_mode='floor')", "torch.eq({x}, {y}).sum()",
    "torch.addcmul({x}, {y}, {y})", "torch.addcmul({x}, {y}, {y}, value=2)",
    "torch.hypot({x}, {y})",
    "torch.remainder({x}, -({y}.abs() + 1))", "torch.heaviside({x}, {y})", "torch.fmax({x}, {y})",
    "torch.cat([{x}.reshape(-1), {y}.reshape(-1)])",
    "torch.clamp({x}, {y}.clamp(max=0), {y}.abs())",
    "torch.lerp({x}.float(), {y}.float(), 0.3)", "torch.xlogy({x}.abs(), {y}.abs() + 1)",
    "{x}.type_as({y})", "torch.isclose({x}, {y})", "torch.bitwise_and({x}, {y})",
    "torch.masked_fill({x}, {y} > 0, 1)", "{x} + {y}.float()", "torch.dot({x}.reshape(-1)[:2], "
    "{x}.reshape(-1)[:2])", "torch.ldexp({x}, {y})", "F.one_hot({x}.abs() % 3, 3)",
)
IN_PLACE = ("{x} += {y}", "{x} *= 2", "{x} -= 1", "{x} //= 2", "{x}.add_({y})", "{x}.mul_({y})",
            "{x}.bitwise_not_()", "{x} &= {y}", "{x} |= {y}", "{x} ^= {y}", "{x}.clamp_(0, 2)",
            "{x}.fill_(1)", "{x}.zero_()", "{x}.copy_({y})", "{x}.neg_()", "{x}.abs_()",
            "{x}.eq_({y})", "{x}.logical_not_()", "{x}.fill_diagonal_(1)", "{x} <<= 1",
            "{x}.floor_divide_(2)", "{x}.remainder_(3)", "{x}.sign_()", "{x}[..., 0] = {y}.sum()")


def whole(d, low=0):
    """A tensor of whole numbers: one that there is, or a new one."""
    found = d.tensors(lambda t: not t.is_floating_point() and low <= t.dim() <= 5)
    if found and d.chance(0.6):
        return d.rng.choice(found)
    return d.fresh(d.sizes(low), d.rng.choice(DTYPES))


@row("integers", 9)
def of_one(d):
    x, text = whole(d), d.rng.choice(ONE)
    if "<<" in text or ">>" in text or "shift" in text:  # torch's own rule of shapes has no bool
        x = f"{x}.to(I32)" if d.env[x].dtype is torch.bool else x
    d.emit(text.format(x=x))


@row("integers", 3)
def beside_a_number(d):
    """A number that the dtype of the tensor may not hold: it wraps around."""
    n = d.rng.choice((-300, -129, -3, -1, 128, 200, 255, 256, 300, 1000, 40_000))
    text = d.rng.choice(("{x} + {n}", "{x} - {n}", "{n} - {x}", "{x} * {n}", "{x} == {n}",
                         "{x} < {n}", "{x} >= {n}", "{x} // {n}", "{x} % {n}", "{x} & {n}",
                         "{x} ^ {n}", "{x}.clamp(min={n})", "{x}.clamp({n}, 100)",
                         "torch.full_like({x}, {n})", "torch.where({x} > 2, {x}, {n})",
                         "{x}.masked_fill({x} > 2, {n})", "F.threshold({x}, 2, {n})"))
    d.emit(text.format(x=whole(d), n=n))


@row("integers", 12)
def of_two(d):
    x = whole(d)
    if d.chance(0.5):
        y = operand(d, d.within(d.env[x].shape), dtype_of(d, x))
    else:
        y = d.fresh(d.within(d.env[x].shape), d.rng.choice(DTYPES))
    if d.chance(0.3):
        x, y = y, x
    d.emit(d.rng.choice(TWO).format(x=x, y=y))


@row("integers", 4)
def with_floats(d):
    """One operand of another class: its dtype counts only if its class is higher."""
    x = d.floating()
    y = d.fresh(d.within(d.env[x].shape), d.rng.choice(DTYPES))
    x, y = (x, y) if d.chance(0.5) else (y, x)
    d.emit(d.rng.choice(("{x} + {y}", "{x} * {y}", "{x} - {y} * 2",
                         "torch.where({x} > 0, {x}, {y})",
                         "torch.maximum({x}, {y})", "{x} / ({y}.abs() + 1)", "{x} == {y}",
                         "torch.addcmul({x}, {y}, {y}, value=2)", "{x} % ({y}.abs() + 1)",
                         "torch.add({x}, {y}, alpha=2)", "torch.stack([{x}, {x} * {y}])",
                         "torch.copysign({x}, {y})", "{x} <= {y}")).format(x=x, y=y))


@row("integers", 6)
def reduced(d):
    x = whole(d, 1)
    rank = d.env[x].dim()
    dim, keep = d.rng.randint(-rank, rank - 1), d.rng.choice(("", ", keepdim=True"))
    other = d.rng.choice(("F32", "I64", "I32", "F16"))
    d.emit(d.rng.choice((
        f"{x}.sum()", f"{x}.sum({dim}{keep})", f"{x}.prod({dim}{keep})", f"{x}.amax({dim}{keep})",
        f"{x}.amin({dim}{keep})", f"{x}.argmax({dim}{keep})", f"{x}.argmin({dim}{keep})",
        f"{x}.any({dim}{keep})", f"{x}.all({dim}{keep})", f"{x}.any()", f"{x}.all()", f"{x}.max()",
        f"{x}.cumsum({dim})", f"{x}.cumprod({dim})", f"{x}.sum({dim}, dtype={other})", f"{x}.min()",
        f"{x}.cumsum({dim}, dtype={other})", f"{x}.float().mean({dim}{keep})",
        f"torch.mean({x}, {dim}, dtype=F32)", f"torch.count_nonzero({x}, {dim})",
        f"torch.diff({x}, dim={dim})", f"{x}.logical_not().sum({dim})", f"{x}.prod(dtype=F32)",
        f"torch.sort({x}, dim={dim}, stable=True)[0]",
        f"torch.argsort({x}, dim={dim}, stable=True)",
        f"{x}.topk(1, {dim})[0]", f"torch.cummax({x}, {dim})[0]", f"{x}.max({dim}{keep})[0]",
        f"{x}.contiguous().median({dim})[0]", f"torch.trapezoid({x}.float(), dim={dim})",
        f"F.softmax({x}, {dim}, dtype=F32)", f"torch.logsumexp({x}.float(), {dim})")))


@row("integers", 6)
def changed(d):
    x = whole(d)
    if d.chance(0.5):
        x = d.emit(f"{x}.clone()")[0]
    y = d.fresh(d.within(d.env[x].shape), dtype_of(d, x) if d.chance(0.7) else d.rng.choice(DTYPES))
    d.change(d.rng.choice(IN_PLACE).format(x=x, y=y), x)


@row("integers", 3)
def multiplied(d):
    """Products of matrices of whole numbers."""
    m, k, n = (d.rng.choice(d.dims) for _ in range(3))
    dtype = d.rng.choice(("I64", "I32", "I16", "I8", "U8"))
    x, y, z = operand(d, (m, k), dtype), operand(d, (k, n), dtype), operand(d, (n,), dtype)
    d.emit(d.rng.choice((f"{x} @ {y}", f"torch.addmm({z}, {x}, {y})", f"{x} @ {y} @ {z}",
                         f"torch.einsum('mk,kn->nm', {x}, {y})", f"F.linear({x}, {y}.t())",
                         f"torch.outer({z}, {z})", f"torch.dot({z}, {z})", f"{x}.mT @ {x}",
                         f"torch.addmm({z}, {x}, {y}, beta=2, alpha=3)",
                         f"torch.tensordot({x}, {y}, 1)",
                         f"torch.baddbmm({z}, {x}[None], {y}[None])")))


@row("integers", 3)
def made(d):
    """Whole numbers from nothing."""
    n, dtype = d.rng.choice(d.dims), d.rng.choice(DTYPES)
    sizes = d.sizes(0, 3)
    d.emit(d.rng.choice((
        f"torch.arange({n}, dtype=I32)", f"torch.arange({n}, 0, -2)", f"torch.arange(-3, {n})",
        f"torch.full({sizes}, 3, dtype={dtype})", f"torch.full({sizes}, True)",
        f"torch.eye({n}).bool()",
        f"torch.zeros({sizes}, dtype={dtype})", f"torch.ones({sizes}, dtype={dtype})",
        "torch.tensor([[1, -2], [3, 4]])", "torch.tensor(True)", f"torch.tensor(-1, dtype={dtype})",
        f"torch.arange({n})[:, None] >= torch.arange({n})", f"torch.triu_indices({n}, {n}, 1)",
        f"torch.ones({n}, {n}, dtype=BOOL).tril()", f"torch.linspace(0, 9, {n}).to(I32)",
        f"torch.cartesian_prod(torch.arange(2), torch.arange({n}))")))
