"""What masks select, and packed sequences: sizes that follow from values."""

from tests.fuzz.programs.vocabulary.base import dtype_of, operand, row
from tests.fuzz.programs.vocabulary.indexing import changed


def mask_for(d, x):
    """An index with a mask of the dimensions of ``x`` or of some of them, and the mask's name."""
    shape = d.env[x].shape
    first = d.rng.choice((0, 0, 0, min(1, len(shape) - 1)))
    last = d.rng.choice((len(shape), len(shape), first + 1))
    if first == 0 and last == len(shape) and d.chance(0.4):
        m = d.emit(f"{x} > {d.rng.choice(('0', '0.3', '-1'))}")[0]
    else:
        m = d.fresh(shape[first:last], "BOOL", "", "xb")
    used = f"{m}.byte()" if d.chance(0.1) else f"~{m}" if d.chance(0.1) else m
    return ":, " * first + used


@row("indexing", 6)
def selected(d):
    """A read by a mask, operations on single elements, a write by the same mask."""
    x = changed(d, 1)
    at, y = mask_for(d, x), operand(d, d.env[x].shape, dtype_of(d, x))
    if d.chance(0.3):
        d.change(f"{x}[{at}] {d.rng.choice(('+=', '*=', '-='))} {d.rng.choice(('2', '3', '0'))}", x)
        return
    if d.chance(0.2):
        d.emit(d.rng.choice((f"{x}[{at}].sum()", f"{x}[{at}].mean()",
                             f"F.mse_loss({x}[{at}], {y}[{at}], reduction='sum')",
                             f"F.smooth_l1_loss({x}[{at}], {y}[{at}])")))
        return
    value = d.rng.choice((f"{x}[{at}]", f"{x}[{at}]", f"{y}[{at}]"))
    for _ in range(d.rng.choice((1, 1, 2))):
        value = d.rng.choice((
            f"{value} * 2", f"{value} + {y}[{at}]", f"({value}).abs()", f"-({value})",
            f"torch.sigmoid({value})", f"({value}).clamp(-1, 1)", f"F.relu({value})",
            f"torch.where({value} > 0, {y}[{at}], {value})", f"({value}).tanh().to({x}.dtype)",
            f"torch.maximum({value}, {y}[{at}])"))
    if d.chance(0.2):
        d.change(f"{x}.index_put_(({at.replace(':, ', 'slice(None), ')},), {value})", x)
    else:
        d.change(f"{x}[{at}] = {value}", x)


@row("layers", 4)
def packed(d):
    """A recurrent layer on packed sequences, the lengths compiled in or values of the program."""
    kind = d.rng.choice(("LSTM", "GRU", "RNN"))
    steps, batch, width = d.rng.randint(1, 5), d.rng.choice((1, 2, 3)), d.rng.choice((1, 2, 4))
    first, both, hidden = d.chance(0.4), d.chance(0.4), d.rng.choice((1, 2, 3, 8))
    lengths = [steps, *(d.rng.randint(1, steps) for _ in range(batch - 1))]
    if is_sorted := d.chance(0.4):
        lengths.sort(reverse=True)
    else:
        d.rng.shuffle(lengths)
    dtype, text = d.dtype(), str(lengths)
    if d.chance(0.6):
        text = f"torch.tensor({lengths}) + 0 * {d.fresh((batch,), 'I64', '', 'xb')}"
    more = f", batch_first={first}"
    options = f", bidirectional={both}{more}" + ", num_layers=2" * d.chance(0.2)
    if kind == "LSTM" and hidden > 1 and d.chance(0.2):
        options += ", proj_size=1"
    x = operand(d, (batch, steps, width) if first else (steps, batch, width), dtype)
    m = d.module(f"nn.{kind}({width}, {hidden}{options}).to({dtype})")
    total = d.rng.choice((steps, steps, steps + 2, None))
    ends = "*s" if kind == "LSTM" else "s"
    d.emit(f"(lambda y, s: (nn.utils.rnn.pad_packed_sequence(y{more}, total_length={total})[0], "
           f"{ends}))(*{m}(nn.utils.rnn.pack_padded_sequence({x}, {text}{more}, "
           f"enforce_sorted={is_sorted})))", 3 if kind == "LSTM" else 2)
