"""Floating-point exceptions: each condition is an error that names what did it; masks are not."""

import math

import pytest
import torch
from torch.nn import functional

import poptorch
from tests.helpers import quiet_options
from tests.networks import harness
from tests.networks.zoo import build

INF, NAN = math.inf, math.nan
HALF = torch.float16


class Formula(torch.nn.Module):
    """A module that is one function."""

    def __init__(self, formula):
        super().__init__()
        self.formula = formula

    def forward(self, *args):
        return self.formula(*args)


def exceptions(**settings):
    return quiet_options(Precision__enableFloatingPointExceptions=True, **settings)


def compiled(formula, is_on=True):
    options = exceptions() if is_on else quiet_options()
    return poptorch.inferenceModel(Formula(formula), options)


def tensors(*values):
    return [v if torch.is_tensor(v) else torch.tensor(v) for v in values]


# name: formula, operands, the words of the error.
RAISED = {
    "subtraction": (lambda a, b: a - b, ([1.0, INF], [1.0, INF]),
                    "[sub] floating-point exception: subtraction of infinities. It is element [1] "
                    "of f32[2]: operands inf and inf, result nan."),
    "addition": (torch.add, ([INF], [-INF]), "[add] floating-point exception: subtraction of inf"),
    "sum": (lambda x: x.sum(), ([INF, -INF],), "[sum] floating-point exception: subtraction of"),
    "softmax": (lambda x: x.softmax(0), ([-INF, -INF],), "[_softmax] floating-point exception:"),
    "division by zero": (torch.div, ([1.0, 2.0], [1.0, 0.0]),
                         "division by zero. It is element [1] of f32[2]: operands 2 and 0, result"),
    "zero by zero": (torch.div, ([0.0], [0.0]), "division by zero"),
    "division by infinity": (torch.div, ([1.0], [-INF]), "[div] floating-point exception: division "
                             "by infinity. It is element [0] of f32[1]: operands 1 and -inf"),
    "floor division": (torch.floor_divide, ([1.0], [0.0]), "division by zero"),
    "remainder": (torch.remainder, ([1.0], [0.0]), "[remainder] floating-point exception: division "
                                                   "by zero"),
    "reciprocal": (torch.reciprocal, ([0.0],), "division by zero"),
    "rsqrt": (torch.rsqrt, ([0.0],), "division by zero"),
    "logarithm of zero": (torch.log, ([0.0],), "[log] floating-point exception: division by zero"),
    "power": (lambda x: x ** -2, ([0.0],), "division by zero"),
    "mean of nothing": (lambda x: functional.nll_loss(x, torch.tensor([-100])), ([[1.0, 2.0]],),
                        "[nll_loss] floating-point exception: division by zero"),
    "product": (torch.mul, ([2.0, 0.0], [2.0, INF]),
                "[mul] floating-point exception: multiplication of zero and infinity. It is "
                "element [1] of f32[2]: operands 0 and inf"),
    "matrix product": (torch.matmul, ([[0.0, 1.0]], [[INF], [1.0]]),
                       "[matmul] floating-point exception: subtraction of infinities, or "
                       "multiplication of zero and infinity"),
    "square root": (torch.sqrt, ([[4.0, 1.0], [-1.0, 0.0]],),
                    "[sqrt] floating-point exception: real operation with a complex result. It is "
                    "element [1, 0] of f32[2,2]: operand -1, result nan"),
    "logarithm": (torch.log, ([-1.0],), "real operation with a complex result"),
    "root by power": (lambda x: x ** 0.5, ([-1.0],), "real operation with a complex result"),
    "root below": (torch.rsqrt, ([-2.0],), "real operation with a complex result"),
    "arc cosine": (torch.acos, ([2.0],), "real operation with a complex result"),
    "opaque": (torch.erfinv, ([2.0],), "[aten::erfinv] floating-point exception: real operation"),
    "less": (lambda x: x < 1, ([0.0, NAN],), "[lt] floating-point exception: comparison with NaN. "
                                             "It is element [1] of bool[2]: operands nan and 1"),
    "equal": (torch.eq, ([NAN], [1.0]), "[eq] floating-point exception: comparison with NaN"),
    "exponential": (torch.exp, ([1.0, 100.0],), "[exp] floating-point exception: overflow, an "
                    "infinite result of finite operands. It is element [1] of f32[2]: operand 100"),
    "half": (torch.exp, (torch.tensor([12.0], dtype=HALF),), "of f16[1]: operand 12, result inf"),
    "cast": (lambda x: x.to(HALF), ([70000.0],), "[cast] floating-point exception: overflow"),
    "cast of integers": (lambda x: x.to(HALF), ([70000],), "[cast] floating-point exception: over"),
    "matmul of halves": (torch.matmul, (torch.full((4, 4), 200.0, dtype=HALF),
                                        torch.full((4, 4), 200.0, dtype=HALF)), "overflow"),
    "long product": (lambda x: x.prod(), ([1e30, 1e30],), "[prod] floating-point exception: over"),
    "broadcast": (lambda a, b: a / b, (torch.ones(2, 3), [[1.0], [0.0]]),
                  "element [1, 0] of f32[2,3]"),
    "transposed": (lambda a, b: a.t() / b, (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), [1.0, 0.0]),
                   "element [0, 1] of f32[2,2]: operands 3 and 0"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", RAISED)
def test_conditions(name):
    formula, operands, words = RAISED[name]
    operands = tensors(*operands)
    with pytest.raises(poptorch.Error) as caught:
        compiled(formula)(*operands)
    assert words in caught.value.message
    assert isinstance(caught.value, RuntimeError) and __file__ in caught.value.location
    eager = formula(*operands)
    ours = compiled(formula, is_on=False)(*operands)
    assert torch.equal(torch.isfinite(ours.float()), torch.isfinite(eager.float()))


def _attention(x, **more):
    return functional.scaled_dot_product_attention(x, x, x, **more)


# What computes with infinities and NaN that are there, or saturates.
QUIET = {
    "filled mask": (lambda x: x.masked_fill(x > 1, -INF).softmax(-1), ([[1.0, 2.0, 0.0]],)),
    "added mask": (lambda x: (x + torch.full((3, 3), -INF).triu(1)).softmax(-1),
                   (torch.ones(3, 3),)),
    "mask as argument": (lambda x, m: (x + m).softmax(-1), ([[1.0, 2.0]], [[0.0, -INF]])),
    "chosen": (lambda x: torch.where(x > 0, x, torch.tensor(-INF)), ([0.0, 2.0],)),
    "log of a softmax of a mask": (lambda x: x.masked_fill(x > 1, -INF).log_softmax(-1),
                                   ([[1.0, 2.0, 0.0]],)),
    "logsumexp": (lambda x: torch.logsumexp(x, 0), ([1.0, -INF],)),
    "maximum": (lambda x: x.max(), ([-INF, 1.0],)),
    "causal": (lambda x: _attention(x, is_causal=True), (torch.ones(1, 1, 3, 4),)),
    "rows without entries": (lambda x: _attention(x, attn_mask=torch.zeros(3, 3).bool()),
                             (torch.ones(1, 1, 3, 4),)),
    "padding": (lambda x: functional.pad(x, (1, 1), value=-INF), ([[1.0]],)),
    "finite from infinite": (torch.exp, ([-INF],)),
    "infinite argument": (lambda x: x * 2, ([INF],)),
    "NaN argument": (lambda x: torch.relu(x) + 1, ([NAN, 1.0],)),
    "question for NaN": (torch.isnan, ([NAN, 1.0],)),
    "the old question": (lambda x: x != x, ([NAN, 1.0],)),  # noqa: PLR0124
    "repair": (torch.nan_to_num, ([NAN, INF, -INF],)),
    "underflow": (torch.exp, ([-200.0],)),
    "whole numbers": (lambda x: x // 3, ([7, 8],)),
}
SATURATING = ("sigmoid", "tanh", "softplus", "gelu", "silu", "mish", "logsigmoid", "elu", "selu",
              "hardswish", "relu6", "softsign", "tanhshrink")


@pytest.mark.parametrize("name", QUIET)
def test_what_is_no_exception(name):
    formula, operands = QUIET[name]
    operands = tensors(*operands)
    torch.testing.assert_close(compiled(formula)(*operands),
                               compiled(formula, is_on=False)(*operands), equal_nan=True)


@pytest.mark.parametrize("name", SATURATING)
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_saturating_activations_do_not_raise(name, dtype):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(4, dtype=dtype))

        def forward(self, x):
            y = getattr(functional, name)(x * self.w)
            return y, poptorch.identity_loss(y.sum(), "none")

    model = poptorch.trainingModel(Net(), exceptions())
    y, _ = model(torch.tensor([-1000.0, -20.0, 20.0, 1000.0], dtype=dtype))
    assert torch.isfinite(y).all()


class Net(torch.nn.Module):
    """The square root of ``w x``, whose gradient is infinite at 0."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        y = torch.sqrt(self.w * x)
        return y, poptorch.identity_loss(y.sum(), "none")


def test_the_backward_pass_is_named_and_the_model_can_be_used_again():
    model = poptorch.trainingModel(Net(), exceptions())
    model(torch.tensor([1.0, 4.0]))
    before = model.w.detach().clone()
    with pytest.raises(poptorch.Error, match=r"division by zero in the backward pass"):
        model(torch.tensor([1.0, 0.0]))
    assert torch.equal(model.w, before)
    y, _ = model(torch.tensor([1.0, 4.0]))
    assert torch.isfinite(y).all() and not torch.equal(model.w, before)


def test_the_update_is_named():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e38)
    model = poptorch.trainingModel(net, exceptions(), optimizer)
    with pytest.raises(poptorch.Error, match=r"\[sgd_update\] .*overflow.* in the weight update"):
        model(torch.tensor([1e4, 1e4]))


def test_the_step_is_named():
    def forward(x):
        return poptorch.for_loop(3, lambda y: [1 / (y - 1)], [x])[0]

    model = poptorch.inferenceModel(Formula(forward), exceptions(deviceIterations=2))
    # 1 / (y - 1): 1.5 becomes 2, 2 becomes 1, 1 divides by zero.
    with pytest.raises(poptorch.Error, match=r"in device iteration 1, loop iteration 2\."):
        model(torch.tensor([3.0, 1.5]))


def test_the_micro_batch_and_the_replica_are_named():
    options = exceptions(Training__gradientAccumulation=2, replicationFactor=2)
    model = poptorch.trainingModel(Net(), options)
    x = torch.ones(4, 2)
    x[3] = -1
    with pytest.raises(poptorch.Error, match=r"complex result.* in micro-batch 1, replica 1\."):
        model(x)


class Scale(torch.nn.Module):
    """``w x``, whose gradient by ``w`` is ``x``."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return poptorch.identity_loss((self.w * x).sum(), "none")


def test_a_sum_over_replicas_is_looked_at():
    reduction = "Training__accumulationAndReplicationReductionType"
    options = exceptions(replicationFactor=2, **{reduction: poptorch.ReductionType.Sum})
    net = Scale()
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=1e-38))
    model(torch.full((2, 2), 1e38))
    with pytest.raises(poptorch.Error, match=r"\[all_reduce\] .*overflow"):
        model(torch.full((2, 2), 3e38))


@pytest.mark.parametrize("name", ["resnet", "bert_encoder", "lstm_tagger"])
def test_networks_train_as_without(name, seed):
    network = build(name, seed)
    batches = network.batches(2, seed)
    plain = harness.train(network, batches)
    model = poptorch.trainingModel(network.module.train(), exceptions(),
                                   network.make_optimizer(list(network.module.parameters())))
    for inputs, expected in zip(batches, plain["loss"], strict=True):
        torch.testing.assert_close(model(*inputs)[1], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [{"Precision__enableStochasticRounding": True},
                                      {"Precision__setPartialsType": HALF}])
def test_with_other_ways_to_round(settings):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).half()

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            y = self.net(x).exp()
            return y, poptorch.identity_loss(y.sum(), "none")

    model = poptorch.trainingModel(Loss(), exceptions(**settings))
    y, _ = model(torch.randn(3, 4).half())
    assert torch.isfinite(y).all()
    model = poptorch.inferenceModel(Formula(lambda x: x * 2), exceptions(**settings))
    with pytest.raises(poptorch.Error, match="overflow"):
        model(torch.tensor([60000.0], dtype=HALF))


def test_the_option_changes_the_program_alone_where_it_is_on():
    x = torch.ones(4)

    def text(is_on):
        model = compiled(lambda x: (x * 2 + 1).relu().exp(), is_on)
        model(x)
        return model.ir("plan")

    assert "fused" in text(False) and "fused" not in text(True) and "inplace" not in text(True)


def test_a_file_keeps_it(tmp_path):
    model = compiled(torch.sqrt)
    model(torch.ones(2))
    path = model.save(str(tmp_path / "net.poptorch"), export_model=False)
    again = compiled(torch.sqrt)
    again.loadExecutable(path)
    with pytest.raises(poptorch.Error, match="complex result"):
        again(torch.tensor([1.0, -1.0]))
