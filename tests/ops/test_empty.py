"""Tensors without elements, in whole models forward and backward: what eager gives, or refuses.

Several of them are alive at once with others, so that a shared address is visible.
"""

import copy
import random
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

import poptorch
from tests.helpers import quiet_options
from tests.ops.sample import ROWS, call_aten
from tests.ops.test_ops import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")

FEW = 10  # cases in one model

# Their ATen ops believe that operands fit each other, and may end the process where they do not.
UNCHECKED = ("_backward", "_backward_data", "_update")
# Rows with references that draw weights of their own; images without channels, of which eager makes
# images without channels whatever the weights say, and the row refuses to; bits of 64-bit types,
# which a program does not have. Of a mask the gradient selects entries, as many as it likes.
LEFT_OUT = ("pack_convolution", "packed_convolution", "convolution", "bitcast")
MASKED = "mask"  # notes of samples begin so


class Case:
    """A function of some tensors: the floating-point ones are trained."""

    def __init__(self, name, function, operands):
        self.name, self.function, self.operands = name, function, operands

    def __call__(self, operands):
        results = self.function(*operands)
        return list(results) if isinstance(results, (tuple, list)) else [results]


class Model(nn.Module):
    """Computes cases, and something else before, between and behind them."""

    def __init__(self, cases):
        super().__init__()
        self.cases = cases
        self.other = nn.Parameter(torch.arange(1.0, 6))
        for name, tensor in self.tensors():
            if tensor.is_floating_point():
                self.register_parameter(name, nn.Parameter(tensor.detach().clone()))
            else:
                self.register_buffer(name, tensor.clone())

    def tensors(self):
        return [(f"case{k}_{i}", x) for k, case in enumerate(self.cases)
                for i, x in enumerate(case.operands) if x is not None]

    def forward(self, x):
        out, first = {}, torch.sin(x)
        for k, case in enumerate(self.cases):
            out[f"constants {k}"] = [torch.zeros(0, k + 1), torch.full((k + 2,), k + 3.0)]
            operands = [None if x is None else getattr(self, f"case{k}_{i}")
                        for i, x in enumerate(case.operands)]
            out[f"{k} {case.name}"] = case(operands)
            out[f"between {k}"] = [first * self.other + torch.full((5,), k + 7.0)]
        out["last"] = [first, torch.zeros(0), torch.ones(3, 0)]
        loss = (out["between 0"][0] ** 2).sum()
        for k, results in enumerate(out.values()):
            for result in results:
                if result is not None and result.is_floating_point():
                    loss = loss + (result.float() * (k + 1.5)).sum()
        return poptorch.identity_loss(loss, reduction="none"), out


def check_equal(name, ours, eager):
    if eager is None:
        return
    assert ours.shape == eager.shape, f"{name}: {ours.shape}, expected {eager.shape}"
    if not eager.is_floating_point():
        ours, eager = ours.long(), eager.long()
    finite = eager.detach()[eager.isfinite()].abs()
    size = finite.max().item() if finite.numel() else 0.0  # small sums of large terms are off
    torch.testing.assert_close(ours.detach(), eager.detach(), rtol=1e-4, atol=1e-5 + 1e-4 * size,
                               equal_nan=True, check_dtype=False,
                               msg=lambda text: f"{name}: {text}")


def check_cases(cases):
    """One training step of a model of the cases, compared with eager."""
    model = Model(cases)
    eager, x = copy.deepcopy(model), torch.randn(5)
    loss, expected = eager(x)
    loss.backward()
    step = poptorch.trainingModel(model, quiet_options(),
                                  poptorch.optim.SGD(model.parameters(), lr=1.0))
    _, ours = step(x)
    assert list(ours) == list(expected)
    for name, results in expected.items():
        for i, result in enumerate(results):
            check_equal(f"result {i} of {name}", ours[name][i], result)
    step.copyWeightsToHost()
    for (name, updated), weight in zip(model.named_parameters(), eager.parameters(), strict=True):
        grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        at = name.removeprefix("case").partition("_")[0]
        about = cases[int(at)].name if at.isdigit() else ""
        check_equal(f"gradient of {name} {about}", updated, weight - grad)


def eager_refuses(case):
    """Whether eager refuses a case, forward or backward."""
    operands = [None if x is None else x.detach().clone().requires_grad_(x.is_floating_point())
                for x in case.operands]
    try:
        results = [x for x in case(operands) if x is not None and x.requires_grad]
        torch.autograd.backward(results, [torch.ones_like(x) for x in results])
    except Exception:  # of torch or of a reference, with many classes
        return True
    return False


def needs_values(case):
    """Whether the reference of a sample, or its size, depends on numbers: it is not captured."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        try:
            case([None if x is None else mode.from_tensor(x) for x in case.operands])
        except (DataDependentOutputException, DynamicOutputShapeException):
            return True
        except Exception as error:
            return "numpy" in str(error)
    return False


# -- the samples of all rows -------------------------------------------------------------------


def emptied(x, dims):
    """The tensor without elements in these dimensions."""
    for d in dims:
        x = x.narrow(d, 0, 0)
    return x.contiguous().clone()


def variants(operands, alone):
    """(name, operands): all dimensions of one size are 0, or, with ``alone``, one of one tensor."""
    given = [x for x in operands if x is not None]
    for size in sorted({n for x in given for n in x.shape if n > 0}):
        yield f"size {size}", [
            None if x is None else emptied(x, [d for d, n in enumerate(x.shape) if n == size])
            for x in operands]
    for i, x in enumerate(operands if alone else ()):
        for d in range(0 if x is None else x.dim()):
            yield (f"dimension {d} of operand {i}",
                   [*operands[:i], emptied(x, [d]), *operands[i + 1:]])


def cases_of(sample):
    def function(*operands):
        if sample.reference is not None:
            return sample.reference(*operands)
        return call_aten(sample.op, operands, sample.attrs)

    alone = "norm" not in sample.op
    for name, operands in variants(sample.operands(), alone):
        yield Case(f"{sample.id}, {name}", function, operands)


def drawn_cases(family, rng):
    """Cases of all rows of a family, a few for each, that can be judged."""
    by_row = {}
    for sample in family.SAMPLES:
        is_callable = sample.reference is not None or ROWS[sample.op]["aten"]
        is_left_out = (sample.op.endswith(UNCHECKED) or sample.op in LEFT_OUT
                       or sample.note.startswith(MASKED))
        if sample.check is None and is_callable and not is_left_out:
            by_row.setdefault(sample.op, []).append(sample)
    for samples in by_row.values():
        cases = list(cases_of(rng.choice(samples)))
        for case in rng.sample(cases, min(3, len(cases))):
            if not needs_values(case):
                yield case


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__.split(".")[-1])
def test_samples(family, seed):
    torch.set_num_threads(1)
    rng = random.Random(seed)
    accepted, refused = [], []
    for case in drawn_cases(family, rng):
        (refused if eager_refuses(case) else accepted).append(case)
    rng.shuffle(accepted)
    for first in range(0, len(accepted), FEW):
        check_cases(accepted[first:first + FEW])
    for case in rng.sample(refused, min(2, len(refused))):
        with pytest.raises(poptorch.Error):
            check_cases_alone(case)
            pytest.fail(f"eager refuses {case.name}")


def check_cases_alone(case):
    """Runs a model of one case, without looking at what it gives."""
    model = Model([case])
    poptorch.trainingModel(model, quiet_options(),
                           poptorch.optim.SGD(model.parameters(), lr=1.0))(torch.randn(5))


# -- functions as users call them --------------------------------------------------------------


def none_of(*sizes):
    """Indices, none of them."""
    return torch.zeros(sizes, dtype=torch.long)


LSTM = nn.LSTM(4, 3)

FUNCTIONS = {
    "split": (lambda x: [part * 2 for part in x.split([1, 2, 3, 0])], (6,)),
    "cat": (lambda x: torch.cat([x, torch.ones(2, 4)]), (0, 4)),
    "expm1": (torch.expm1, (0, 3)),
    "maximum": (lambda x: torch.maximum(x, torch.ones(3)), (0, 3)),
    "lerp": (lambda x: torch.lerp(x, torch.ones(3), 0.3), (0, 3)),
    "rms_norm": (lambda x: F.rms_norm(x, (3,)), (0, 3)),
    "mse": (lambda x: F.mse_loss(x, torch.ones(0, 4)), (0, 4)),
    "smooth_l1": (lambda x: F.smooth_l1_loss(x, torch.ones(0, 4)), (0, 4)),
    "l1": (lambda x: F.l1_loss(x, torch.ones(0, 4)), (0, 4)),
    "huber": (lambda x: F.huber_loss(x, torch.ones(0, 4)), (0, 4)),
    "bce": (lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(0, 4)), (0, 4)),
    "kl_div": (lambda x: F.kl_div(x, torch.ones(0, 4), reduction="batchmean"), (0, 4)),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.ones(0, 4)), (0, 4)),
    "nll": (lambda x: F.nll_loss(x.log_softmax(1), none_of(0)), (0, 4)),
    "mean": (torch.mean, (0, 4)),
    "mean of one": (lambda x: x.mean(0), (0, 4)),
    "var": (torch.var, (0, 4)),
    "var of one": (lambda x: x.var(1), (4, 0)),
    "std": (lambda x: x.std(0), (0, 4)),
    "norm": (torch.norm, (0, 4)),
    "logsumexp": (lambda x: x.logsumexp(1), (4, 0)),
    "prod": (lambda x: x.prod(1), (4, 0)),
    "cumsum": (lambda x: x.cumsum(1), (4, 0)),
    "softmax": (lambda x: x.softmax(1), (4, 0)),
    "conv2d": (lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3)), (0, 3, 5, 5)),
    "conv1d": (lambda x: F.conv1d(x, torch.ones(4, 3, 3), torch.ones(4)), (0, 3, 5)),
    "conv_transpose2d": (
        lambda x: F.conv_transpose2d(x, torch.ones(3, 4, 3, 3), stride=2), (0, 3, 5, 5)),
    "conv_transpose1d, no result": (
        lambda x: F.conv_transpose1d(x, torch.ones(3, 2, 2), torch.ones(2), 2, 4), (2, 3, 4)),
    "conv_transpose2d, no result": (
        lambda x: F.conv_transpose2d(x, torch.ones(3, 2, 2, 2), stride=2, padding=4),
        (2, 3, 4, 4)),
    "conv_transpose2d weight, no result": (
        lambda x: F.conv_transpose2d(torch.ones(2, 3, 4, 4), x, stride=2, padding=4),
        (3, 2, 2, 2)),
    "conv1d, no channels": (lambda x: F.conv1d(x, torch.ones(2, 0, 2)), (2, 0, 4)),
    "conv2d, no channels": (
        lambda x: F.conv2d(x, torch.ones(2, 0, 2, 2), torch.ones(2)), (2, 0, 4, 4)),
    "conv2d, groups": (lambda x: F.conv2d(x, torch.ones(4, 1, 3, 3), groups=4), (0, 4, 5, 5)),
    "conv2d weight": (lambda x: F.conv2d(torch.ones(0, 3, 5, 5), x), (4, 3, 3, 3)),
    "linear": (lambda x: F.linear(torch.ones(3, 4), x), (0, 4)),
    "linear, no batch": (lambda x: F.linear(x, torch.ones(3, 4)), (0, 4)),
    "linear, no features": (lambda x: F.linear(x, torch.ones(3, 0), torch.ones(3)), (5, 0)),
    "matmul": (lambda x: x @ torch.ones(0, 5), (4, 0)),
    "bmm": (lambda x: torch.bmm(x, torch.ones(3, 0, 5)), (3, 4, 0)),
    "batch_norm": (lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)), (0, 3, 4, 4)),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), (0, 4)),
    "group_norm": (lambda x: F.group_norm(x, 2), (0, 4, 3)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (0, 3, 4, 4)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (0, 3, 4, 4)),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, 2), (0, 3, 4, 4)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2.0), (0, 3, 5, 5)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), (0, 3, 5, 5)),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic"), (0, 3, 5, 5)),
    "lstm": (lambda x: LSTM(x)[0].sum(0), (5, 0, 4)),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), (0, 2, 3, 4)),
    "attention, no keys": (
        lambda x: F.scaled_dot_product_attention(torch.ones(2, 2, 3, 4), x, x), (2, 2, 0, 4)),
    "dropout": (lambda x: F.dropout(x, 0.5, training=True), (0, 4)),
    "embedding": (lambda x: F.embedding(none_of(0), x), (5, 4)),
    "embedding_bag": (lambda x: F.embedding_bag(none_of(0), x, none_of(2)), (5, 4)),
    "gather": (lambda x: x.gather(0, none_of(0, 4)), (5, 4)),
    "gather of none": (lambda x: x.gather(0, none_of(0, 4)), (0, 4)),
    "take_along_dim": (lambda x: torch.take_along_dim(x, none_of(0, 4), 0), (5, 4)),
    "scatter": (lambda x: x.scatter(0, none_of(0, 4), torch.ones(2, 4)), (5, 4)),
    "scatter_reduce": (
        lambda x: x.scatter_reduce(0, none_of(0, 4), torch.ones(0, 4), "mean"), (5, 4)),
    "index_select": (lambda x: x.index_select(1, none_of(0)), (5, 4)),
    "index": (lambda x: x[none_of(0)], (5, 4)),
    "index, none looked at": (lambda x: x[none_of(0), torch.tensor([7])], (5, 4)),
    "index_put": (lambda x: x.index_put((none_of(0),), torch.ones(0, 4)), (5, 4)),
    "index_put of one": (lambda x: x.index_put((none_of(0),), torch.ones(())), (5, 4)),
    "index_add": (lambda x: x.index_add(0, none_of(0), torch.ones(0, 4)), (5, 4)),
    "index_add to none": (
        lambda x: x.index_add(1, torch.tensor([3]), torch.ones(4, 1)), (4, 0)),
    "index_fill": (lambda x: x.index_fill(0, none_of(0), 2.0), (5, 4)),
    "index_copy": (lambda x: x.index_copy(0, none_of(0), torch.ones(0, 4)), (5, 4)),
    "sort": (lambda x: x.sort(1), (4, 0)),
    "topk": (lambda x: x.topk(0, 1), (4, 3)),
    "roll": (lambda x: x.roll(1, 0), (0, 4)),
    "flip": (lambda x: x.flip(0), (0, 4)),
    "repeat": (lambda x: x.repeat(0, 2), (3, 4)),
    "pad": (lambda x: F.pad(x, (1, 1)), (3, 0)),
    "reflect": (lambda x: F.pad(x, (1, 1), mode="reflect"), (0, 3, 4)),
    "unfold": (lambda x: x.unfold(0, 2, 1), (4, 0)),
    "where": (lambda x: torch.where(x > 0, x, 2.0), (0, 4)),
    "triu": (torch.triu, (0, 4)),
    "stack": (lambda x: torch.stack([x, x]), (0,)),
    "bits": (lambda x: x.view(torch.int32), (0, 4)),
    "one_hot": (lambda x: F.one_hot(none_of(0), 3) * x, (3,)),
}


def test_functions(seed):
    names = list(FUNCTIONS)
    random.Random(seed).shuffle(names)
    cases = [Case(name, FUNCTIONS[name][0], [torch.randn(FUNCTIONS[name][1])]) for name in names]
    assert not [case.name for case in cases if eager_refuses(case)]
    for first in range(0, len(cases), FEW):
        check_cases(cases[first:first + FEW])


REFUSED = {
    "amax": (lambda x: x.amax(), (0, 4)),
    "argmax": (lambda x: x.argmax(1).float() * x[:, 0], (4, 0)),
    "max": (lambda x: x.max(1)[0], (4, 0)),
    "no channels": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), (2, 0, 5, 5)),
    "no pixels": (lambda x: F.max_pool2d(x, 2), (2, 3, 0, 4)),
    "no outputs": (lambda x: F.conv2d(torch.ones(2, 3, 5, 5), x), (0, 3, 3, 3)),
    "no features": (lambda x: x @ torch.ones(4, 5), (3, 0)),
    "no rows": (lambda x: x.gather(0, torch.zeros(2, 4, dtype=torch.long)), (0, 4)),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), (1, 3)),
    "stack": (lambda x: torch.stack([x, torch.ones(1)]), (0,)),
    "index_add to no vector": (
        lambda x: x.index_add(0, torch.tensor([3]), torch.ones(1)), (0,)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    function, shape = REFUSED[name]
    case = Case(name, function, [torch.randn(shape)])
    assert eager_refuses(case)
    with pytest.raises(poptorch.Error):
        check_cases_alone(case)


@pytest.mark.parametrize("output_mode", ["All", "Final", "Sum"])
def test_many_steps_and_replicas(output_mode):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(0, 3))
            self.other = nn.Parameter(torch.ones(3))

        def forward(self, x):
            out = x * self.other
            loss = (out ** 2).sum() + (self.weight * 2).sum() + torch.zeros(0).sum()
            return out, x[:, :0], self.weight + 1, poptorch.identity_loss(loss, reduction="none")

    options = quiet_options(deviceIterations=2, replicationFactor=2, outputMode=getattr(
        poptorch.OutputMode, output_mode), Training__gradientAccumulation=2)
    net, x = Net(), torch.ones(16, 3)
    step = poptorch.trainingModel(net, options, poptorch.optim.SGD(net.parameters(), lr=0.01))
    out, empty, weight, _ = step(x)
    slices = {"All": 8, "Final": 2, "Sum": 2}[output_mode]
    assert empty.shape == (2 * slices, 0) and weight.numel() == 0
    assert out.shape == (2 * slices, 3) and out.eq(out[0, 0]).sum() > 0
    step.copyWeightsToHost()
    assert net.weight.shape == (0, 3) and (net.other < 1).all()


def test_gradients_of_a_group_norm_of_nothing():
    """Eager's deviation of nothing is NaN, and so is what is multiplied with it."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.GroupNorm(1, 3)

        def forward(self, x):
            return poptorch.identity_loss(self.norm(x).sum(), "none")

    for sizes in ((3, 3, 0), (0, 3, 2)):
        net = Net()
        eager = copy.deepcopy(net)
        model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 1.0))
        model(torch.rand(sizes))
        optimizer = torch.optim.SGD(eager.parameters(), 1.0)
        eager(torch.rand(sizes)).backward()
        optimizer.step()
        torch.testing.assert_close(net.state_dict(), eager.state_dict(), equal_nan=True)


@pytest.mark.parametrize("function", [
    lambda x: F.adaptive_avg_pool2d(x, (2, 3)), lambda x: F.adaptive_avg_pool3d(x[None], 2),
    lambda x: F.interpolate(x, size=(2, 3), mode="bilinear"),
    lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    lambda x: F.interpolate(x[None], size=(2, 2, 2), mode="trilinear"),
    lambda x: F.grid_sample(x, torch.zeros(3, 2, 2, 2), align_corners=False),
], ids=["pool2d", "pool3d", "bilinear", "bicubic", "trilinear", "grid"])
def test_images_without_pixels_are_refused_as_in_eager(function):
    """Torch's rules take them; the process ended where a gradient was computed."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.image = nn.Parameter(torch.zeros(3, 1, 1, 0))

        def forward(self):
            return poptorch.identity_loss(function(self.image).sum(), "none")

    net = Net()
    with pytest.raises(RuntimeError) as eager:
        net()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 1.0))
    with pytest.raises(poptorch.Error, match=re.escape(str(eager.value).splitlines()[0])):
        model()
