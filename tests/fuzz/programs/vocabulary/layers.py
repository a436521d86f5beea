"""Modules of ``torch.nn``: layers with their own weights, called once or twice."""

from tests.fuzz.programs.vocabulary.base import a_size, dtype_of, operand, row, small
from tests.fuzz.programs.vocabulary.convolutions import RANKS, SPACES, image
from tests.fuzz.programs.vocabulary.norms import (
    channelled,
    last_sizes,
    unambiguous,
    with_residual,
)

AFTER = ("{}",) * 10 + ("F.relu({})", "{}.mT.tanh()", "{}[..., ::2].sin()", "{}.sum(0)", "{} * 2",
                        "{}.flip(-1)",
                        "{}.transpose(0, 1).square()", "{}.sum()")
ACTIVATIONS = ("nn.ReLU()", "nn.GELU()", "nn.Tanh()", "nn.SiLU()", "nn.Sigmoid()",
               "nn.Dropout(0.0)",
               "nn.Identity()", "nn.LeakyReLU(0.1)", "nn.Softplus()", "nn.ELU()", "nn.Hardswish()")
IN_PLACE = ("nn.ReLU(inplace=True)", "nn.SiLU(inplace=True)", "nn.Hardtanh(inplace=True)",
            "nn.ELU(inplace=True)", "nn.LeakyReLU(0.1, inplace=True)")


def made(d, text, dtype):
    """A module in a dtype."""
    return d.module(f"{text}.to({dtype})")


def called(d, m, x, text="{}"):
    """The results of a module, called once or twice with the same weights."""
    if d.chance(0.15):
        with_residual(d, f"{m}({x})", x)
    else:
        d.emit((d.rng.choice(AFTER) if text == "{}" else text).format(f"{m}({x})"))
    if d.chance(0.2):
        y = d.rng.choice((x, f"{x} * 0.5", f"{x}.flip(0)"))
        d.emit(f"{m}({y})" if d.chance(0.7) else f"{m}({y}) + {m}({x})")


@row("layers", 9)
def linear(d):
    x = d.floating(1, 4)
    inner = d.env[x].shape[-1]
    bias = ", bias=False" if d.chance(0.3) else ""
    called(d, made(d, f"nn.Linear({inner}, {a_size(d)}{bias})", dtype_of(d, x)), x)


def a_convolution(d, rank, channels, out):
    """The text of a convolution that fits any space."""
    groups = d.rng.choice([k for k in range(1, channels + 1) if channels % k == 0 and out % k == 0])
    more = f", groups={groups}" if groups > 1 and d.chance(0.5) else ""
    more += ", bias=False" if d.chance(0.4) else ""
    kernel = d.rng.choice((1, 3, 3, 5))
    if d.chance(0.3):
        more += ", stride=2"
    if kernel > 1:
        mode = d.rng.choice(("", "", "", ", padding_mode='reflect'", ", padding_mode='circular'",
                             ", padding_mode='replicate'"))
        more += f", padding={kernel // 2 if not mode else 1}{mode}"
    return f"nn.Conv{rank}d({channels}, {out}, {kernel}{more})"


@row("layers", 8)
def convolution(d):
    rank = d.rng.choice(RANKS)
    x = image(d, rank)
    channels, out = d.env[x].shape[1], d.rng.choice((1, 2, 3, 4, 6, 8, 16, 17))
    text = a_convolution(d, rank, channels, out)
    if d.chance(0.25):
        kernel = d.rng.choice((1, 2, 3))
        text = (f"nn.ConvTranspose{rank}d({channels}, {out}, {kernel}, stride={d.rng.randint(1, 2)}"
                f"{', bias=False' if d.chance(0.4) else ''})")
    called(d, made(d, text, dtype_of(d, x)), x)


@row("layers", 8)
def blocks(d):
    """Convolutions, norms and activations one after the other."""
    rank = d.rng.choice((1, 2, 2))
    x = image(d, rank)
    channels, parts = d.env[x].shape[1], []
    for _ in range(d.rng.randint(1, 2)):
        out = d.rng.choice((2, 4, 8, 16))
        parts += [a_convolution(d, rank, channels, out)]
        parts += [d.rng.choice((f"nn.BatchNorm{rank}d({out})", f"nn.BatchNorm{rank}d({out})",
                                f"nn.GroupNorm(2, {out})", f"nn.InstanceNorm{rank}d({out})"))]
        parts += [d.rng.choice(ACTIVATIONS + IN_PLACE)] * d.chance(0.7)
        channels = out
    if d.chance(0.4):
        parts += [d.rng.choice((f"nn.AdaptiveAvgPool{rank}d(1)", f"nn.MaxPool{rank}d(1)",
                                f"nn.AvgPool{rank}d(1)"))]
    if d.chance(0.3):
        parts += [f"nn.Flatten({d.rng.choice((1, 2))})"]
    called(d, made(d, f"nn.Sequential({', '.join(parts)})", dtype_of(d, x)), x)


@row("layers", 6)
def perceptron(d):
    x = d.floating(1, 3)
    width, parts = d.env[x].shape[-1], []
    for _ in range(d.rng.randint(2, 3)):
        out = a_size(d)
        parts += [f"nn.Linear({width}, {out})", d.rng.choice(ACTIVATIONS + IN_PLACE)]
        if d.chance(0.3):
            parts += [d.rng.choice((f"nn.LayerNorm({out})", f"nn.RMSNorm({out})"))]
        width = out
    called(d, made(d, f"nn.Sequential({', '.join(parts)})", dtype_of(d, x)), x)


@row("layers", 8)
def norm(d):
    kind = d.rng.choice(("batch", "batch", "batch", "layer", "layer", "group", "instance", "rms"))
    if kind in ("layer", "rms"):
        x, sizes = last_sizes(d)
        more = ", elementwise_affine=False" if d.chance(0.2) else ""
        more += ", bias=False" if d.chance(0.2) and kind == "layer" else ""
        text = f"nn.{'LayerNorm' if kind == 'layer' else 'RMSNorm'}({list(sizes)}{more})"
    else:
        x = channelled(d, 3 if kind == "instance" else 2)
        channels, rank = d.env[x].shape[1], max(1, d.env[x].dim() - 2)
        groups = d.rng.choice([k for k in range(1, channels + 1) if channels % k == 0])
        more = "".join(text for text in (", affine=False", ", momentum=0.3", ", momentum=None",
                                         ", track_running_stats=False") if d.chance(0.15))
        more = more.replace(", momentum=0.3, momentum=None", ", momentum=None")
        text = {"batch": f"nn.BatchNorm{rank}d({channels}{more})",
                "group": f"nn.GroupNorm({groups}, {channels})",
                "instance": f"nn.InstanceNorm{rank}d({channels}, affine={d.chance(0.5)})"}[kind]
    m = made(d, text, dtype_of(d, x))
    if kind == "instance" or kind == "batch" and 1 in d.env[x].shape:
        d.emit(unambiguous(d, x, f"{m}({x})"))
    else:
        called(d, m, x)


@row("layers", 5)
def embedding(d):
    count, width = d.rng.choice((1, 3, 5, 10, 50)), d.rng.choice((1, 2, 3, 4, 8, 17, 33))
    more = f", padding_idx={d.rng.randrange(count)}" if d.chance(0.5) else ""
    if d.chance(0.6):
        more += ", scale_grad_by_freq=True" if d.chance(0.1) else ""
        m = made(d, f"nn.Embedding({count}, {width}{more})", d.dtype())
        called(d, m, d.indices(count, d.sizes(1, 3), d.rng.choice(("I64", "I32"))))
        return
    m = made(d, f"nn.EmbeddingBag({count}, {width}, mode={d.rng.choice(('sum', 'mean', 'max'))!r}"
                f"{more})", d.dtype())
    d.emit(f"{m}({d.indices(count, (d.rng.choice((1, 2, 3)), d.rng.choice((1, 2, 4))))})")


@row("layers", 7)
def recurrent(d):
    kind = d.rng.choice(("LSTM", "LSTM", "GRU", "RNN"))
    steps, batch, width = d.rng.choice((1, 2, 3, 5)), d.rng.choice((1, 2, 3)), small(d, 8)
    hidden, layers = d.rng.choice((1, 2, 3, 4, 8)), d.rng.choice((1, 1, 2))
    first, both = d.chance(0.4), d.chance(0.3)
    projected = d.rng.randint(1, hidden - 1) if kind == "LSTM" and hidden > 1 and d.chance(
        0.2) else 0
    dtype = d.dtype()
    more = f", num_layers={layers}" * (layers > 1) + ", batch_first=True" * first
    more += ", bidirectional=True" * both + f", proj_size={projected}" * bool(projected)
    more += ", bias=False" if d.chance(0.2) else ""
    more += ", nonlinearity='relu'" if kind == "RNN" and d.chance(0.5) else ""
    sizes = (batch, steps, width) if first else (steps, batch, width)
    states = (layers * (1 + both), batch)
    if d.chance(0.1):  # without a batch
        sizes, states = (steps, width), states[:1]
    x = operand(d, sizes, dtype)
    m = d.module(f"nn.{kind}({width}, {hidden}{more}).to({dtype})")
    start = ""
    if d.chance(0.4):
        start = f", {operand(d, (*states, projected or hidden), dtype)}"
        if kind == "LSTM":
            start = f", ({start[2:]}, {operand(d, (*states, hidden), dtype)})"
    if kind == "LSTM":
        d.emit(f"(lambda y, s: (y, *s))(*{m}({x}{start}))", 3)
    else:
        d.emit(f"{m}({x}{start})", 2)


@row("layers", 2)
def recurrent_cell(d):
    kind, batch = d.rng.choice(("LSTMCell", "GRUCell", "RNNCell")), d.rng.choice((1, 2, 3))
    width, hidden, dtype = small(d, 8), d.rng.choice((1, 2, 3, 8)), d.dtype()
    x = operand(d, (batch, width), dtype)
    m = d.module(f"nn.{kind}({width}, {hidden}).to({dtype})")
    if kind == "LSTMCell":
        d.emit(f"{m}({x})", 2)
    else:
        h = d.emit(f"{m}({x})")[0]
        d.emit(f"{m}({x}, {h})")


def a_mask(d, sizes, dtype):
    """An attention mask: truths, or numbers that are added."""
    if d.chance(0.5):
        # Each row has a truth: eager's kernels do not agree on what the others are.
        return f"({d.fresh(sizes, 'BOOL', '', 'xb')} | (torch.arange({sizes[-1]}) == 0))"
    return operand(d, sizes, dtype)


@row("layers", 8)
def attention(d):
    """``scaled_dot_product_attention`` with masks, causal, with fewer heads of keys."""
    dtype = d.dtype()
    batch = (d.rng.choice((1, 2)), d.rng.choice((1, 2, 4)))
    batch = batch if d.chance(0.8) else d.rng.choice((batch[:1], ()))
    length, other = d.rng.choice((1, 2, 3, 5, 8, 17)), d.rng.choice((1, 3, 4, 8, 33))
    width, out = d.rng.choice((1, 2, 4, 8, 16)), d.rng.choice((2, 4, 8))
    heads, more = batch, ""
    if len(batch) == 2 and batch[1] > 1 and d.chance(0.3):
        heads, more = (batch[0], batch[1] // 2), ", enable_gqa=True"
    q = operand(d, (*batch, length, width), dtype)
    k, v = operand(d, (*heads, other, width), dtype), operand(d, (*heads, other, out), dtype)
    if d.chance(0.3):
        more += ", is_causal=True"
        # Of two kernels of eager's one adds -infinity to hidden scores and multiplies by 0, the
        # other leaves them out.
        q, k, v = (f"{x}.nan_to_num(0.0, 1.0, -1.0)" for x in (q, k, v))
    elif d.chance(0.5):
        sizes = d.rng.choice(((length, other), (*batch, length, other), (other,), (1, other),
                              (length, 1), (*(1 for _ in batch), length, other)))
        more += f", attn_mask={a_mask(d, sizes, dtype)}"
    if d.chance(0.2):
        more += f", scale={d.rng.choice((0.25, 1.0))}"
    text = f"F.scaled_dot_product_attention({q}, {k}, {v}{more})"
    d.emit(d.rng.choice(("{}",) * 4 + ("{}.transpose(0, 1).square()", "{}.sum(-2)", "{}.mT.tanh()",
                                       "{}[..., ::2].sin()")
                        ).format(text))


@row("layers", 4)
def many_heads(d):
    heads, width, dtype = d.rng.choice((1, 2, 4)), d.rng.choice((4, 8, 12)), d.dtype()
    batch, length, other = d.rng.choice((1, 2)), d.rng.choice((1, 3, 5)), d.rng.choice((2, 4))
    x = operand(d, (batch, length, width), dtype)
    more = ", bias=False" if d.chance(0.2) else ""
    more += ", add_zero_attn=True" if d.chance(0.1) else ""
    m = d.module(f"nn.MultiheadAttention({width}, {heads}, batch_first=True{more}).to({dtype})")
    if d.chance(0.5):
        how = d.rng.choice((", need_weights=False", "", ", average_attn_weights=False"))
        if d.chance(0.4):
            how += f", attn_mask=torch.ones({length}, {length}, dtype=BOOL).triu(1)"
        text = f"{m}({x}, {x}, {x}{how})"
    else:
        y, how = operand(d, (batch, other, width), dtype), ""
        if d.chance(0.3):
            ignored = d.fresh((batch, other), "BOOL", "", "xb")
            how = f", key_padding_mask={ignored} & (torch.arange({other}) > 0)"
        text = f"{m}({x}, {y}, {y}{how})"
    # Clones: without gradients eager has another path, whose results lie otherwise in memory.
    if "need_weights=False" in how:
        d.emit(f"{text}[0].clone(memory_format=torch.contiguous_format)")
    else:
        d.emit(f"[r.clone(memory_format=torch.contiguous_format) for r in {text}]", 2)


@row("layers", 3)
def transformer(d):
    heads, width, dtype = d.rng.choice((1, 2)), d.rng.choice((4, 8)), d.dtype()
    sizes = (d.rng.choice((1, 2)), d.rng.choice((1, 3, 5)), width)
    x = operand(d, sizes, dtype)
    more = d.rng.choice(("", ", norm_first=True", ", activation='gelu'"))
    text = f"nn.TransformerEncoderLayer({width}, {heads}, 16, dropout=0.0, batch_first=True{more})"
    if d.chance(0.25):
        text = f"nn.TransformerEncoder({text}, 2, enable_nested_tensor=False)"
    m = d.module(f"{text}.to({dtype})")
    if d.chance(0.2):
        text = f"nn.TransformerDecoderLayer({width}, {heads}, 16, dropout=0.0, batch_first=True)"
        m = d.module(f"{text}.to({dtype})")
        d.emit(f"{m}({x}, {operand(d, sizes, dtype)})")
    elif d.chance(0.4):
        mask = f"torch.ones({sizes[1]}, {sizes[1]}, dtype=BOOL).triu(1)"
        causal = ", is_causal=True" if d.chance(0.5) else ""
        d.emit(f"{m}({x}, {mask}{causal})" if "Encoder(" not in text
               else f"{m}({x}, mask={mask}{causal})")
    else:
        called(d, m, x)


@row("layers", 4)
def others(d):
    x = d.floating(1, 4)
    shape, dtype = d.env[x].shape, dtype_of(d, x)
    kind = d.rng.choice(("prelu", "prelu", "bilinear", "activation", "shape", "norm", "distance"))
    if kind == "prelu":
        count = shape[1] if len(shape) > 1 and d.chance(0.5) else 1
        called(d, d.module(f"nn.PReLU({count}).to({dtype})"), x)
    elif kind == "bilinear":
        out, other = a_size(d), a_size(d)
        y = operand(d, (*shape[:-1], other), dtype)
        m = d.module(f"nn.Bilinear({shape[-1]}, {other}, {out}).to({dtype})")
        d.emit(f"{m}({x}, {y})")
    elif kind == "activation":
        called(d, d.module(d.rng.choice(ACTIVATIONS)), x)
    elif kind == "shape":
        called(d, d.module(d.rng.choice((
            "nn.Flatten(0)", "nn.Flatten()", "nn.Softmax(-1)", "nn.LogSoftmax(0)", "nn.GLU(-1)",
            "nn.ZeroPad1d(1)", "nn.ConstantPad1d((1, 2), 0.5)", "nn.CosineSimilarity(-1)"))), x)
    elif kind == "norm":
        # Weights of a direction and a length.
        called(d, d.module(f"nn.utils.parametrizations.weight_norm(nn.Linear({shape[-1]}, 3))"
                           f".to({dtype})"), x)
    else:
        y = operand(d, shape, dtype)
        m = d.module(d.rng.choice(("nn.PairwiseDistance()", "nn.CosineSimilarity(-1)",
                                   "nn.MSELoss()", "nn.SmoothL1Loss()")))
        d.emit(f"{m}({x}, {y})")


@row("layers", 2)
def resized(d):
    rank = d.rng.choice((1, 2))
    sizes = (d.rng.choice((1, 2)), d.rng.choice((1, 2, 4)), *(d.rng.choice(SPACES[rank][:6])
                                                              for _ in range(rank)))
    x = operand(d, sizes, d.dtype())
    called(d, d.module(d.rng.choice((
        "nn.Upsample(scale_factor=2)", "nn.PixelShuffle(1)", f"nn.AvgPool{rank}d(1)",
        f"nn.ReflectionPad{rank}d(0)", f"nn.ReplicationPad{rank}d(1)", f"nn.MaxPool{rank}d(1, 2)",
        f"nn.AdaptiveMaxPool{rank}d(2)", "nn.LocalResponseNorm(3)"))), x)


HOOKS = ("m.register_forward_hook(lambda m, a, out: out * 2)",
         "m.register_forward_hook(lambda m, a, out: None)",
         "m.register_forward_hook(lambda m, a, out: out + a[0].mean())",
         "m.register_forward_pre_hook(lambda m, a: (a[0] * 0.5,))",
         "m.register_forward_pre_hook(lambda m, a: None)",
         "m.register_full_backward_hook(lambda m, before, after: (before[0] * 2,))",
         "m.register_full_backward_hook(lambda m, before, after: None)",
         "m.register_full_backward_pre_hook(lambda m, after: (after[0] * 0.5,))",
         "m.requires_grad_(False)", "m.weight.requires_grad_(False)",
         "m.weight.register_hook(lambda g: g * 0.5)", "setattr(m, 'extra', m.weight)")


@row("layers", 3)
def changed_layer(d):
    """A layer with hooks, or with weights that are not trained."""
    x = d.floating(2, 4)
    inner = d.env[x].shape[-1]
    text = d.rng.choice((f"nn.Linear({inner}, {a_size(d)})", f"nn.LayerNorm({inner})",
                         f"nn.Sequential(nn.Linear({inner}, 3), nn.Tanh())",
                         f"nn.Linear({inner}, {inner}, bias=False)"))
    hooks = ", ".join(d.rng.sample(HOOKS, d.rng.randint(1, 2)))
    if d.chance(0.8):
        text = f"nn.utils.parametrizations.weight_norm({text})" if d.chance(0.15) else text
        text = f"(lambda m: ({hooks}, m)[-1])({text}.to({dtype_of(d, x)}))"
        called(d, d.module(text), x)
    else:  # weights that belong to two modules
        text = f"nn.Linear({inner}, {inner}).to({dtype_of(d, x)})"
        tied = f"(lambda m: nn.Sequential(m, nn.Tanh(), m))({text})"
        called(d, d.module(tied), x)
