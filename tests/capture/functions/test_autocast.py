"""``torch.autocast`` inside of ``forward`` does what it does in eager: types, values, gradients."""

import copy

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import quiet_options, relative_error

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def linear(m, x):
    return m.fc(x), m.fc(x) + x, m.fc(m.fc(x).relu())


@case
def convolution(m, x):
    y = m.conv(x.view(4, 1, 4, 8)).relu()
    return F.max_pool2d(y, 2), F.avg_pool2d(y, 2), F.interpolate(y, scale_factor=2.0)


@case
def products(m, x):
    w = m.fc.weight
    return (torch.bmm(x.view(1, 16, 8), (x @ w).view(1, 8, 16)), torch.matmul(x, w), x @ w.t(),
            torch.addmm(m.fc.bias, x, w), torch.einsum("ij,kj->ik", x, w))


@case
def elementwise_and_sums(m, x):
    y = m.fc(x)
    return y.softmax(1), F.layer_norm(y, [8]), y.norm(), y.sum(), y.exp(), y.cumsum(0), y.pow(2)


@case
def norms(m, x):
    return m.bn(m.fc(x)), m.ln(m.fc(x))


@case
def losses(m, x):
    y = m.fc(x)
    return (F.mse_loss(y, x), F.cross_entropy(y, torch.arange(16) % 8),
            F.binary_cross_entropy_with_logits(y, x.sigmoid()))


@case
def widest_of_all(m, x):
    y = m.fc(x)
    return torch.cat([y, x]), torch.stack([y, x]), torch.where(x > 0, y, x)


@case
def attention(m, x):
    q = m.fc(x).view(1, 2, 8, 8)
    y = x.view(4, 4, 8)
    return F.scaled_dot_product_attention(q, q, q), m.mha(y, y, y)[0]


@case
def recurrence(m, x):
    return m.gru(x.view(4, 4, 8))[0]


@case
def recurrence_behind_a_product(m, x):
    y = m.fc(x).view(4, 4, 8)
    state = torch.zeros(1, 4, 8)
    return (*m.gru(y), *m.gru(y, state), *m.gru(x.view(4, 4, 8), state.to(m.dtype)))


@case
def recurrence_with_a_projection(m, x):
    y, (h, c) = m.projected(x.view(4, 4, 8))
    z, (h2, c2) = m.projected(m.fc(x).view(4, 4, 8))
    return y, h, c, z, h2, c2


@case
def norms_behind_a_product(m, x):
    y = 3 * m.fc(x) + 5
    return F.layer_norm(y, [8], m.ln.weight, m.ln.bias), m.gn(y)


@case
def bilinear(m, x):
    return m.bilinear(x, x.flip(0)), F.bilinear(x, x, m.bilinear.weight)


@case
def losses_by_other_operations(m, x):
    y, classes = m.fc(x), torch.arange(16) % 8
    lengths = torch.tensor([4, 4]), torch.tensor([1, 1])
    return (F.multi_margin_loss(y, classes), F.multi_margin_loss(y, classes, 2, reduction="none"),
            F.ctc_loss(y.view(4, 4, 8)[:, :2], torch.tensor([[1], [2]]), *lengths,
                       reduction="none"))


@case
def lookups(m, x):
    return F.embedding(torch.arange(4), m.fc.weight) @ m.fc.weight


@case
def disabled_inside(m, x):
    a = m.fc(x)
    with torch.autocast("cpu", enabled=False):
        b = m.fc(x.float())
    return a, b, m.fc(a)


@case
def other_type_inside(m, x):
    other = torch.bfloat16 if m.dtype is torch.float16 else torch.float16
    a = m.fc(x)
    with torch.autocast("cpu", dtype=other, cache_enabled=False):
        b = m.other(a)
        with torch.autocast("cpu", enabled=False):
            c = m.other(b.float())
    return a, b, c, m.fc(c)


@case
def decorated(m, x):
    @torch.autocast("cpu", enabled=False)
    def inner(y):
        return m.fc(y.float())

    return inner(m.fc(x)), m.fc(x).softmax(-1)


@case
def ended(m, x):
    y = m.fc(x)
    with torch.autocast("cpu", enabled=False):
        z = x @ m.fc.weight
    return y, z.float()


class Net(torch.nn.Module):
    """Runs a case under autocast, in ``forward`` or without, where ``is_on`` says so."""

    def __init__(self, function, dtype, is_on=True):
        super().__init__()
        self.function, self.dtype, self.is_on = function, dtype, is_on
        self.fc, self.other = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.bn, self.ln = torch.nn.BatchNorm1d(8), torch.nn.LayerNorm(8)
        self.gru = torch.nn.GRU(8, 8, batch_first=True)
        self.projected = torch.nn.LSTM(8, 8, proj_size=4)
        self.gn, self.bilinear = torch.nn.GroupNorm(2, 8), torch.nn.Bilinear(8, 8, 4)
        self.mha = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.dtype, enabled=self.is_on):
            outs = self.function(self, x)
        outs = outs if isinstance(outs, tuple) else (outs,)
        after = self.fc(x)  # outside of it
        loss = sum((0.1 * out.float()).square().sum() for out in (*outs, after))
        return (*outs, after), poptorch.identity_loss(loss, "none")


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_as_in_eager(name, dtype):
    net, x = Net(CASES[name], dtype), torch.randn(16, 8)
    eager = copy.deepcopy(net)
    expected, loss = eager(x)
    loss.backward()
    gradients = {path: p.grad for path, p in eager.named_parameters() if p.grad is not None}
    opts = quiet_options()
    for path in gradients:
        opts.anchorTensor(path, f"Gradient___{path}")
    model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), 0.1))
    outs, _ = model(x)
    assert [out.dtype for out in outs] == [out.dtype for out in expected]
    # Some roundings to 16 bits; some of them go the other way.
    is_coarse = torch.bfloat16 in (dtype, *(out.dtype for out in outs))
    tolerance = 2.0**-6 if is_coarse else 2.0**-8
    for i, (out, other) in enumerate(zip(outs, expected)):
        assert relative_error(out, other) <= tolerance, i
    for path, gradient in gradients.items():
        got = model.getAnchoredTensor(path)
        assert got.dtype is gradient.dtype
        assert relative_error(got, gradient) <= 4 * 2.0**-7, path


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_run_in_the_type(dtype):
    """And their backward pass, too; what autocast keeps in float32 stays."""
    model = poptorch.trainingModel(Net(CASES["losses"], dtype), quiet_options())
    model.compile(torch.randn(16, 8))
    name = "bf16" if dtype is torch.bfloat16 else "f16"
    lines = model.ir("translate").splitlines()
    products = [line for line in lines if " matmul " in line or " addmm " in line]
    inside = [line for line in products if f": {name}[" in line]
    assert sum('part="backward"' in line for line in inside) >= 1
    assert any(" addmm " in line for line in inside)
    loss = next(line for line in lines if " mse_loss " in line)
    assert ": f32[" in loss


def test_switched_off_it_changes_nothing():
    net, x = Net(CASES["linear"], torch.bfloat16, is_on=False), torch.randn(16, 8)
    outs, _ = poptorch.inferenceModel(net, quiet_options())(x)
    assert {out.dtype for out in outs} == {torch.float32}


@pytest.mark.parametrize("dtype, other", [(torch.bfloat16, torch.float16)])
@pytest.mark.parametrize("gives_states", [False, True])
def test_lstm_of_the_other_type_of_16_bits(dtype, other, gives_states):
    """Its cell state is not cast, so that what is computed with it is float32."""
    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 3, num_layers=2, dtype=other)

        def forward(self, x):
            states = torch.full((2, 2, 3), 0.5, dtype=other)
            with torch.autocast("cpu", dtype=dtype):
                y, (h, c) = self.lstm(x, (states, -states) if gives_states else None)
            return y, h, c, poptorch.identity_loss(y.float().square().sum() + c.sum(), "none")

    net, x = Recurrent(), torch.randn(5, 2, 4).to(other)
    eager = copy.deepcopy(net)
    *expected, loss = eager(x)
    loss.backward()
    opts = quiet_options()
    opts.anchorTensor("gradient", "Gradient___lstm.weight_hh_l0")
    model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), 0.1))
    for out, value in zip(model(x), expected):
        assert out.dtype is value.dtype is torch.float32
        assert relative_error(out, value) <= 2.0**-6
    got, gradient = model.getAnchoredTensor("gradient"), eager.lstm.weight_hh_l0.grad
    assert got.dtype is gradient.dtype and relative_error(got, gradient) <= 4 * 2.0**-7
