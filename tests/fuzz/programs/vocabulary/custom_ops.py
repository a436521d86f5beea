"""Custom ops in C++ and Python, and operations by the names that ONNX gives them."""

from tests.fuzz.programs.vocabulary.base import Rejected, dtype_of, operand, row


@row("custom ops", 4)
def in_cpp(d):
    x = d.floating()
    if dtype_of(d, x) == "F64":  # the op gets the device's type: its results are float32
        raise Rejected
    if d.chance(0.5):
        d.emit(f"custom.cube({x}, {d.rng.choice((0.5, 1.0, -2.0))})")
        return
    y = operand(d, d.env[x].shape, dtype_of(d, x))
    d.emit(f"custom.pair({x}, {y})", 2)


@row("custom ops", 4)
def in_python(d):
    kind = d.rng.choice(("wave", "wave", "sums", "increased"))
    if kind == "wave":
        d.emit(f"custom.wave({d.floating()}, {d.rng.choice((0.5, -1.5))})")
    elif kind == "sums":
        d.emit(f"custom.sums({d.floating(1)})", 2)
    else:
        d.emit(f"custom.increased({d.floating()}, 0.25)")


@row("custom ops", 2)
def by_name(d):
    x = d.floating(1)
    y = d.partner(x, dtype_of(d, x))
    last = d.env[x].dim() - 1
    d.emit(d.rng.choice((
        f"custom.named('LeakyRelu', 6, [{x}], alpha=0.2)",
        f"custom.named('ThresholdedRelu', 10, [{x}], alpha=0.5)",
        f"custom.named('HardSigmoid', 6, [{x}])",
        f"custom.named('ReduceSumSquare', 1, [{x}], axes=[{last}], keepdims=0)",
        f"custom.named('LogSoftmax', 1, [{x}], axis={last})",
        f"custom.named('Mean', 8, [{x}, {y}])",
        f"custom.named('Clip', 6, [{x}], min=-0.5, max=0.75)",
        f"custom.named('Transpose', 1, [{x}])")))
