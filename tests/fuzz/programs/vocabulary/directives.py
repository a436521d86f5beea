"""Directives: functions that say how something is computed. No value changes."""

from tests.fuzz.programs.vocabulary.base import Rejected, a_size, dtype_of, operand, row
from tests.fuzz.programs.vocabulary.convolutions import convolved


def marked(d, text):
    """A tensor about which one of the functions says something."""
    return d.rng.choice(("poptorch.set_available_memory({}, 0.3)", "poptorch.nop({})",
                         "poptorch.recomputationCheckpoint({})")).format(text)


@row("directives", 4)
def of_a_result(d):
    d.emit(marked(d, d.any()))


@row("directives", 3)
def of_an_operation(d):
    kind = d.rng.choice(("linear", "linear", "convolution", "index"))
    if kind == "convolution":
        text = convolved(d)[0]
    elif kind == "index":
        x = d.floating(1, 3)
        if d.env[x].shape[0] == 0:
            x = operand(d, (3, 2), d.dtype())
        text = f"{x}[{d.indices(d.env[x].shape[0], (a_size(d),))}]"
    else:
        x = d.floating(1, 3)
        weight = operand(d, (a_size(d), d.env[x].shape[-1]), dtype_of(d, x), "wwwxb")
        text = f"F.linear({x}, {weight})"
    d.emit(f"{marked(d, text)}{d.rng.choice(('', '.relu()', ' * 2'))}")


@row("directives", 2)
def inside_of_scopes(d):
    """Names and hints, one in the other or one after the other."""
    scope = d.rng.choice(("poptorch.NameScope('a')",
                          "poptorch.Attribute(__outline={'layer': 'a'})"))
    x = d.floating()
    inner = d.rng.choice((f"{x} * 2", f"within(poptorch.NameScope('b'), lambda: {x}.sin())",
                          f"within(poptorch.Attribute(a='b'), lambda: {x}.exp())"))
    d.emit(f"within({scope}, lambda: {inner})")


@row("directives", 1)
def of_a_serialized_layer(d):
    x = d.floating(2, 3)
    inputs, parts = d.env[x].shape[-1], d.rng.choice((1, 2, 3))
    mode = d.rng.choice(("ReducingDim", "OutputChannels"))
    outputs = parts * d.rng.randint(1, 4)
    factor = parts if mode == "OutputChannels" or inputs % parts == 0 else 1
    layer = d.module(f"poptorch.SerializedLinear({inputs}, {outputs}, {factor}, "
                     f"{d.chance(0.5)}, poptorch.MatMulSerializationMode.{mode})"
                     f".to({dtype_of(d, x)})")
    d.emit(f"{layer}({x})")


@row("directives", 1)
def of_a_marked_loss(d):
    """In inference: the loss of training is the program's."""
    if d.training:
        raise Rejected
    d.emit(f"poptorch.identity_loss({d.floating()}, '{d.rng.choice(('sum', 'mean', 'none'))}')")


@row("directives", 1)
def of_an_input(d):
    """Nothing may be computed from the input before."""
    x = d.fresh(d.sizes(1), d.dtype(), kinds="x")
    d.emit(f"poptorch.set_overlap_for_input({x}, poptorch.OverlapMode.NoOverlap) * 2")


@row("directives", 2)
def of_convolutions(d):
    """Two convolutions together, in one line. Their sums stay in float32: eager has no others."""
    settings = d.rng.choice(("", ".enableConvDithering([True, False])", ".cycleBackOff(0.2)",
                             ".planType(poptorch.MultiConvPlanType.Serial)",
                             ".availableMemoryProportions((0.1, 0.3))",
                             ".partialsTypes(torch.float32).perConvReservedTiles(8)"))
    d.emit(f"within(poptorch.MultiConv(){settings}, lambda: ({convolved(d)[0]}, "
           f"{convolved(d)[0]}))", 2)
