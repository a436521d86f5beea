"""Recurrent kernels against torch.nn, forward and backward."""

import itertools

import pytest
import torch

import poptorch
from poptorch import _C
from tests import helpers

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
MODULES = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}


class Layer:
    """Operands of one layer, and what torch makes of them."""

    def __init__(self, kind, sizes, bias=True, reverse=False, nonlinearity="tanh"):
        self.kind, self.reverse, self.nonlinearity = kind, reverse, nonlinearity
        time, batch, width, hidden = sizes
        options = {"nonlinearity": nonlinearity} if kind == "rnn" else {}
        self.module = MODULES[kind](width, hidden, bias=bias, **options).double()
        self.has_bias = bias
        self.states = [torch.randn(batch, hidden).double() for _ in range(1 + (kind == "lstm"))]
        self.x = torch.randn(time, batch, width).double()

    def to(self, dtype):
        """Operands of the forward row."""
        biases = [self.module.bias_ih_l0, self.module.bias_hh_l0] if self.has_bias else []
        weights = [self.module.weight_ih_l0, self.module.weight_hh_l0, *biases]
        operands = [self.x, *self.states, *weights]
        operands = [t.detach().float().to(dtype) for t in operands]
        return operands + [None] * (2 - len(biases))

    def attrs(self, backward=False):
        attrs = {"reverse": self.reverse}
        if self.kind == "rnn":
            attrs["nonlinearity"] = self.nonlinearity
        return attrs | ({"has_bias": self.has_bias} if backward else {})

    def torch(self, dtype, seeds):
        """y, the last states, and the gradients of all operands under the given gradients."""
        operands = [None if t is None else t.requires_grad_() for t in self.to(dtype)]
        x, *rest = operands
        states, weights = rest[: len(self.states)], rest[len(self.states) :]
        module = self.module.to(dtype)
        names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
        given = {n: w for n, w in zip(names, weights, strict=True) if w is not None}
        start = tuple(s[None] for s in states) if self.kind == "lstm" else states[0][None]
        flipped = x.flip(0) if self.reverse else x
        y, last = torch.func.functional_call(module, given, (flipped, start))
        y = y.flip(0) if self.reverse else y
        outputs = [y, *(s[0] for s in (last if self.kind == "lstm" else [last]))]
        pairs = [(o, g.to(dtype)) for o, g in zip(outputs, seeds, strict=True) if g is not None]
        wanted = [t for t in operands if t is not None]
        grads = torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs])
        self.module.double()
        return [o.detach() for o in outputs], list(grads)

    def ours(self, dtype, seeds, threads=1, inplace=False):
        """The same from the two rows, with results in operands' memory if they may be there."""
        operands = self.to(dtype)
        arrays = [None if t is None else t.numpy() for t in operands]
        results = _C.evaluate(self.kind, arrays, self.attrs(), threads=threads)
        outputs = results[: 1 + len(self.states)]
        kept = [results[0], *results[len(outputs) :]]
        grads = [None if g is None else g.to(dtype).numpy() for g in seeds]
        back = [*grads, *arrays[: 3 + len(self.states)], *kept]
        attrs = self.attrs(backward=True)
        grads = _C.evaluate(f"{self.kind}_backward", back, attrs, threads=threads,
                            inplace=IN_PLACE[self.kind] if inplace else [])
        if self.kind == "gru":
            grads = grads[:-1]  # the last one is work memory
        if not self.has_bias:
            assert all(g.size == 0 for g in grads[3 + len(self.states) :])
            grads = grads[: 3 + len(self.states)]
        elif self.kind != "gru":
            grads = [*grads, grads[-1]]
        return [torch.from_numpy(t) for t in outputs], [torch.from_numpy(t) for t in grads]

    def seeds(self, which):
        """Gradients of y and of the last states; `which` says which ones are there."""
        shapes = [(*self.x.shape[:2], self.states[0].shape[1]), *(s.shape for s in self.states)]
        return [torch.randn(s) if there else None for s, there in zip(shapes, which, strict=True)]


def check(layer, which, threads=1):
    seeds = layer.seeds(which)
    reference = layer.torch(torch.float64, seeds)
    helpers.check_wide(layer.ours(torch.float64, seeds), reference)
    eager = helpers.flatten(layer.torch(torch.float32, seeds))
    expected = helpers.flatten(reference)
    for name, ours in helpers.flatten(layer.ours(torch.float32, seeds, threads)).items():
        helpers.check_op_sample(ours, eager[name], expected[name], name)


# dx in the place of dy, and gru's sums in that of what its forward row keeps.
IN_PLACE = {"lstm": [0], "gru": [0, -1, -1, -1, -1, -1, 7], "rnn": [0]}

KINDS = [("lstm", "tanh"), ("gru", "tanh"), ("rnn", "tanh"), ("rnn", "relu")]


@pytest.mark.parametrize(("kind", "nonlinearity"), KINDS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bias", [True, False])
def test_layer(kind, nonlinearity, reverse, bias):
    layer = Layer(kind, (7, 5, 6, 9), bias, reverse, nonlinearity)
    check(layer, [True] * (1 + len(layer.states)))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", GATES)
def test_results_in_the_place_of_operands(kind, reverse):
    layer = Layer(kind, (5, 3, 24, 24), reverse=reverse)
    seeds = layer.seeds([True] * (1 + len(layer.states)))
    for dtype in (torch.float32, torch.float64):
        there, apart = (layer.ours(dtype, seeds, threads=2, inplace=i) for i in (True, False))
        for a, b in zip(there[1], apart[1], strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("sizes", [(1, 1, 5, 8), (1, 3, 4, 17), (12, 1, 8, 64), (3, 20, 33, 48)])
@pytest.mark.parametrize(("kind", "nonlinearity"), KINDS)
def test_sizes(kind, nonlinearity, sizes):
    layer = Layer(kind, sizes, nonlinearity=nonlinearity)
    check(layer, [True] * (1 + len(layer.states)))


# Around whole vectors and panels of hidden units, groups of rows, and 256 terms of a sum. Not one
# row or two of so many terms: eager's error, by which ours is judged, is next to nothing there at
# times.
PACKED_SIZES = [(2, 13, 300, 70), (3, 7, 5, 33), (2, 25, 16, 130), (2, 6, 257, 15),
                (2, 1, 33, 15), (2, 66, 3, 300)]


@pytest.mark.sampled
@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("sizes", PACKED_SIZES, ids=str)
@pytest.mark.parametrize("kind", GATES)
def test_packed_weights(kind, sizes):
    layer = Layer(kind, sizes, reverse=True)
    check(layer, [True] * (1 + len(layer.states)))


@pytest.mark.usefixtures("isa")
def test_numbers_without_an_end_stay_in_their_row():
    """Infinities and NaN reach their entry of the batch and no others."""
    layer = Layer("rnn", (3, 14, 20, 37), nonlinearity="relu")
    layer.x[1, 3, 5], layer.x[1, 13, 0] = torch.inf, torch.nan
    outputs, _ = layer.ours(torch.float32, layer.seeds([True] * 2))
    rows = outputs[0].isfinite().all(2)
    assert rows[0].all() and rows[1:, [e for e in range(14) if e not in (3, 13)]].all()
    assert not rows[1:, 3].any() and not rows[1:, 13].any()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_states_that_are_nan(dtype):
    """They pass a ReLU as they are, as in eager."""
    layer = Layer("rnn", (3, 14, 20, 37), nonlinearity="relu")
    layer.x[1, 3, 5] = torch.nan
    seeds = layer.seeds([True] * 2)
    _, expected = layer.torch(torch.float64, seeds)
    _, found = layer.ours(dtype, seeds)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gates_of_infinite_sums_are_shut(dtype):
    layer = Layer("lstm", (2, 3, 5, 20))
    layer.x.abs_()
    layer.x[0, 1, 0] = torch.inf
    layer.states[1][:] = torch.inf
    outputs, _ = layer.ours(dtype, layer.seeds([True] * 3))
    expected, _ = layer.torch(torch.float64, layer.seeds([True] * 3))
    assert expected[2][1].isnan().any()
    for ours, theirs in zip(outputs, expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("kind", GATES)
def test_scratch_holds_the_weights_once(kind):
    """Beside the packed weights (whole vectors of them) there are products and little else."""
    module = MODULES[kind](96, 240).eval()
    model = poptorch.inferenceModel(module, helpers.quiet_options())
    x = torch.randn(16, 8, 96)
    model.compile(x)
    weights = 4 * sum(p.numel() for p in module.parameters())
    products = 4 * (16 * 8 + 8 + 5 * 8) * GATES[kind] * 240
    assert model.memory_report()["scratch"] <= 1.1 * weights + products + 2**14


@pytest.mark.sampled
@pytest.mark.parametrize("switch", ["packed_gemm", "recurrent_entries"])
def test_switches(switch):
    """Weights that are not packed, and threads that share units: in a process of its own."""
    code = """
import torch
from tests.kernels.test_recurrent import GATES, Layer, check
torch.manual_seed(3)
for kind in GATES:
    check(layer := Layer(kind, (3, 24, 40, 128)), [True] * (1 + len(layer.states)), threads=2)
    print("same")
"""
    assert helpers.run_python(code, POPTORCH_OFF=switch).split() == ["same"] * len(GATES)


@pytest.mark.parametrize("kind", GATES)
def test_absent_gradients(kind):
    layer = Layer(kind, (4, 3, 5, 6))
    count = 1 + len(layer.states)
    for which in itertools.product([False, True], repeat=count):
        if any(which):
            check(layer, which)


# Threads share the entries of the batch, but not with too few of them or too many weights.
SHARED_SIZES = [(6, 24, 16, 128), (3, 37, 270, 200), (3, 17, 8, 330)]


@pytest.mark.sampled
@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", SHARED_SIZES, ids=str)
@pytest.mark.parametrize(("kind", "nonlinearity"), KINDS)
def test_results_do_not_depend_on_threads(kind, nonlinearity, sizes, reverse):
    layer = Layer(kind, sizes, reverse=reverse, nonlinearity=nonlinearity)
    seeds = layer.seeds([True] * (1 + len(layer.states)))
    one = layer.ours(torch.float32, seeds, threads=1)
    for threads in (2, 3):
        helpers.check_equal_bits(layer.ours(torch.float32, seeds, threads=threads), one)


def test_large_sums_saturate():
    layer = Layer("lstm", (3, 4, 5, 6))
    layer.x *= 1e4
    outputs, grads = layer.ours(torch.float32, layer.seeds([True] * 3))
    assert all(t.isfinite().all() for t in outputs + grads)
