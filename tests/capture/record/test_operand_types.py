"""Types and numbers that eager refuses are refused, and others are not."""

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch._capture import capture
from poptorch._capture.record import operand_types
from tests.capture.common import Function

inf = float("inf")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.int32, torch.uint8,
          torch.bool)
PLACES = torch.tensor([0, 1])

OF_ONE = {
    "celu": F.celu,
    "glu": F.glu,
    "hardshrink": F.hardshrink,
    "logsigmoid": F.logsigmoid,
    "tanhshrink": F.tanhshrink,
    "softplus": F.softplus,
    "lerp": lambda x: torch.lerp(x, x, 0.5),
    "abs": torch.abs,
    "argmax": lambda x: x.argmax(0),
    "sum": lambda x: x.sum(0),
    "where": lambda x: torch.where(x > 0, x, 0),
    "take": lambda x: x[PLACES],
}
OF_TWO = {
    "cross": torch.linalg.cross,
    "mv": lambda x, y: torch.mv(x.expand(4, 3), y),
    "index_add": lambda x, y: x.index_add(0, PLACES, y[:2]),
    "index_copy": lambda x, y: x.index_copy(0, PLACES, y[:2]),
    "index_put": lambda x, y: x.index_put((PLACES,), y[:2]),
    "scatter": lambda x, y: x.scatter(0, PLACES, y[:2]),
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x, y),
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
    "gaussian_nll_loss": lambda x, y: F.gaussian_nll_loss(x, x, y),
    "soft_margin_loss": F.soft_margin_loss,
    "huber_loss": F.huber_loss,
    "l1_loss": F.l1_loss,
    "addcmul": lambda x, y: torch.addcmul(x, y, y),
    "add": torch.add,
    "sub_": lambda x, y: (x * 1).sub_(y),
}


def _class(call) -> type | None:
    try:
        call()
    except Exception as error:
        return type(error)
    return None


def _check(function, *tensors) -> bool:
    """Whether eager takes the call; ours takes or refuses it, too."""
    module = Function(lambda m, *x: function(*x))
    expected = _class(lambda: function(*(x.clone() for x in tensors)))
    if expected is None:
        assert capture(module, tensors, training=False)
        return True
    with pytest.raises(poptorch.Error) as raised:
        capture(module, tensors, training=False)
    assert isinstance(raised.value, expected)
    assert "test_operand_types.py" in raised.value.location
    return False


@pytest.mark.parametrize("name", OF_ONE)
def test_types_of_one_operand(name):
    found = [_check(OF_ONE[name], torch.ones(4, dtype=dtype)) for dtype in DTYPES]
    assert all(found[:3])


@pytest.mark.sampled
@pytest.mark.parametrize("name", OF_TWO)
def test_types_of_two_operands(name):
    found = [_check(OF_TWO[name], torch.ones(3, dtype=one), torch.ones(3, dtype=other))
             for one in DTYPES for other in DTYPES]
    assert any(found)


HALF, BYTE, FLOAT = (torch.ones(3, dtype=d) for d in (torch.float16, torch.uint8, torch.float32))
NUMBERS = {
    "pad": (lambda x: F.pad(x, (1, 1), value=300), BYTE, False),
    "pad below": (lambda x: F.pad(x, (1, 1), value=-1), BYTE, False),
    "pad halves": (lambda x: F.pad(x, (1, 1), value=1e6), HALF, False),
    "alpha": (lambda x: torch.add(x, x, alpha=300), BYTE, False),
    "clamp": (lambda x: x.clamp(max=1e9), HALF, False),
    "fill_": (lambda x: (x * 1).fill_(1e6), HALF, False),
    "full": (lambda x: torch.full((3,), 1e6, dtype=torch.float16) + x, HALF, False),
    "full_like": (lambda x: torch.full_like(x, 1e6), HALF, False),
    "masked_fill": (lambda x: x.masked_fill(x > 0, -1e9), HALF, False),
    "masked_fill of floats": (lambda x: x.masked_fill(x > 0, 1e40), FLOAT, False),
    "infinity": (lambda x: x.masked_fill(x > 0, -inf), HALF, True),
    "nan": (lambda x: x.masked_fill(x > 0, float("nan")), HALF, True),
    "product": (lambda x: x * 1e9, HALF, True),
    "sum": (lambda x: x + 300, BYTE, True),
    "comparison": (lambda x: x == 300, BYTE, True),
    "where": (lambda x: torch.where(x > 0, x, 1e9), HALF, True),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_beyond_a_type(name):
    function, x, is_accepted = NUMBERS[name]
    assert _check(function, x) is is_accepted
    # Sizes with which the short tensors that are tried first do not fit.
    assert _check(function, x.expand(2, 3, 5, 3)) is is_accepted


def test_words_name_the_types():
    module = Function(lambda m, x: F.celu(x))
    words = (r"\[celu\] \"elu_cpu\" not implemented for 'Int'\. Eager PyTorch refuses "
             r"torch\.nn\.functional\.celu\(int32\[2, 3\]")
    with pytest.raises(poptorch.Error, match=words):
        capture(module, (torch.ones(2, 3, dtype=torch.int32),), training=False)


def test_gradients_are_checked_too():
    class Add(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return F.hardshrink(gradient.to(torch.int32)).float()

    module = Function(lambda m: poptorch.identity_loss(Add.apply(m.p).sum(), "none"),
                      {"p": torch.ones(3)})
    with pytest.raises(poptorch.Error, match="not implemented for 'Int'"):
        capture(module, (), training=True)


def test_answers_are_kept_for_some_kinds_only(monkeypatch):
    monkeypatch.setattr(operand_types, "_KEPT", 4)

    def forward(m, x):
        return sum(x + i for i in range(10))

    assert capture(Function(forward), (torch.ones(2, dtype=torch.int32),), training=False)
