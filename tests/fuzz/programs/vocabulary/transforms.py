"""Functions of functions: ``vmap``, derivatives in forward, checkpoints, autocast."""

from tests.fuzz.programs.vocabulary.base import Rejected, dtype_of, finite, operand, row
from tests.fuzz.programs.vocabulary.elementwise import ACTIVATIONS, SMOOTH
from tests.fuzz.programs.vocabulary.layers import made
from tests.fuzz.programs.vocabulary.norms import unambiguous

FUNCTIONS = ("lambda a: a.sin() * a", "lambda a: a.exp().tanh()", "lambda a: a * a.sum()",
             "lambda a: a.softmax(-1) + a", "lambda a: F.gelu(a) - a.mean()",
             "lambda a: a.cumsum(-1)", "lambda a: a.flip(-1) * a", "lambda a: a.mT @ a")
SCALARS = ("lambda a: a.sin().sum()", "lambda a: (a * a).mean()", "lambda a: a.exp().tanh().sum()",
           "lambda a: a.logsumexp(-1).sum()", "lambda a: (a.mT @ a).sum()", "lambda a: a.norm()")
MORE_SCALARS = (
    "lambda a: F.layer_norm(a, a.shape[-1:]).pow(3).sum()", "lambda a: a.softmax(-1).pow(2).sum()",
    "lambda a: (a @ a.mT).sin().sum()", "lambda a: F.silu(a).sum()", "lambda a: a.std(-1).sum()",
    "lambda a: F.cross_entropy(a.flatten(0, -2), a.flatten(0, -2).detach().argmax(-1))",
    "lambda a: F.conv1d(a.flatten()[None, None], a.flatten()[None, None, :1]).pow(2).sum()",
    "lambda a: F.avg_pool1d(a.flatten()[None], 1).exp().tanh().sum()", "lambda a: a.prod(-1).sum()",
    "lambda a: F.max_pool1d(a.flatten()[None], 1).pow(3).sum()",
    "lambda a: a.amax(-1).pow(2).sum()",
    "lambda a: F.mse_loss(a.tanh(), a.flip(-1))", "lambda a: a.cumsum(-1).pow(2).mean()",
    "lambda a: F.normalize(a, dim=-1).pow(3).sum()", "lambda a: torch.cdist(a, a.flip(-1)).sum()",
    "lambda a: F.scaled_dot_product_attention(a, a, a).pow(2).sum()",
    "lambda a: F.group_norm(a.flatten()[None, :, None], 1).pow(3).sum()",
    "lambda a: F.batch_norm(a.flatten(0, -2), None, None, training=True).pow(3).sum()",
    "lambda a: F.embedding(torch.zeros(2, dtype=torch.int64), a.flatten(0, -2)).pow(3).sum()",
    "lambda a: F.interpolate(a.flatten()[None, None], scale_factor=2, mode='linear').pow(3).sum()",
    "lambda a: F.pad(a, (1, 1), 'replicate' if a.dim() == 2 else 'constant').pow(3).sum()",
    "lambda a: a[..., :1].expand(a.shape).mul(a).pow(2).sum()",
    "lambda a: a.sort(-1, stable=True)[0].pow(3)[..., 0].sum()",
    "lambda a: torch.where(a > 0, a.pow(3), a.sin()).sum()",
    "lambda a: a.gather(-1, a.argsort(-1, stable=True)).pow(3).sum()",
)
# By the number of dimensions; {n} is the last size, {c} the second.
LAYERS = {
    2: ("nn.Linear({n}, 3)", "nn.Sequential(nn.Linear({n}, 4), nn.Tanh(), nn.Linear(4, 1))",
        "nn.BatchNorm1d({n})", "nn.LayerNorm({n})", "nn.GRU({n}, 3)", "nn.LSTM({n}, 2)",
        "nn.RNN({n}, 3)", "nn.GroupNorm(1, {n})", "nn.Softmax(-1)", "nn.PReLU()", "nn.GELU()"),
    3: ("nn.Conv1d({c}, 3, 1)", "nn.LSTM({n}, 3, batch_first=True, bidirectional=True)",
        "nn.TransformerEncoderLayer({n}, 1, 8, 0.0)", "nn.MultiheadAttention({n}, 1)",
        "nn.GRU({n}, 2, num_layers=2)", "nn.RNN({n}, 3, nonlinearity='relu', bias=False)",
        "nn.InstanceNorm1d({c}, affine=True)", "nn.BatchNorm1d({c}, affine=False)",
        "nn.AvgPool1d(1)", "nn.ConvTranspose1d({c}, 2, 2)", "nn.Linear({n}, 2, bias=False)"),
    4: ("nn.Conv2d({c}, 2, 1)", "nn.Conv2d({c}, {c}, 3, padding=1, groups={c})", "nn.GELU()",
        "nn.ConvTranspose2d({c}, 2, 2)", "nn.BatchNorm2d({c})", "nn.BatchNorm2d({c}).eval()",
        "nn.MaxPool2d(1)", "nn.AvgPool2d(1)", "nn.Upsample(scale_factor=2)", "nn.PixelShuffle(1)",
        "nn.LocalResponseNorm(2)", "nn.GroupNorm(1, {c})", "nn.AdaptiveAvgPool2d(1)",
        "nn.Sequential(nn.Conv2d({c}, 2, 1), nn.BatchNorm2d(2), nn.ReLU())"),
}


@row("transforms", 4)
def mapped(d):
    """``vmap`` over a dimension."""
    x = finite(d, d.floating(2))
    dim = d.rng.randint(0, d.env[x].dim() - 1)
    f = d.rng.choice(FUNCTIONS)
    if d.chance(0.5):
        d.emit(f"torch.vmap({f}, in_dims={dim}, out_dims={d.rng.randint(0, 1)})({x})")
        return
    y = operand(d, tuple(d.env[x].shape), dtype_of(d, x))
    d.emit(f"torch.vmap(lambda a, b: ({f})(a) + b.abs(), in_dims=({dim}, {dim}))({x}, {y})")


@row("transforms", 4)
def derived(d):
    """Derivatives by ``torch.func``."""
    # Derivatives in forward mode write to memory like the operand's, without shared elements.
    name = finite(d, d.floating(1))
    x = f"({name} * 1)"
    f, g = d.rng.choice(FUNCTIONS), d.rng.choice(SCALARS)
    forms = [f"torch.func.grad({g})({x})", f"torch.vmap(torch.func.grad({g}))({x})",
             f"torch.func.grad_and_value({g})({x})[0]", f"torch.func.vjp({f}, {x})[1]({x})[0]",
             f"torch.func.jvp({f}, ({x},), ({x},))[1]", f"torch.func.jacrev({g})({x})"]
    if d.env[name].numel() <= 256:  # they compute as often as there are elements
        forms += [f"torch.func.jacfwd({g})({x})", f"torch.func.hessian({g})({x})"]
    d.emit(d.rng.choice(forms))


@row("transforms", 3)
def again(d):
    """What is computed again for the backward pass."""
    x = d.floating(1)
    f = d.rng.choice(FUNCTIONS)
    d.emit(f"torch.utils.checkpoint.checkpoint({f}, {x}, use_reentrant=False)")


@row("transforms", 4)
def under_autocast(d):
    """Products and others in a type that ``torch.autocast`` chooses."""
    x = d.floating(2, 3)
    y = operand(d, tuple(d.env[x].shape), dtype_of(d, x))
    dtype = d.rng.choice(("torch.bfloat16", "torch.float16"))
    body = d.rng.choice((f"{x} @ {y}.mT", f"torch.matmul({x}.mT, {y}) + 1",
                         f"F.linear({x}, {y}) * 2", f"({x} @ {y}.mT).softmax(-1)",
                         f"{x} * {y}", f"({x} @ {y}.mT).sum()", f"({x} @ {y}.mT).exp()",
                         f"torch.cat([{x} @ {y}.mT, {x} @ {y}.mT])",
                         f"F.layer_norm({x} @ {y}.mT, [{d.env[x].shape[-2]}])"))
    d.emit(f"within(torch.autocast('cpu', {dtype}), lambda: {body})")


def differentiated(d, x):
    """The text of ``x`` as a tensor with a gradient, and what ends the graph if that is its own."""
    if d.training and d.env[x].requires_grad:
        return f"{x} * 1", ""
    return f"{x}.detach().requires_grad_()", ".detach()"


def emit_gradient(d, x, loss, arguments):
    """A gradient of ``loss``, a text on ``a``, which is another name of ``x``."""
    of, end = differentiated(d, x)
    d.emit(f"within(torch.enable_grad(), lambda: (lambda a: torch.autograd.grad({loss}, "
           f"{arguments})[0]{end})({of}))")


@row("transforms", 5)
def penalty(d):
    """A gradient in forward, that is differentiated again in training."""
    x = finite(d, d.floating(2, 4))
    f = d.rng.choice(SCALARS + MORE_SCALARS)
    if d.chance(0.4):
        text = d.rng.choice(SMOOTH + ACTIVATIONS).format(x="a")
        f = f"lambda a: ({text}).pow(2).sum()"
    graph = d.rng.choice((", create_graph=True", ", create_graph=True", ""))
    emit_gradient(d, x, f"({f})(a)", f"a{graph}")


@row("transforms", 2)
def descent(d):
    """A loop whose rounds go along a gradient."""
    x = finite(d, d.floating(2, 4))
    f, graph = d.rng.choice(SCALARS), d.rng.choice((", create_graph=True", ""))
    of, end = differentiated(d, x)
    body = f"[a - 0.1 * torch.autograd.grad(({f})(a), a{graph})[0]]"
    d.emit(f"within(torch.enable_grad(), lambda: poptorch.for_loop({d.rng.randint(1, 3)}, "
           f"lambda a: {body}, [{of}])[0]{end})")


@row("transforms", 2)
def hooked(d):
    """A gradient that a hook changes."""
    x = d.floating(1)
    hook = d.rng.choice(("lambda g: g * 2", "lambda g: g.clamp(-0.1, 0.1)", "lambda g: -g",
                         "lambda g: g / (g.norm() + 1)", "lambda g: None"))
    d.emit(f"(lambda a: (a.register_hook({hook}) if a.requires_grad else 0, a)[1])({x} * 1)")


@row("transforms", 3)
def penalty_of_layer(d):
    """A layer's gradient in forward, by its input or by its weight."""
    x = finite(d, d.floating(2, 4))
    shape = d.env[x].shape
    if max(shape, default=0) > 33:  # a recurrent layer is computed step by step
        raise Rejected
    text = d.rng.choice(LAYERS[len(shape)]).format(n=shape[-1], c=shape[1])
    m = made(d, text, dtype_of(d, x))
    call = unambiguous(d, x, f"{m}({x})").replace(f"({x}.", "(a.") if "Batch" in text else f"{m}(a)"
    out = f"(lambda out: out[0] if isinstance(out, tuple) else out)({call})"
    by = f"next({m}.parameters())" if [*d.env[m].parameters()] and d.chance(0.3) else "a"
    loss = d.rng.choice((f"{out}.sin().sum()", f"{out}.pow(2).mean()", f"{out}.sum()"))
    graph = d.rng.choice((", create_graph=True", ", create_graph=True", ""))
    emit_gradient(d, x, loss, f"{by}{graph}")


@row("transforms", 3)
def derived_layer(d):
    """A layer or a loss, transformed by ``torch.func``."""
    name = finite(d, d.floating(2, 4))
    x, shape = f"({name} * 1)", d.env[name].shape
    if max(shape, default=0) > 33:
        raise Rejected
    if d.chance(0.4):
        scalar = d.rng.choice(MORE_SCALARS)
        f = scalar
    else:
        text = d.rng.choice(LAYERS[len(shape)]).format(n=shape[-1], c=shape[1])
        if "Batch" in text and "eval" not in text:
            raise Rejected  # of one entry its gradients are ambiguous
        m = made(d, text, dtype_of(d, name))
        f = f"lambda a: (lambda out: out[0] if isinstance(out, tuple) else out)({m}(a))"
        scalar = f"lambda a: ({f})(a).pow(2).sum()"
    two = f"torch.stack([{x}, {x} * 0.5])"
    forms = [f"torch.vmap({f})({two})", f"torch.func.grad({scalar})({x})",
             f"torch.vmap(torch.func.grad({scalar}))({two})", f"torch.func.jacrev({scalar})({x})",
             f"torch.func.jvp({f}, ({x},), ({x}.cos(),))[1]",
             f"torch.func.jvp({f}, ({two}[0],), ({two}[1],))[1]"]
    if d.env[name].numel() <= 64:
        forms.append(f"torch.func.hessian({scalar})({x})")
    # Without gradient mode second derivatives of some functions are wrong in eager.
    end = "" if d.training else ".detach()"
    d.emit(f"within(torch.enable_grad(), lambda: {d.rng.choice(forms)}){end}")


# What a tensor says of itself, in Python.
ANSWERS = ("{x}.requires_grad", "{x}.requires_grad", "({x}.grad_fn is None)", "{x}.is_leaf",
           "{x}.is_contiguous()", "{x}.stride(-1) % 5 > 2", "{x}.storage_offset()", "{x}.is_neg()",
           "{x}.is_contiguous(memory_format=torch.channels_last)")


@row("transforms", 3)
def asked(d):
    """A branch of Python on what a tensor says of itself."""
    x = d.floating()
    d.emit(f"{x} * (2 if {d.rng.choice(ANSWERS).format(x=x)} else 3)")
