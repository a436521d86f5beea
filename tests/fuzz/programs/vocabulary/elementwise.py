"""Element-wise functions, with broadcasts and mixed dtypes; casts."""

from tests.fuzz.programs.program import DTYPE_NAMES
from tests.fuzz.programs.vocabulary.base import dtype_of, row

SMOOTH = (
    "torch.sin({x})", "torch.cos({x})", "torch.tanh({x})", "torch.sigmoid({x})", "torch.neg({x})",
    "torch.exp(-{x}.abs())", "torch.exp({x}.clamp(max=2))", "torch.expm1({x}.clamp(max=2))",
    "torch.log({x}.abs() + 0.5)", "torch.log1p({x}.abs())", "torch.log2({x}.abs() + 1)",
    "torch.sqrt({x}.abs() + 0.25)", "torch.rsqrt({x}.abs() + 0.5)", "torch.square({x})",
    "torch.reciprocal({x}.abs() + 0.5)", "torch.erf({x})", "torch.erfc({x})",
    "torch.atan({x})", "torch.sinh({x}.clamp(-2, 2))", "torch.cosh({x}.clamp(-2, 2))",
    "torch.asinh({x})", "torch.tan({x}.clamp(-1, 1))", "torch.sinc({x})",
    "torch.exp2({x}.clamp(-4, 3))", "torch.log10({x}.abs() + 1)", "{x}.pow(2)", "{x}.pow(3)",
    "({x}.abs() + 0.5) ** 0.5", "({x}.abs() + 0.5).pow(-1)",
    "({x}.abs() + 0.5).pow(1.7)", "torch.logit({x}.sigmoid(), eps=0.1)",
    "torch.digamma({x}.abs() + 1)",
    "torch.lgamma({x}.abs() + 1)", "torch.erfinv({x}.tanh() * 0.9)", "torch.deg2rad({x})",
    "torch.special.expit({x})", "torch.special.i0({x}.clamp(-3, 3))",
    "torch.acos({x}.tanh() * 0.9)",
    "torch.asin({x}.tanh() * 0.9)", "torch.atanh({x}.tanh() * 0.9)", "torch.acosh({x}.abs() + 1.5)",
    "torch.special.xlog1py({x}, {x}.abs())", "torch.special.entr({x}.abs())", "{x} * {x}",
    "1 - {x}", "2.5 * {x}", "{x} / 3", "3 / ({x}.abs() + 1)", "{x} + 1", "{x} - 0.5",
)
# "+ 0" where it depends on vectors and their ends which sign eager gives a zero.
KINKED = (
    "torch.relu({x})", "torch.abs({x})", "torch.sign({x})", "torch.floor({x})", "torch.ceil({x})",
    "torch.round({x})", "torch.trunc({x})", "torch.frac({x})", "torch.clamp({x}, -0.5, 0.75)",
    "torch.clamp({x}, min=0.1)", "torch.clamp({x}, max=0.3)", "torch.sgn({x})",
    "torch.round({x}, decimals=1)", "torch.nan_to_num({x})",
    "torch.heaviside({x}, {x}.new_ones(()))",
    "{x} % 2", "torch.remainder({x}, 1.5)", "torch.fmod({x}, 1.5)", "{x} // 2",
    "torch.floor_divide({x}, 2)", "torch.special.xlogy({x}, 2.0)",
)
ACTIVATIONS = (
    "F.gelu({x})", "F.gelu({x}, approximate='tanh')", "F.silu({x})", "F.elu({x})",
    "F.elu({x}, 0.7)", "F.selu({x})", "F.celu({x}, 0.8)", "F.leaky_relu({x}, 0.1)",
    "F.softplus({x})",
    "F.softplus({x}, 2, 1)", "F.relu6({x})", "F.hardtanh({x}, -0.5, 0.8)", "F.hardswish({x})",
    "F.hardsigmoid({x})", "F.mish({x})", "F.softsign({x})", "F.tanhshrink({x})",
    "F.softshrink({x}, 0.3) + 0", "F.hardshrink({x}, 0.3)", "F.logsigmoid({x})",
    "F.threshold({x}, 0.2, -1.0)", "F.rrelu({x}, 0.1, 0.1)", "F.dropout({x}, 0.0)",
)
WHOLE = ("{x} + 1", "{x} * 2", "-{x}", "{x}.abs()", "{x} // 3", "{x} % 3", "{x}.clamp(-1, 2)",
         "{x}.sign()", "{x} * {x}", "{x} - 1", "~{x}", "{x} & 3", "{x} | 1", "{x} ^ 2", "{x} << 1",
         "{x} >> 1", "{x}.bitwise_not()", "{x} / 2", "{x}.to(F32)", "{x}.to(F16)", "{x}.sqrt()",
         "torch.sin({x})", "torch.sigmoid({x})", "torch.relu({x})", "{x}.pow(2)", "{x} * 1.5",
         "{x}.square()", "torch.floor({x})")
BINARY = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} + {y}", "{x} * {y}", "{x} / ({y}.abs() + 1)",
    "torch.maximum({x}, {y}) + 0", "torch.minimum({x}, {y}) + 0",
    "torch.atan2({x}, {y}.abs() + 1)",
    "torch.add({x}, {y}, alpha=-2)", "torch.sub({x}, {y}, alpha=3)", "torch.hypot({x}, {y})",
    "torch.rsub({x}, {y}, alpha=-3)", "{x}.clamp(min=0).copysign({y}) + 1 / {y}.clamp(0, 2)",
    "torch.fmax({x}, {y})", "torch.fmin({x}, {y})", "torch.logaddexp({x}, {y})",
    "torch.pow({x}.abs() + 0.5, {y}.clamp(-2, 2))", "torch.copysign({x}, {y})",
    "torch.remainder({x}, {y}.abs() + 1)", "torch.fmod({x}, {y}.abs() + 1)",
    "torch.xlogy({x}, {y}.abs() + 0.5)", "torch.where({x} > {y}, {x}, {y})",
    "torch.lerp({x}, {y}, 0.3)",
    "torch.lerp({x}, {y}, 0.7)", "{x}.true_divide({y}.abs() + 2)", "torch.rsub({x}, {y})",
    "torch.floor_divide({x}, {y}.abs() + 1)",
    "torch.div({x}, {y}.abs() + 1, rounding_mode='trunc')",
    "torch.div({x}, {y}.abs() + 1, rounding_mode='floor')", "torch.ldexp({x}, {y}.clamp(-2, 2))",
    "torch.logaddexp2({x}, {y})", "torch.dist({x}, {y})", "torch.nextafter({x}, {x} + 1) * {y}",
    "F.mse_loss({x}, {y})", "F.l1_loss({x}, {y}, reduction='none')", "F.smooth_l1_loss({x}, {y})",
    "F.huber_loss({x}, {y}, reduction='sum')", "F.mse_loss({x}, {y}, reduction='none')",
    "F.binary_cross_entropy_with_logits({x}, {y}.sigmoid())", "F.soft_margin_loss({x}, {y}.sign())",
    "torch.special.xlogy({x}, {y}.abs() + 1)", "F.kl_div({x}, {y}.abs() + 0.1, reduction='sum')",
    "F.binary_cross_entropy({x}.sigmoid(), {y}.sigmoid(), reduction='none')",
    "F.poisson_nll_loss({x}.clamp(max=2), {y}.abs())",
    "F.gaussian_nll_loss({x}, {y}, {y}.abs() + 0.5)",
    "F.hinge_embedding_loss({x}, {y}.sign())",
)
COMPARISONS = ("{x} > {y}", "{x} < {y}", "{x} >= {y}", "{x} <= {y}", "{x} == {y}", "{x} != {y}",
               "{x} > 0", "{x} <= 0.5", "{x} == 0", "torch.isnan({x})", "torch.isinf({x})",
               "torch.isfinite({x})", "torch.logical_not({x})", "torch.logical_and({x}, {y})",
               "torch.logical_or({x}, {y})", "torch.logical_xor({x}, {y})", "torch.signbit({x})",
               "torch.isclose({x}, {y})", "torch.isposinf({x})")
TERNARY = ("torch.addcmul({x}, {y}, {z})", "torch.addcmul({x}, {y}, {z}, value=0.5)",
           "torch.addcdiv({x}, {y}, {z}.abs() + 1)",
           "torch.addcdiv({x}, {y}, {z}.abs() + 1, value=2)",
           "torch.lerp({x}, {y}, {z}.sigmoid())",
           "torch.clamp({x}, {y}.clamp(max=0), {z}.abs()) + 0",
           "({x} * {y} + {z}) * {y} + {z}", "{x} * {y} - {z}", "({x} - {y}) / ({z}.abs() + 1)",
           "torch.relu({x} * {y} + {z})", "{x} * torch.sigmoid({y}) + torch.tanh({z})")
CASTS = ("F16", "BF16", "F32", "F32", "F64", "I32", "I64", "U8", "BOOL", "I8", "I16")
CHAINED = ("F16", "BF16", "F32", "F32", "F64", "I32", "I64", "I16", "I8")
WHOLE_RANGES = {"I32": "-1000, 1000", "I64": "-1000, 1000", "U8": "0, 200", "I8": "-100, 100",
                "I16": "-1000, 1000"}


@row("elementwise", 10)
def smooth(d):
    d.emit(d.rng.choice(SMOOTH).format(x=d.floating()))


@row("elementwise", 6)
def kinked(d):
    d.emit(d.rng.choice(KINKED).format(x=d.floating()))


@row("elementwise", 6)
def activation(d):
    d.emit(d.rng.choice(ACTIVATIONS).format(x=d.floating()))


@row("elementwise", 14)
def binary(d):
    x = d.floating()
    y = d.partner(x)
    if d.chance(0.3):
        x, y = y, x
    d.emit(d.rng.choice(BINARY).format(x=x, y=y))


@row("elementwise", 6)
def ternary(d):
    x = d.floating()
    d.emit(d.rng.choice(TERNARY).format(x=x, y=d.partner(x), z=d.partner(x)))


@row("elementwise", 5)
def comparison(d):
    x = d.any()
    d.emit(d.rng.choice(COMPARISONS).format(x=x, y=d.partner(x)))


@row("elementwise", 6)
def choice(d):
    x = d.floating()
    y, condition = d.partner(x), d.condition(d.env[x].shape)
    d.emit(d.rng.choice((f"torch.where({condition}, {x}, {y})",
                         f"torch.where({condition}, {y}, {x})",
                         f"torch.where({condition}, {x}, 0.5)",
                         f"{x}.masked_fill({condition}, -2.0)",
                         f"{x} * {condition}", f"torch.where({condition}, 1.0, {x})")))


@row("elementwise", 5)
def chain(d):
    """Several element-wise ops in one line, which are fused."""
    x = d.floating()
    text = x
    for _ in range(d.rng.randint(2, 5)):
        y = d.partner(x)
        text = d.rng.choice((f"({text} * {y})", f"({text} + {y})", f"({text} - {y})",
                             f"torch.tanh({text})", f"torch.relu({text})", f"({text} * 0.5)",
                             f"(torch.maximum({text}, {y}) + 0)", f"torch.sigmoid({text})",
                             f"torch.where({d.condition(d.env[x].shape)}, {text}, {y})"))
    d.emit(text)


@row("elementwise", 4)
def whole(d):
    x = d.pick(lambda t: not t.is_floating_point())
    if d.chance(0.5):
        d.emit(d.rng.choice(WHOLE).format(x=x))
    else:
        d.emit(d.rng.choice(BINARY[:8] + COMPARISONS[:6]).format(x=x, y=d.partner(x)))


@row("elementwise", 5)
def cast(d):
    x, to = d.any(), d.rng.choice(CASTS)
    if d.env[x].is_floating_point() and to in WHOLE_RANGES:
        d.emit(f"torch.nan_to_num({x}).clamp({WHOLE_RANGES[to]}).to({to})")
    elif to in ("U8", "I8", "I16"):
        d.emit(f"{x}.to(I64).clamp({WHOLE_RANGES[to]}).to({to})")
    elif DTYPE_NAMES[d.env[x].dtype] == to:
        d.emit(f"{x}.to({to})")  # the same tensor
    else:
        d.emit(f"{x}.to({to}, copy=True)")  # a copy in other worlds, too


@row("elementwise", 3)
def casts(d):
    """Casts one after the other: rounding to a short type, to whole numbers, and back."""
    x = d.any()
    low = 0 if dtype_of(d, x) == "U8" else -100
    text = f"torch.nan_to_num({x}).clamp({low}, 100)"
    for _ in range(d.rng.randint(2, 4)):
        text += f".to({d.rng.choice(CHAINED)})"
    d.emit(text)


@row("elementwise", 2)
def dtype_of_another(d):
    x, y = d.any(), d.floating()
    if d.env[x].dtype == d.env[y].dtype or not d.env[x].is_floating_point():
        d.emit(f"{x}.type_as({y})")
