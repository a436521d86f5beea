"""Losses."""

from tests.fuzz.programs.vocabulary.base import a_size, dtype_of, operand, row, small

REDUCTIONS = ("", "", ", reduction='sum'", ", reduction='none'", ", reduction='none'")
UNHALVED = ("F32", "F32", "F64", "F32", "F16")  # eager has few of these losses in 16 bits


def reduced(d):
    return d.rng.choice(REDUCTIONS)


def scores(d, low=1, high=4):
    """A tensor of scores, with classes in dimension 1 (0 where it has one), and its classes."""
    if d.chance(0.5):
        sizes = [d.rng.choice(d.dims) for _ in range(d.rng.randint(low, min(3, high)))]
        dim = min(1, len(sizes) - 1)
        sizes[dim] = d.rng.choice((1, 2, 3, 5, 10, 17, 33))
        x = operand(d, sizes, d.dtype())
    else:
        x = d.pick(lambda t: t.is_floating_point() and low <= t.dim() <= high
                   and t.shape[min(1, t.dim() - 1)] > 0)
    shape = list(d.env[x].shape)
    dim = min(1, len(shape) - 1)
    return x, shape, shape[dim], [*shape[:dim], *shape[dim + 1:]]


def class_weight(d, classes, dtype, p=0.3):
    """A weight for each class, now and then."""
    if not d.chance(p):
        return ""
    return f", weight={d.fresh((classes,), dtype, 'uniform', 'bbx')}"


@row("losses", 9)
def cross_entropy(d):
    x, shape, classes, rest = scores(d)
    more = class_weight(d, classes, dtype_of(d, x))
    if d.chance(0.3):
        more += f", label_smoothing={d.rng.choice((0.1, 0.5, 1.0))}"
    if d.chance(0.25):
        target = d.fresh(shape, dtype_of(d, x), "uniform", "xxb")
        target = d.rng.choice((target, f"F.softmax({target}, {min(1, len(shape) - 1)})"))
    else:
        target = d.indices(classes, rest)
        if d.chance(0.3):
            more += f", ignore_index={d.rng.randrange(classes)}"
        elif d.chance(0.1):
            target = f"torch.where({target} == 0, -100, {target})"
    d.emit(f"F.cross_entropy({x}, {target}{more}{reduced(d)})")


@row("losses", 6)
def likelihood(d):
    x, shape, classes, rest = scores(d)
    more = class_weight(d, classes, dtype_of(d, x))
    if d.chance(0.3):
        more += f", ignore_index={d.rng.randrange(classes)}"
    text = d.rng.choice((x, f"F.log_softmax({x}, {min(1, len(shape) - 1)})"))
    d.emit(f"F.nll_loss({text}, {d.indices(classes, rest)}{more}{reduced(d)})")


@row("losses", 5)
def binary(d):
    x = d.floating()
    shape, dtype = d.env[x].shape, dtype_of(d, x)
    target = d.rng.choice((d.fresh(shape, dtype, "uniform", "xxb"),
                           f"{d.fresh(shape, 'BOOL', '', 'xxb')}.to({x}.dtype)"))
    weight = f", weight={d.fresh(d.within(shape), dtype, 'uniform', 'bx')}" if d.chance(0.3) else ""
    if d.chance(0.5):
        d.emit(f"F.binary_cross_entropy({x}.sigmoid(), {target}{weight}{reduced(d)})")
        return
    if d.chance(0.3) and shape:
        weight += f", pos_weight={d.fresh(shape[-1:], dtype, 'positive', 'bx')}"
    d.emit(f"F.binary_cross_entropy_with_logits({x}, {target}{weight}{reduced(d)})")


@row("losses", 6)
def of_two(d):
    """Losses between tensors of one shape."""
    x = d.floating()
    shape, dtype = d.env[x].shape, dtype_of(d, x)
    y = operand(d, shape, dtype)
    signs = d.rng.choice((f"{y}.sign()", f"torch.where({y} > 0, 1, -1)"))
    probabilities = d.fresh(shape, dtype, "uniform", "xxb")
    how = reduced(d)
    batchmean = d.rng.choice((how, ", reduction='batchmean'"))
    weight = f", weight={d.fresh(shape, dtype, 'uniform', 'bx')}"
    d.emit(d.rng.choice((
        f"F.mse_loss({x}, {y}{how})", f"F.l1_loss({x}, {y}{how})",
        f"F.smooth_l1_loss({x}, {y}{how}, beta={d.rng.choice((0.0, 0.5, 2.0))})",
        f"F.huber_loss({x}, {y}{how}, delta={d.rng.choice((0.5, 1.0, 2.0))})",
        f"F.kl_div({x}, {probabilities}{batchmean})", f"F.mse_loss({x}, {y}{weight}{how})",
        f"F.kl_div({x}, {y}{batchmean}, log_target=True)", f"F.soft_margin_loss({x}, {signs}{how})",
        f"F.hinge_embedding_loss({x}, {signs}{how}, margin=0.5)",
        f"F.poisson_nll_loss({x}.clamp(max=3), {probabilities}{how}, full=True)",
        f"F.poisson_nll_loss({probabilities}, {y}.abs(){how}, log_input=False)")))


@row("losses", 4)
def gaussian(d):
    x = d.floating(1, 4)
    shape, dtype = tuple(d.env[x].shape), dtype_of(d, x)
    y = operand(d, shape, dtype)
    sizes = d.rng.choice((shape, (*shape[:-1], 1), shape[:-1]))
    spread = d.fresh(sizes, dtype, "positive")
    more = ", full=True" if d.chance(0.3) else ""
    d.emit(f"F.gaussian_nll_loss({x}, {y}, {spread}{more}{reduced(d)})")


@row("losses", 5)
def of_vectors(d):
    """Losses between vectors."""
    dtype, n, width = d.dtype(), d.rng.choice(d.dims), a_size(d)
    x, y, z = (operand(d, (n, width), dtype) for _ in range(3))
    signs = f"torch.where({d.fresh((n,), 'BOOL', '', 'xxb')}, 1, -1)"
    how = reduced(d)
    margin = d.rng.choice(("", ", margin=0.5"))
    d.emit(d.rng.choice((
        f"F.cosine_embedding_loss({x}, {y}, {signs}{margin}{how})",
        f"F.margin_ranking_loss({x}, {y}, {signs}[:, None]{margin}{how})",
        f"F.margin_ranking_loss({x}[:, 0], {y}[:, -1], {signs}{margin}{how})",
        f"F.triplet_margin_loss({x}, {y}, {z}{margin}{how})",
        f"F.triplet_margin_loss({x}, {y}, {z}{how}, p=1.0, swap=True)",
        f"F.triplet_margin_with_distance_loss({x}, {y}, {z}{margin}{how})",
        f"F.pairwise_distance({x}, {y}, p={d.rng.choice((1.0, 2.0, 3.0))})",
        f"F.cosine_similarity({x}, {y}, dim={d.rng.choice((0, 1, -1))})")))


@row("losses", 4)
def of_margins(d):
    """Margins between classes."""
    dtype = d.rng.choice(UNHALVED)
    n, classes = d.rng.choice((1, 2, 3, 5)), d.rng.choice((1, 2, 3, 5, 8))
    sizes = (n, classes) if d.chance(0.8) else (classes,)
    x = operand(d, sizes, dtype)
    how = reduced(d)
    target = d.indices(classes, sizes[:-1])
    labels = d.fresh(sizes, "BOOL", "", "xxb")
    # A list of classes that ends at -1.
    places = d.distinct(classes, sizes, len(sizes) - 1) if len(sizes) > 1 else f"{target} * 0"
    ended = f"torch.where(torch.arange({classes}) < {d.rng.randint(0, classes)}, {places}, -1)"
    d.emit(d.rng.choice((
        f"F.multi_margin_loss({x}, {target}{how}, margin=0.5)",
        f"F.multi_margin_loss({x}, {target}{how}, p=2{class_weight(d, classes, dtype)})",
        f"F.multilabel_margin_loss({x}, {ended}{how})",
        f"F.multilabel_soft_margin_loss({x}, {labels}.to({x}.dtype){how})")))


@row("losses", 4)
def alignment(d):
    """Connectionist temporal classification, of log-probabilities and of other numbers."""
    dtype = d.rng.choice(UNHALVED)
    steps, classes = d.rng.choice((4, 6, 9, 12)), d.rng.choice((2, 3, 6))
    batch = d.rng.choice((1, 2, 3))
    length = small(d, steps // 2 + 1)
    x = operand(d, (steps, batch, classes), dtype)
    # Eager's gradient is the exponential of what is left where the scores of whole paths cancel.
    text = f"{x}.clamp(-100, 100)" if d.chance(0.35) else f"F.log_softmax({x}, 2)"
    # Eager reads beyond its tensors where a class is too large, as in a program made smaller.
    targets = f"({d.indices(classes - 1, (batch, length))} % ({x}.shape[2] - 1) + 1)"
    input_lengths = [d.rng.randint(max(1, steps // 2), steps) for _ in range(batch)]
    target_lengths = [d.rng.randint(0 if d.chance(0.1) else 1, length) for _ in range(batch)]
    more = ", zero_infinity=True" if d.chance(0.6) else ""
    lengths = f"{input_lengths}, {target_lengths}"
    if d.chance(0.5):
        lengths = f"torch.tensor({input_lengths}), torch.tensor({target_lengths})"
    d.emit(f"F.ctc_loss({text}, {targets}, {lengths}{more}{reduced(d)})")
