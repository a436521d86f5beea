"""Products in parts: values and gradients as eager's, the program, what it saves, errors."""

import pytest
import torch
from torch import nn

import poptorch
from poptorch import MatMulSerializationMode as Mode
from tests.capture.common import Function
from tests.helpers import check_narrow, quiet_options

CUTS = [Mode.InputChannels, Mode.ReducingDim, Mode.OutputChannels]
SHAPES = [((8, 12), (12, 4)), ((3, 8, 12), (12, 4)), ((2, 3, 8, 12), (12, 4)),
          ((3, 8, 12), (3, 12, 4)), ((2, 1, 8, 12), (3, 12, 4)), ((8, 12), (3, 12, 4))]


def trained(forward, x, w):
    """Result and gradient of a training step through poptorch."""
    model = poptorch.trainingModel(Function(forward, {"w": w.clone()}), quiet_options())
    with poptorch.testing.keep_gradients():
        y, _ = model(x)
    return (y, poptorch.testing.gradients(model)["w"]), model


def eager(forward, x, w):
    module = Function(forward, {"w": w})
    y, loss = module(x)
    loss.backward()
    return y.detach(), module.w.grad


def step_of(mode, factor, keep_precision=False):
    def forward(m, x):
        y = poptorch.serializedMatMul(x.tanh(), m.w, mode, factor, keep_precision)
        return y, poptorch.identity_loss(y.sin().mean(), "none")

    return forward


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
@pytest.mark.parametrize("mode", CUTS)
def test_values_and_gradients_are_those_of_one_product(mode, sizes):
    x, w = (torch.randn(size, dtype=torch.float64) for size in sizes)
    ours, model = trained(step_of(mode, 4), x.float(), w.float())
    check_narrow(ours, [eager(step_of(Mode.Disabled, 0), x.float(), w.float())],
                 eager(step_of(Mode.Disabled, 0), x.float().double(), w.float().double()))
    lines = [line for line in model.ir("rewrite").splitlines() if "serialization" in line]
    assert sum('part="backward"' not in line for line in lines) == 4
    assert sum('part="backward"' in line for line in lines) == 4


def test_the_gradient_of_the_left_side():
    def forward(m, x):
        y = poptorch.serializedMatMul(m.w, x, Mode.InputChannels, 4)
        return y, poptorch.identity_loss(y.sin().mean(), "none")

    x, w = torch.randn(12, 4), torch.randn(8, 12)
    ours, _ = trained(forward, x, w)
    check_narrow(ours, [eager(forward, x, w)], eager(forward, x.double(), w.double()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("keep_precision", [False, True])
@pytest.mark.parametrize("mode", CUTS)
def test_halves(mode, keep_precision, dtype):
    x, w = torch.randn(8, 12).to(dtype), torch.randn(12, 4).to(dtype)
    forward = step_of(mode, 4, keep_precision)
    ours, _ = trained(forward, x, w)
    assert ours[0].dtype is ours[1].dtype is dtype
    # Of four sums, three are rounded before they are added.
    roundings = 0 if keep_precision else 3
    theirs, reference = eager(forward, x, w), eager(forward, x.double(), w.double())
    for one, half, other in zip(ours, theirs, reference):
        eps = torch.finfo(dtype).eps * other.abs().max()
        limit = 4 * (half - other).abs().max() + (1 + roundings) * eps
        assert (one - other).abs().max() <= limit


def test_precision_is_kept_in_float32():
    """Parts that cancel: with sums in float16 what is left is lost."""
    x = torch.tensor([[1.0, 2048.0, 1.0, -2048.0]], dtype=torch.float16)
    w = torch.ones(4, 1, dtype=torch.float16)

    def product(keep_precision):
        model = poptorch.inferenceModel(Function(
            lambda m, x, w: poptorch.serializedMatMul(x, w, Mode.ReducingDim, 4, keep_precision)),
            quiet_options())
        return model(x, w).item()

    assert product(True) == 2.0
    assert product(False) != 2.0


@pytest.mark.parametrize(("mode", "factor"), [(Mode.Disabled, 0), (Mode.Disabled, 5),
                                              *((mode, n) for mode in CUTS for n in (0, 1))])
def test_without_parts_it_is_one_product(mode, factor):
    x, w = torch.randn(8, 12), torch.randn(12, 4)
    ours, model = trained(step_of(mode, factor), x, w)
    plain, _ = trained(step_of(Mode.Disabled, 0), x, w)
    assert all(map(torch.equal, ours, plain))
    assert "serialization" not in model.ir("translate")


@pytest.mark.parametrize("sizes", [((2, 4, 0), (2, 0, 8)), ((2, 4, 0), (0, 8)), ((0, 4, 6), (6, 8)),
                                   ((0, 4, 6), (0, 6, 8)), ((2, 3, 4, 6), (6, 0))], ids=str)
def test_empty_products(sizes):
    x, w = (torch.randn(size) for size in sizes)
    for mode in CUTS:
        factor = 2 if mode is not Mode.ReducingDim or x.shape[-1] else 0
        model = poptorch.inferenceModel(Function(
            lambda m, x, w, mode=mode, n=factor: poptorch.serializedMatMul(x, w, mode, n)),
            quiet_options())
        assert torch.equal(model(x, w), torch.matmul(x, w))


def test_whole_numbers():
    x, w = torch.randint(-9, 9, (4, 6)), torch.randint(-9, 9, (6, 8))
    for mode in CUTS:
        model = poptorch.inferenceModel(Function(
            lambda m, x, w, mode=mode: poptorch.serializedMatMul(x, w, mode, 2)), quiet_options())
        assert torch.equal(model(x, w), (x @ w).int())


def test_autocast():
    def forward(m, x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return poptorch.serializedMatMul(x, w, Mode.OutputChannels, 2)

    x, w = torch.randn(4, 6), torch.randn(6, 8)
    ours = poptorch.inferenceModel(Function(forward), quiet_options())(x, w)
    assert ours.dtype is torch.bfloat16
    torch.testing.assert_close(ours, forward(None, x, w))


@pytest.mark.parametrize("mode", CUTS)
def test_the_report_shows_what_it_saves(mode):
    """16-bit floats: a product converts its operands, and each part those of its own."""
    x, w = torch.randn(256, 512).half(), torch.randn(512, 1024).half()
    whole = trained(step_of(Mode.Disabled, 0), x, w)[1].memory_report()
    parts = trained(step_of(mode, 4), x, w)[1].memory_report()
    assert parts["scratch"] < 0.75 * whole["scratch"]
    assert parts["arena"] < whole["arena"]


class Tied(nn.Module):
    """An embedding whose transposed table is the output layer, on two IPUs."""

    def __init__(self):
        super().__init__()
        self.table, self.middle = nn.Embedding(12, 8), nn.Linear(8, 8)

    def forward(self, words):
        with poptorch.Block("embedding", ipu_id=0):
            x = self.table(words)
        with poptorch.Block("middle", ipu_id=1):
            x = self.middle(x).relu()
        with poptorch.Block("head", ipu_id=0):
            scores = poptorch.serializedMatMul(x, self.table.weight.t(), Mode.OutputChannels, 3)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), words.flatten())
        return scores, loss


def test_a_tied_weight_on_several_ipus():
    torch.manual_seed(1)
    net = Tied()
    words = torch.randint(0, 12, (2, 5))
    expected, loss = net(words)
    loss.backward()
    options = quiet_options().setExecutionStrategy(poptorch.ShardedExecution())
    model = poptorch.trainingModel(net, options)
    with poptorch.testing.keep_gradients():
        scores, _ = model(words)
    torch.testing.assert_close(scores, expected.detach())
    torch.testing.assert_close(poptorch.testing.gradients(model)["table.weight"],
                               net.table.weight.grad)


@pytest.mark.parametrize("bias", [False, True])
def test_serialized_linear(bias):
    layer = poptorch.SerializedLinear(6, 8, factor=4, bias=bias)
    assert isinstance(layer, nn.Linear)
    assert set(layer.state_dict()) == ({"weight", "bias"} if bias else {"weight"})
    x = torch.randn(3, 5, 6)
    expected = nn.functional.linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(layer(x), expected)
    model = poptorch.inferenceModel(layer, quiet_options())
    torch.testing.assert_close(model(x), expected)
    assert model.ir("rewrite").count("serialization=[2, 4]") == 4
    halves = poptorch.inferenceModel(layer, quiet_options())(x.half())
    assert halves.dtype is torch.float16  # as of torch.nn.Linear on the device


@pytest.mark.parametrize(("arguments", "kind", "words"), [
    ((torch.ones(4, 6), torch.ones(6, 8), 0, 2), TypeError,
     r"\[serializedMatMul\] expected one of MatMulSerializationMode.InputChannels"),
    (([[1.0]], torch.ones(6, 8), Mode.ReducingDim, 2), TypeError, r"lhs .* tensor, got list"),
    ((torch.ones(6), torch.ones(6, 8), Mode.ReducingDim, 2), poptorch.Error,
     r"lhs has the shape \[6\], but a matrix has at least 2 dimensions"),
    ((torch.ones(4, 6), torch.ones(6), Mode.ReducingDim, 2), poptorch.Error, "rhs has the shape"),
    ((torch.ones(4, 6), torch.ones(6, 8), Mode.InputChannels, 3), poptorch.Error,
     "factor is 3, and MatMulSerializationMode.InputChannels cuts dimension -2 of lhs, of size 4"),
    ((torch.ones(4, 6), torch.ones(6, 8), Mode.ReducingDim, 4), poptorch.Error,
     "factor is 4, .* cuts dimension -1 of lhs, of size 6"),
    ((torch.ones(4, 6), torch.ones(6, 8), Mode.OutputChannels, -2), poptorch.Error,
     "factor is -2, .* cuts dimension -1 of rhs, of size 8"),
    ((torch.ones(4, 6), torch.ones(6, 8), Mode.OutputChannels, 2.0), TypeError,
     "factor .* int, got float 2.0"),
    ((torch.ones(4, 6), torch.ones(5, 8), Mode.OutputChannels, 2), RuntimeError,
     r"shapes cannot be multiplied \(4x6 and 5x8\)"),
])
@pytest.mark.parametrize("is_captured", [False, True])
def test_what_is_refused(arguments, kind, words, is_captured):
    def forward(m, x):
        return poptorch.serializedMatMul(*arguments)

    with pytest.raises(kind, match=words):
        if is_captured:
            poptorch.inferenceModel(Function(forward), quiet_options())(torch.ones(1))
        else:
            forward(None, None)


def test_operands_of_two_types_are_refused_as_by_torch():
    model = poptorch.inferenceModel(Function(
        lambda m, x, w: poptorch.serializedMatMul(x, w, Mode.OutputChannels, 2)), quiet_options())
    with pytest.raises(RuntimeError, match="same dtype, but got: (float|Half) != (double|Float)|"
                       "same dtype, but got: torch.float16 != torch.float32"):
        model(torch.ones(4, 6).half(), torch.ones(6, 8))
