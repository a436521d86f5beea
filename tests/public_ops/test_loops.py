"""for_loop and cond, and torch's operations on functions: as eager, in one program; errors."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import while_loop
from torch.utils.checkpoint import checkpoint

import poptorch
from poptorch import cond, for_loop, testing
from tests.helpers import quiet_options
from tests.public_ops.scans import scan_by_python


class Net(nn.Module):
    """Two layers, and a function of the test's: it takes the net and an input."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.a, self.b, self.gru = nn.Linear(4, 4), nn.Linear(4, 4), nn.GRU(4, 4)

    def forward(self, x):
        y = self.function(self, x)
        weights = torch.linspace(0, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
        return y, poptorch.identity_loss((y * weights).sum(), "sum")


def nested(m, x):
    def inner(v, w):
        return [torch.tanh(m.a(v)) + w, w * 0.9]

    def outer(v, w):
        v, w = for_loop(3, inner, [v, w])
        return [v + m.b(x), w + v.mean()]

    return for_loop(2, outer, [x, x.cos()])[0]


def in_place(m, x):
    def body(v):
        v.add_(1)
        return m.a(v).mul_(0.1)

    return for_loop(3, body, [x])[0] + x


def with_an_index(m, x):
    def body(i, v):
        return [i + 1, v * 0.5 + i * m.a(v)]

    return for_loop(3, body, [torch.zeros(1, dtype=torch.int64), x])[1]


def row_by_row(m, x):
    def body(i, rows, made):
        row = poptorch.dynamic_slice(rows, 0, i, 1, 1)
        return [i + 1, rows, poptorch.dynamic_update(made, m.a(row), 0, i, 1)]

    return for_loop(3, body, [torch.zeros(1, dtype=torch.int32), x, torch.zeros(3, 4)])[2]


def closure_with_a_history(m, x):
    """The same parameters lie behind the tensor from outside and in the body."""
    h = m.a(x)
    return for_loop(3, lambda v: torch.tanh(m.a(v)) * h, [x])[0]


def closure_changed_later(m, x):
    h = m.a(x) * 1
    y = for_loop(3, lambda v: torch.sin(v) + h, [x])[0]
    h.mul_(2)
    return y + h


def closure_bound_to_another(m, x):
    h = m.a(x)
    y = for_loop(3, lambda v: torch.sin(v) * h, [x])[0]
    h = h * 7
    return y + h


def no_gradient_between_rounds(m, x):
    """The first round alone reads what has a gradient."""
    return for_loop(3, lambda a, b: [b.detach(), b + torch.sin(a)], [m.a(x), m.b(x)])[1]


def choice(m, x):
    return cond(x.sum() > 0, lambda v: torch.tanh(m.a(v)), [x],
                lambda v, w: [m.b(v) * w], [x, m.a(x).sin()])[0]


def results_changed_in_place(m, x):
    first, second = for_loop(2, lambda a, b: [b, b], [x, m.a(x)])
    kept = m.a(x)
    same, other = cond(x.sum() > 0, lambda: [kept, kept], [], lambda: [kept, kept * 2], [])
    second.add_(1)
    same.mul_(2)
    return first + second * 3 + same + other * 5 + kept * 7


def choice_in_choice(m, x):
    def then(v):
        return cond(v.mean() > 0.2, m.a, [v], lambda a: a * 2 + m.b(a), [v])

    return cond(x.sum() > 0, then, [m.a(x)], lambda v: v * 3 + m.b(v), [x])[0]


def choice_in_loop(m, x):
    def body(v):
        return cond(v.mean() > 0, lambda a: m.a(a) - 0.5, [v], lambda a: m.b(a) + 0.5, [v])

    return for_loop(5, body, [x])[0]


def loop_in_choice(m, x):
    def then(v):
        return for_loop(3, lambda u: torch.tanh(m.a(u)), [v])

    return cond(x.mean() > 0, then, [x], lambda v: m.b(v) * 2, [x])[0]


def scanned(m, x):
    carry, rows = scan_by_python(lambda c, r: (torch.tanh(c + m.a(r)), m.b(c) + r), m.a.bias * 0,
                                 m.a(x))
    return rows + carry


def scanned_in_reverse(m, x):
    return scan_by_python(lambda c, r: (torch.tanh(c + r), c * 2), m.a.bias * 0, m.a(x), True)[1]


def mapped(m, x):
    def function(row, h):
        return torch.tanh(m.a(row)) * h

    rows, h = m.b(x), m.a(x).sum(0)
    if poptorch.isRunningOnIpu():
        return map_rows(function, rows, h)
    return torch.stack([function(row, h) for row in rows])


def checkpointed(m, x):
    def part(v):
        return for_loop(3, lambda u: torch.tanh(m.a(u)), [v])[0].sin()

    return checkpoint(part, m.b(x), use_reentrant=False)


def checkpoint_in_loop(m, x):
    def body(v):
        return checkpoint(lambda u: torch.tanh(m.a(u)), v, use_reentrant=False)

    return for_loop(3, body, [m.b(x)])[0]


def checkpoint_that_reads_a_weight(m, x):
    def body(v):
        return checkpoint(lambda u: u @ m.a.weight * m.b.bias, v, use_reentrant=False)

    return for_loop(2, body, [x])[0]


def gradient_in_loop(m, x):
    def body(v):
        with torch.enable_grad():
            u = v.detach().requires_grad_()
            gradient, = torch.autograd.grad(torch.tanh(m.a(u)).sum(), [u])
        return v - 0.1 * gradient

    return for_loop(3, body, [m.b(x)])[0]


def host_function(m, x):
    op, h = poptorch.CPU(torch.tanh, "tanh"), m.b(x)
    return for_loop(3, lambda v: op(m.a(v)) + op(h), [x])[0]


PROGRAMS = {
    "none": lambda m, x: for_loop(0, lambda v: v * 2, [m.a(x)])[0],
    "once": lambda m, x: for_loop(1, lambda v: v * 2 + m.a(v), [m.a(x)])[0],
    "swap": lambda m, x: for_loop(3, lambda a, b: (b * 1.1, a + m.a(b)), [x, m.a(x)])[0],
    "swap alone": lambda m, x: for_loop(3, lambda a, b: (b, a), [x, m.a(x)])[0],
    "views": lambda m, x: for_loop(2, lambda v: [(v @ m.a.weight).t() + m.a.weight],
                                   [x.t()[:, [0, 1, 2, 0]]])[0],
    "sizes": lambda m, x: for_loop(2, lambda v: m.a(v.view(3, 4)), [x.t().contiguous().t()])[0],
    "constants": lambda m, x: m.a(x) + for_loop(4, lambda v: v + 1, [torch.zeros(4)])[0],
    "layer": lambda m, x: for_loop(3, lambda v: m.gru(v)[0], [x])[0],
    "outside": lambda m, x: (lambda h: for_loop(3, lambda v: [h], [x])[0])(m.a(x)),
    "two": lambda m, x: for_loop(3, m.a, [x])[0] + for_loop(3, m.b, [x])[0],
    "loss": lambda m, x: for_loop(3, lambda v: v - 0.1 * nn.functional.mse_loss(m.a(v), v),
                                  [x])[0],
    "many": lambda m, x: for_loop(500, lambda v: torch.tanh(m.a(v)), [x])[0],
    "torch.cond": lambda m, x: torch.cond(x.sum() > 0, lambda v: {"y": m.a(v)},
                                          lambda v: {"y": m.b(v)}, (x,))["y"],
    **{function.__name__: function for function in (
        nested, in_place, with_an_index, row_by_row, closure_with_a_history, closure_changed_later,
        closure_bound_to_another, no_gradient_between_rounds, choice, choice_in_choice,
        choice_in_loop, loop_in_choice, checkpointed, checkpoint_in_loop,
        checkpoint_that_reads_a_weight, gradient_in_loop, host_function, results_changed_in_place,
        scanned, scanned_in_reverse, mapped)},
}


def check_training(function):
    """Three steps, by an input that lets branches be taken and others, in one program."""
    x = torch.randn(3, 4)
    net = Net(function)
    eager = copy.deepcopy(net)
    ours = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.01))
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.01)
    for scale in (1.0, -1.0, 3.0):
        found, expected = ours(scale * x.abs()), eager(scale * x.abs())
        optimizer.zero_grad()
        expected[1].backward()
        optimizer.step()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    ours.copyWeightsToHost()
    torch.testing.assert_close(dict(net.named_parameters()), dict(eager.named_parameters()),
                               rtol=1e-4, atol=1e-4)


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_training_as_eager(name):
    check_training(PROGRAMS[name])


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_inference_as_eager(name, dtype):
    net = Net(PROGRAMS[name]).to(dtype)
    if name in ("row_by_row", "constants") and dtype is not torch.float32:
        return  # their zeros are float32
    x = torch.randn(3, 4).to(dtype)
    ours = poptorch.inferenceModel(net, quiet_options())
    for scale in (1.0, -1.0):
        with torch.no_grad():
            expected = net(scale * x.abs())[0]
        tolerance = 1e-4 if dtype is torch.float32 else 2e-2
        torch.testing.assert_close(ours(scale * x.abs())[0], expected, rtol=tolerance,
                                   atol=tolerance)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_with_replicas_accumulation_and_device_iterations(accumulation):
    def step(net, x, optimizer):
        optimizer.zero_grad()
        for part in x:
            (net(part[None])[1] / x.shape[0]).backward()
        optimizer.step()

    net = Net(choice_in_loop)
    eager = copy.deepcopy(net)
    options = quiet_options().deviceIterations(2).replicationFactor(2)
    options.Training.gradientAccumulation(accumulation)
    ours = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.01))
    x = torch.randn(2 * 2 * accumulation, 4)
    ours(x)
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.01)
    for part in x.chunk(2):
        step(eager, part, optimizer)
    ours.copyWeightsToHost()
    torch.testing.assert_close(dict(net.named_parameters()), dict(eager.named_parameters()))


def test_in_blocks():
    def forward(m, x):
        with poptorch.Block("first", ipu_id=0):
            h = m.a(x)
        with poptorch.Block("second", ipu_id=1):
            return for_loop(3, lambda v: torch.tanh(m.b(v)) + h, [h])[0]

    net, x = Net(forward), torch.randn(3, 4)
    options = quiet_options()
    options.setExecutionStrategy(poptorch.ShardedExecution())
    ours = poptorch.inferenceModel(net, options)
    torch.testing.assert_close(ours(x)[0], net(x)[0].detach())
    body = ours.ir("place").split("graph for_loop")[1].split("\n}")[0]
    assert "ipu=1" in body
    assert "ipu=0" not in body


def test_rounds_that_a_tensor_decides():
    def forward(m, x):
        with torch.no_grad():
            return while_loop(lambda i, v: (i < 20) & (v.sum() < 100),
                              lambda i, v: (i + 1, v * 1.5),
                              (torch.zeros((), dtype=torch.int64), x))

    class While(nn.Module):
        def forward(self, x):
            return forward(self, x)

    ours = poptorch.inferenceModel(While(), quiet_options())
    for x in (torch.ones(4), torch.full((4,), 50.0), torch.full((4,), 1e-3)):
        found, expected = ours(x), forward(None, x)
        torch.testing.assert_close(found, tuple(expected), check_dtype=False)


def test_what_the_loss_does_not_depend_on_has_no_gradient():
    """Weight decay would act on a gradient of zero."""
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.dropped = (nn.Parameter(torch.ones(3)) for _ in "ab")

        def forward(self, x):
            chosen, = cond(x.sum() > 0, lambda v: v * 2, [self.dropped],
                           lambda v: v * 3, [self.dropped])
            _, b = for_loop(2, lambda a, b: [b, b.sin()], [chosen, self.used * x])
            return poptorch.identity_loss(b, "sum")

    net = Dropped()
    with testing.keep_gradients():
        model = poptorch.trainingModel(net, quiet_options(),
                                       torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.5))
        model(torch.ones(3))
    assert list(testing.gradients(model)) == ["used"]
    assert torch.equal(net.dropped.detach(), torch.ones(3))


def test_what_no_round_reads_has_no_gradient():
    """Nor has it where a print or a write at a mask lies before the loop."""
    def forward(m, x):
        printed = poptorch.ipu_print_tensor(m.a.weight, "w", True)
        written = torch.zeros(4)
        written[x[0] > 0] = m.a.bias
        return for_loop(2, lambda a, b, c: [a.detach(), b.detach(), c.sin()],
                        [printed, written, m.b(x)])[2]

    net = Net(forward)
    with testing.keep_gradients():
        model = poptorch.trainingModel(net, quiet_options(),
                                       torch.optim.SGD(net.parameters(), lr=0.1))
        model(torch.ones(3, 4))
    assert sorted(testing.gradients(model)) == ["b.bias", "b.weight"]


class OwnSine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient * x.cos()


@pytest.mark.parametrize("function", [
    lambda v, w: for_loop(2, lambda a, b: [a.detach(), b.sin()], [v, w])[1],
    lambda v, w: for_loop(1, lambda a, b: [b, b.sin()], [v, w])[0],
    lambda v, w: cond(w.sum() > 0, lambda a, b: a.detach() + b, [v, w], lambda a: a * 2, [w])[0],
])
def test_functions_before_what_is_not_read_have_no_gradient(function):
    net = Net(lambda m, x: function(OwnSine.apply(m.a.weight), x @ m.b.weight)[:3])
    with testing.keep_gradients():
        model = poptorch.trainingModel(net, quiet_options(),
                                       torch.optim.SGD(net.parameters(), lr=0.1))
        model(torch.ones(4, 4))
    assert sorted(testing.gradients(model)) == ["b.weight"]


def test_random_numbers_differ_from_round_to_round_and_gradients_take_the_same():
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.dropout = nn.Parameter(torch.ones(1000)), nn.Dropout(0.5)

        def forward(self, x):
            y = for_loop(3, self.dropout, [self.w * x])[0]
            return y, poptorch.identity_loss(y.sum(), "sum")

    net = Dropped()
    ours = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=1.0))
    first, _ = ours(torch.ones(1000))
    ours.copyWeightsToHost()
    assert torch.equal(1 - net.w, first)
    assert sorted(set(first.tolist())) == [0.0, 8.0]
    assert 80 <= (first > 0).sum() <= 180  # of 1,000, one in 8
    assert not torch.equal(ours(torch.ones(1000))[0] > 0, first > 0)


def test_prints_come_once_a_round(capfd):
    def forward(m, x):
        def body(v):
            return torch.sin(poptorch.ipu_print_tensor(v * m.a.bias, "v"))

        return for_loop(2, body, [x])[0]

    net = Net(forward)
    poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.0))(
        torch.ones(1, 4))
    printed = capfd.readouterr().err
    assert printed.count("v: {") == 2
    assert printed.count("v_gradient: {") == 2


def test_a_loop_is_one_op_whatever_its_count():
    def texts(count):
        ours = poptorch.inferenceModel(
            Net(lambda m, x: for_loop(count, lambda v: torch.tanh(m.a(v)), [x])[0]),
            quiet_options())
        ours.compile(torch.randn(3, 4))
        return ours.ir("plan")

    assert texts(2).count("\n") == texts(1000).count("\n")


def test_memory_of_a_gradient_is_what_it_reads():
    """Of tanh its own values; the sum needs none."""
    def bytes_of(count, body):
        net = Net(lambda m, x: for_loop(count, lambda v: body(m, v), [m.a(x)])[0])
        ours = poptorch.trainingModel(net, quiet_options(),
                                      torch.optim.SGD(net.parameters(), lr=0.1))
        ours.compile(torch.randn(256, 4))
        return ours.memory_report()["arena"]

    row = 256 * 4 * 4
    assert bytes_of(100, lambda m, v: v + m.b.bias) < 20 * row
    assert 100 * row < bytes_of(100, lambda m, v: torch.tanh(v)) < 120 * row


def test_what_is_captured_is_freed():
    net = Net(choice_in_loop)
    ours = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))
    ours(torch.randn(3, 4))
    kept = weakref.ref(net)
    ours.destroy()
    del net, ours
    gc.collect()
    assert kept() is None


def test_outside_of_poptorch():
    x = torch.ones(2)
    y = for_loop(3, lambda v: v.mul_(2), [x])
    assert y[0].tolist() == [8, 8]
    assert x.tolist() == [1, 1]
    assert cond(torch.tensor([True]), torch.neg, [x], torch.sin, [x])[0].tolist() == [-1, -1]
    assert cond(torch.tensor(False), torch.neg, [x], lambda: x * 5, [])[0].tolist() == [5, 5]
