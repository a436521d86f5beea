"""In-place changes, views and out= arguments mean what they mean in PyTorch."""

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function, check_inference, check_training
from tests.capture.graph_text import text
from tests.helpers import check_golden, quiet_options

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def add_to_input(m, x, y):
    x += 1
    return x * 2


@case
def change_both_inputs(m, x, y):
    x.mul_(y)
    y.sub_(x)
    return x + y


@case
def view_writes_through(m, x, y):
    flat = x.view(-1)
    flat[2:5] = 7.0
    return x.sum(0), flat


@case
def base_change_is_seen_by_views(m, x, y):
    row, column, transposed = x[1], x[:, 2], x.t()
    x.mul_(3.0)
    return row + 1, column * 2, transposed @ y


@case
def chain_of_views(m, x, y):
    x[1:3].transpose(0, 1)[2].unsqueeze(0).add_(y[0, 1:3])
    return x.clone()


@case
def narrow_select_chunk(m, x, y):
    a, b = x.chunk(2, dim=1)
    a.copy_(b)
    x.narrow(0, 1, 2).zero_()
    b.select(0, 0).fill_(5.0)
    return a, b


@case
def unbind_and_split(m, x, y):
    first, second, *_ = x.unbind(0)
    first.add_(second)
    parts = x.split([1, 3], dim=1)
    parts[1].clamp_(-0.5, 0.5)
    return parts[0], first


@case
def index_put_and_masks(m, x, y):
    x[[0, 2], [1, 3]] = 4.0
    x[y > 0.5] = -1.0
    y.masked_fill_(y < 0, 0.0)
    return x, y


@case
def step_slices(m, x, y):
    x[::2, 1::2] *= 10
    return x


@case
def diagonal(m, x, y):
    x.diagonal().fill_(1.0)
    return x @ y.t()


@case
def as_strided(m, x, y):
    x.as_strided((2, 2), (1, 4)).neg_()
    return x


@case
def detach_shares_memory(m, x, y):
    z = x * 2
    z.detach().add_(1)
    return z


@case
def clone_does_not(m, x, y):
    z = x.clone()
    z.add_(1)
    return x, z


@case
def metadata_in_place(m, x, y):
    z = (x * 2).unsqueeze_(0)
    w = x.reshape(2, 8)
    z.squeeze_(0).t_().add_(1)
    return z, w.unsqueeze_(-1).transpose_(0, 1)


@case
def two_copies_last_wins(m, x, y):
    x.copy_(y)
    x.copy_(y * 2)
    return None


@case
def copy_broadcasts_and_casts(m, x, y):
    z = torch.zeros(4, 4, dtype=torch.int32)
    z.copy_(y[0] * 10)
    x.copy_(z)
    return z


@case
def out_arguments(m, x, y):
    out = torch.empty(4, 4, dtype=x.dtype)
    torch.matmul(x, y, out=out)
    values, indices = torch.empty(4, dtype=x.dtype), torch.empty(4, dtype=torch.int64)
    torch.max(x, 1, out=(values, indices))
    torch.mul(x, 2.0, out=y)
    return out, values, indices


@case
def bmm_addmv_bucketize_out(m, x, y):
    a, b = torch.empty(1, 4, 4, dtype=x.dtype), torch.empty(4, dtype=x.dtype)
    torch.bmm(x[None], y[None], out=a)
    torch.addmv(x[0], x, y[0], out=b)
    c = torch.empty(4, 4, dtype=torch.int64)
    torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0], dtype=x.dtype), out=c)
    return a, b, c


@case
def inplace_activations(m, x, y):
    return F.relu_(x.clone()), F.elu_(y), torch.sigmoid_(x), F.hardtanh(y, inplace=True)


@case
def scatter_in_place(m, x, y):
    x.scatter_(1, torch.tensor([[0, 1], [2, 3]]), y[:2, :2])
    x.index_add_(0, torch.tensor([0, 3]), y[1:3])
    x.index_copy_(0, torch.tensor([1]), y[:1])
    x.index_fill_(1, torch.tensor([3]), 9.0)
    return x.scatter_add_(0, torch.tensor([[1, 1, 1, 1]]), y[:1])


@case
def fresh_constant_is_changed(m, x, y):
    z = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=x.dtype)
    z[1:3] *= 2
    return x * z


@case
def list_of_inputs(m, x, y):
    values = [x, y]
    for value in values:
        value += 1
    return values


@case
def loop_that_fills_a_result(m, x, y):
    out = torch.zeros_like(x)
    for i in range(4):
        out[i] = x[i] * i + out.sum()
    return out


@case
def operators_in_place(m, x, y):
    x -= y
    x /= 2
    x **= 2
    mask = x > 0.5
    mask &= y > 0
    mask |= y < -1
    return x, mask


@case
def windows(m, x, y):
    x.unfold(0, 2, 2)[1].add_(1)
    return x


@case
def tril_and_random_like(m, x, y):
    return x.tril_(), y.triu_(1), x.cumsum_(0)


def values(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 4, generator=generator, dtype=torch.float64) for _ in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_inference(name, seed):
    check_inference(Function(CASES[name]), *values(seed))


@pytest.mark.parametrize("name", CASES)
def test_graph(name, update):
    x, y = (t.float() for t in values(0))
    found = text(capture(Function(CASES[name]), (x, y), training=False))
    check_golden(f"{__file__.rsplit('/', 1)[0]}/{name}.txt", found, update)


def training_case(m, x, y):
    h = x @ m.weight
    h[:, 0].mul_(2.0)
    h[1:] += m.bias
    z = torch.zeros_like(h)
    z[:, :2] = h[:, 2:]
    z[:, 2:].copy_(h[:, :2].tanh())
    with torch.no_grad():
        m.mean.lerp_(h.mean(0), 0.1)
        m.steps.add_(1)
        m.history.copy_(m.history.roll(1, 0))
        m.history[0] = m.mean
    out = F.relu_(z) * m.mean
    return out, ((out - y) ** 2).mean()


def marked_training_case(m, x, y):
    out, loss = training_case(m, x, y)
    return out, poptorch.identity_loss(loss, "none")


def test_training(seed):
    x, y = values(seed)
    parameters = {"weight": values(seed + 1)[0], "bias": values(seed + 2)[0][0]}
    buffers = {"mean": torch.rand(4, dtype=torch.float64), "steps": torch.tensor(3),
               "history": torch.zeros(3, 4, dtype=torch.float64)}
    check_training(Function(marked_training_case, parameters, buffers), x, y)


def test_views_are_computed_again_only_when_used():
    def forward(m, x):
        unused = [x[i] for i in range(4)]
        x.add_(1)
        return x, len(unused)

    captured = capture(Function(forward), (torch.zeros(4, 4),), training=False)
    assert [n.target for n in captured.graph.nodes if n.op == "call_function"] == [
        torch.ops.aten.add.Tensor]


def test_the_work_is_linear_in_the_number_of_changes():
    def forward(m, x):
        for _ in range(300):
            x[0].add_(1)
        return x

    captured = capture(Function(forward), (torch.zeros(4, 4),), training=False)
    assert len(captured.graph.nodes) <= 3 * 300 + 10


REFUSED = {
    "but several of its elements": lambda m, x: x.unfold(0, 3, 1).add_(1),
    "changes a view of a tensor in place, but several": lambda m, x: x[:1].expand(4, 4).add_(1),
    r"shape \[2\] but the result has \[4, 4\]": lambda m, x: torch.add(x, x, out=torch.empty(2)),
    r"shape \[0\] but the result has \[4, 4\]": lambda m, x: torch.mm(x, x, out=torch.empty(0)),
    r"shape \[0, 2\] but the result has \[4\]": lambda m, x: torch.max(
        x, 0, out=(torch.empty(4), torch.empty(0, 2, dtype=torch.int64))),
    r"shape \[0, 4\] but the result has \[4, 4\]": lambda m, x: torch.logaddexp(
        x, x, out=(x * 2)[1:1]),
    r"resize_ enlarges a tensor from \[1\] to \[5\]": lambda m, x: torch.randn(
        5, out=torch.empty(1)),
    "result type Float can't be cast": lambda m, x: torch.add(
        x, 1, out=torch.empty(4, 4, dtype=torch.int64)),
    r"_foreach_add_.*no functional": lambda m, x: torch._foreach_add_([x], 2.0),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_has_no_functional_form_is_refused_by_place(words):
    with pytest.raises(poptorch.Error, match=f"(?s){words}.*\n  at .*test_functionalize.py:"):
        capture(Function(REFUSED[words]), (torch.zeros(4, 4),), training=False)


@pytest.mark.parametrize("step", (1, 2))
def test_operands_are_read_before_the_tensor_changes(step):
    def forward(m, x):
        x, index = (x * 1)[::step], torch.tensor([1, 2, 3, 0])
        y, z = x.clone(), x.clone()
        x[1:] += x[:-1]
        y[:-1].copy_(y[1:])
        z.scatter_(0, index, z[:])
        return x, y, z

    model = poptorch.inferenceModel(Function(forward), quiet_options())
    x, y, z = model(torch.arange(4.0 * step))
    assert (x / step).tolist() == [0, 1, 3, 5]
    assert (y / step).tolist() == [1, 2, 3, 3]
    assert (z / step).tolist() == [3, 0, 1, 2]
    model.destroy()


def test_a_part_of_what_changes_later():
    def forward(m, x):
        x = x * m.w
        y, part = m.w * 2, x.unbind(0)[0]
        y.add_(part)
        x.neg_()
        return x, poptorch.identity_loss(y.sin() + x.cos().sum(), "sum")

    w = torch.linspace(1, 2, 4, dtype=torch.float64)
    check_training(Function(forward, {"w": w}), torch.ones(3, 4, dtype=torch.float64))
