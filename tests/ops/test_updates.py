"""Weight updates on numbers and types that the samples do not have."""

import pytest
import torch

from tests.helpers import check_equal_bits
from tests.ops.sample import Sample, as_dtype, evaluate, randn, scalar
from tests.ops.samples.optimizer import DECAY, USUAL, adam, sgd


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("case", [sgd((0.1, 0.9, 0.0, 0.0)), adam(USUAL)], ids=lambda case: case.op)
def test_infinite_weights_that_do_not_decay(case):
    """They stay as they are in torch.optim, which multiplies no weight by a decay of zero."""
    operands = case.operands()
    operands[0][3, 5] = torch.inf
    results = evaluate(case, operands)
    for ours, expected in zip(results, case.reference(*operands), strict=True):
        torch.testing.assert_close(ours, expected)
    assert results[0][3, 5] == torch.inf


# Types of parameter, gradient and states; None stands for no state.
MIXED = [
    ("sgd", ("f16", "f32", "f32")), ("sgd", ("f32", "f16", "bf16")), ("sgd", ("bf16", "f16", None)),
    ("adam", ("f16", "f16", "f32", "f32", None)), ("adam", ("f32", "bf16", "f16", "f32", "f16")),
    ("adam", ("bf16", "f32", "f32", "bf16", "f32")),
]
FLAGS = {"sgd": {"nesterov": True}, "adam": {"decoupled_weight_decay": True}}


def mixed_case(kind, types, sizes):
    """A sample, and its operands of these types."""
    has_last = types[-1] is not None
    if kind == "sgd":
        flags = FLAGS[kind] if has_last else {}
        momentum = 0.9 if has_last else 0.0
        case = sgd((0.1, momentum, 0.0, 0.01), buffer=has_last, sizes=sizes, **flags)
    else:
        case = adam(DECAY, sizes=sizes, amsgrad=has_last, **FLAGS[kind])
    operands = case.operands()
    for place, name in enumerate(types):
        operands[place] = as_dtype(operands[place], name or "f32")
    return case, operands


def rounded_like(results, operands):
    """Results in float32, rounded to the types of the operands that they take the place of."""
    changed = [operands[0], *(x for x in operands[2:-2] if x is not None)]
    return [result.to(x.dtype) for result, x in zip(results, changed, strict=True)]


def is_near(ours, expected):
    """Equal but for the last bits of float32, which may decide how a 16-bit number is rounded."""
    step = {torch.float32: 2e-6, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}[ours.dtype]
    torch.testing.assert_close(ours.float(), expected.float(), rtol=step, atol=step / 8)
    if ours.dtype is not torch.float32 and ours.numel() > 1000:
        assert (ours != expected).sum() <= max(8, 0.001 * ours.numel())


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("sizes", [(1,), (37, 53), (50_000,)])
@pytest.mark.parametrize("kind, types", MIXED)
def test_tensors_of_different_types(kind, types, sizes):
    """Computed in float32 and rounded once, on any number of threads, in place or not."""
    case, operands = mixed_case(kind, types, sizes)
    results = evaluate(case, operands, threads=1)
    wide = case.reference(*(as_dtype(x, "f32") for x in operands))
    wide = wide if isinstance(wide, tuple) else (wide,)
    for ours, expected in zip(results, rounded_like(wide, operands), strict=True):
        is_near(ours, expected)
    for how in ({"threads": 3}, {"inplace": [0] + [-1] * (len(results) - 1)}):
        for ours, again in zip(results, evaluate(case, operands, **how), strict=True):
            check_equal_bits(again, ours)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("kind, types", [("sgd", ("f32", "f32", "f32")), *MIXED,
                                         ("adam", ("f16", "f16", "f16", "f16", None))])
def test_a_scale_multiplies_the_gradient_in_float32(kind, types):
    case, operands = mixed_case(kind, types, (37, 53))
    scale = scalar(2.0**-20)  # so small that a gradient of f16 would become 0
    scaled = [as_dtype(x, "f32") for x in operands]
    scaled[1] = scaled[1] * scale
    wide = case.reference(*scaled)
    wide = wide if isinstance(wide, tuple) else (wide,)
    results = evaluate(case, [*operands, scale])
    for ours, expected in zip(results, rounded_like(wide, operands), strict=True):
        is_near(ours, expected)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("kind, types", [("sgd", ("f32", "f32", "f32")), *MIXED])
def test_an_update_that_is_skipped(kind, types):
    """Infinities of the gradient reach nothing."""
    case, operands = mixed_case(kind, types, (37, 53))
    operands[1][0, 0] = torch.inf
    kept = [operands[0], *(x for x in operands[2:-2] if x is not None)]
    for how in ({}, {"inplace": [0] + [-1] * (len(kept) - 1)}):
        results = evaluate(case, [*operands, None, torch.tensor(True)], **how)
        for ours, before in zip(results, kept, strict=True):
            check_equal_bits(ours, before)
    assert not torch.equal(evaluate(case, [*operands, None, torch.tensor(False)])[0], operands[0])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("types", [("f32", "f16"), ("f16", "f32"), ("bf16", "f16"),
                                   ("f32", "f32"), ("f16", "f16")])
def test_accumulators_of_other_types(types):
    total, gradient = (as_dtype(randn(37, 53), name) for name in types)
    case = Sample("accumulate", lambda: [], {"scale": 0.25})
    for factor in (None, scalar(3.0)):
        ours, = evaluate(case, [total, gradient, factor])
        by = 0.25 if factor is None else 0.75
        is_near(ours, (total.float() + by * gradient.float()).to(total.dtype))


@pytest.mark.usefixtures("isa")
def test_adam_without_the_correction_of_its_bias():
    case = adam(USUAL)
    case.attrs["bias_correction"] = False
    param, grad, average, square, largest, step, hyper = operands = case.operands("f64")
    lr, beta1, beta2, eps, _ = hyper.tolist()
    results = evaluate(case, operands, "f64")
    average = beta1 * average + (1 - beta1) * grad
    square = beta2 * square + (1 - beta2) * grad**2
    expected = param - lr * average / (square.sqrt() + eps)
    for ours, value in zip(results, (expected, average, square), strict=True):
        torch.testing.assert_close(ours, value, rtol=1e-12, atol=1e-14)
