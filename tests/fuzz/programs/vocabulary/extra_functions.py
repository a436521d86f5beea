"""Functions that PyTorch lacks, and functions of the host: the same outside of poptorch."""

from tests.fuzz.programs.vocabulary.base import dtype_of, finite, operand, row
from tests.fuzz.programs.vocabulary.indexing import a_dim, changed, indexed


def a_start(d, size, part):
    """The text of a start of a part, now and then counted from the end."""
    if part == size and d.chance(0.5):
        return "torch.tensor(0)"
    name = d.indices(size - part + 1, (1,), d.rng.choice(("I64", "I32")))
    return f"({name} - {size})" if d.chance(0.3) else name


@row("extra functions", 5)
def dynamic_part(d):
    """A slice from a start that is known at run time on, or something put there."""
    if d.chance(0.5):
        x = indexed(d)
        dim, shown = a_dim(d, x)
        size = d.env[x].shape[dim]
        part = d.rng.choice([n for n in range(1, size + 1) if size % n == 0])
        d.emit(f"poptorch.dynamic_slice({x}, {shown}, {a_start(d, size, part)}, {part}, "
               f"{d.rng.choice((1, 1, 2, 3))})")
        return
    x = changed(d)
    dim, shown = a_dim(d, x)
    shape = d.env[x].shape
    part = d.rng.randint(1, shape[dim])
    src = operand(d, (*shape[:dim], part, *shape[dim + 1:]), dtype_of(d, x))
    d.emit(f"poptorch.dynamic_update({x}, {src}, {shown}, {a_start(d, shape[dim], part)}, {part})")


@row("extra functions", 4)
def host_function(d):
    """A function that runs in eager, inside the program."""
    x = d.floating()
    kind = d.rng.choice(("one", "one", "two", "values"))
    if kind == "one":
        function = d.rng.choice(("torch.sin", "F.softplus", "F.relu", "lambda a: a * 2",
                                 "lambda a: a.flip(0) if a.dim() else a + 1"))
        d.emit(f"poptorch.CPU({function}, 'host')({x})")
    elif kind == "two":
        y = d.partner(x)
        d.emit(f"poptorch.CPU(lambda a, b: (a + b, a.sum()), 'host')({x}, {y})", 2)
    else:
        d.emit(f"poptorch.CPU(lambda a: a * (1 + a.detach().double().numpy().size), 'host')({x})")


@row("extra functions", 1)
def printed(d):
    """A print of as little as there can be."""
    d.emit(f"poptorch.ipu_print_tensor({d.any()}, 'p', {d.chance(0.5)}, 0, 0)")


@row("extra functions", 2)
def decoding(d):
    """The labellings of sequences."""
    def fits(t):
        return t.is_floating_point() and t.dim() == 3 and t.numel() < 500 and 1 < t.shape[2] < 30
    x = d.pick(fits) if d.tensors(fits) else d.fresh(
        (d.rng.randint(1, 9), d.rng.randint(1, 3), d.rng.randint(2, 6)), "F32")
    time, batch, classes = d.env[x].shape
    lengths = d.indices(time + 1, (batch,), d.rng.choice(("I64", "I32")))
    # Quarters, so that equal totals, where the order of labels decides, are equal on both sides.
    probs = f"({finite(d, x)}.to(F32).clamp(-8, 0) * 4).round() / 4"
    d.emit(f"poptorch.ctc_beam_search_decoder({probs}, {lengths}, {d.rng.randrange(classes)}, "
           f"{d.rng.choice((2, 5, 100))}, {d.rng.choice((1, 2))})", 3)


@row("extra functions", 3)
def points(d):
    """Positions of points; distances are those of whole numbers, so that they are exact."""
    def fits(t):
        return t.is_floating_point() and t.dim() == 2 and 0 < t.numel() < 2000
    x = d.pick(fits) if d.tensors(fits) else d.fresh(
        (d.rng.randint(1, 20), d.rng.randint(1, 3)), "F32")
    count, width = d.env[x].shape
    whole = f"{finite(d, x)}.detach().clamp(-8, 8).round()"
    if d.chance(0.5):
        cut = d.rng.randint(0, count)
        d.emit(f"poptorch.fps({whole}, [0, {cut}, {count}], {d.rng.choice((0.2, 0.5, 1.0))})")
        return
    y = d.fresh((d.rng.randint(1, 20), width), dtype_of(d, x))
    d.emit(f"poptorch.nearest({whole}, {y}.clamp(-8, 8).round())")
