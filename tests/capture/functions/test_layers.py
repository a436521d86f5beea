"""Layers that stay whole: one node each, and the same numbers as eager."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import poptorch
from poptorch._capture import capture
from poptorch._capture.library.layers import ops
from tests.capture.common import Function, check_inference, check_training, nodes
from tests.capture.graph_text import text
from tests.helpers import check_golden, quiet_options

WIDE = torch.float64


def normal(*shape):
    return torch.randn(*shape, dtype=WIDE)


class WithLoss(nn.Module):
    """Gives a layer a loss that weighs all its results."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *args):
        out = self.layer(*args)
        parts = [out] if isinstance(out, torch.Tensor) else [
            t for part in out for t in (part if isinstance(part, tuple) else [part])]
        losses = [F.mse_loss(p, torch.ones_like(p)) for p in parts]
        return out, poptorch.identity_loss(torch.stack(losses), "sum")


def attention_cases():
    bool_mask = (torch.arange(6) < 4).expand(2, 1, 5, 6)
    yield "four", [(2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 7)], {}
    yield "three", [(2, 5, 4), (2, 6, 4), (2, 6, 4)], {}
    yield "two", [(5, 4), (6, 4), (6, 4)], {}
    yield "five", [(2, 2, 3, 5, 4), (2, 2, 3, 6, 4), (2, 2, 3, 6, 4)], {}
    yield "broadcast", [(2, 3, 5, 4), (1, 3, 6, 4), (1, 3, 6, 4)], {}
    yield "causal", [(2, 3, 5, 4)] * 3, {"is_causal": True}
    yield "scale", [(2, 3, 5, 4)] * 3, {"scale": 0.3}
    yield "bool_mask", [(2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4)], {"attn_mask": bool_mask}
    yield "float_mask", [(2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4)], {"attn_mask": normal(5, 6)}
    yield "mask_of_three", [(2, 5, 4), (2, 6, 4), (2, 6, 4)], {"attn_mask": normal(2, 5, 6)}
    yield "groups", [(2, 6, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)], {"enable_gqa": True}


@pytest.mark.parametrize("name, shapes, options", list(attention_cases()), ids=lambda c: c
                         if isinstance(c, str) else "")
def test_attention(name, shapes, options):
    def forward(m, q, k, v):
        out = F.scaled_dot_product_attention(q * m.q, k * m.k, v * m.v, **options)
        return out, F.mse_loss(out, torch.ones_like(out))

    parameters = {name: normal(1) + 2 for name in "qkv"}
    module = Function(forward, parameters)
    inputs = [normal(*shape) for shape in shapes]
    captured = check_training(module, *inputs)
    assert len(nodes(captured, ops.attention.default)) == 1
    assert len(nodes(captured, ops.attention_backward.default)) == 1
    check_inference(module, *inputs)


def test_attention_with_a_trained_mask_goes_step_by_step():
    def forward(m, q):
        out = F.scaled_dot_product_attention(q, q, q, attn_mask=m.mask)
        return out, F.mse_loss(out, torch.ones_like(out))

    captured = check_training(Function(forward, {"mask": normal(5, 5)}), normal(2, 3, 5, 4))
    assert not nodes(captured, ops.attention.default)


RECURRENT = list(itertools.product([nn.LSTM, nn.GRU, nn.RNN], [1, 2], [False, True]))


@pytest.mark.sampled
@pytest.mark.parametrize("kind, layers, bidirectional", RECURRENT)
@pytest.mark.parametrize("bias, batch_first", [(True, False), (False, True)])
def test_recurrent(kind, layers, bidirectional, bias, batch_first):
    layer = kind(3, 4, layers, bias=bias, batch_first=batch_first, bidirectional=bidirectional,
                 dtype=WIDE)
    captured = check_training(WithLoss(layer), normal(5, 2, 3))
    own = {nn.LSTM: ops.lstm, nn.GRU: ops.gru, nn.RNN: ops.rnn}[kind]
    assert len(nodes(captured, own.default)) == layers * (2 if bidirectional else 1)
    check_inference(layer, normal(5, 2, 3))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_unbatched_and_with_states(kind):
    check_training(WithLoss(kind(3, 4, dtype=WIDE)), normal(5, 3))
    state = normal(1, 2, 4)
    state = (state, normal(1, 2, 4)) if kind is nn.LSTM else state
    check_training(WithLoss(kind(3, 4, dtype=WIDE)), normal(5, 2, 3), state)


def test_relu_rnn():
    check_training(WithLoss(nn.RNN(3, 4, nonlinearity="relu", dtype=WIDE)), normal(5, 2, 3))


@pytest.mark.parametrize("settings", [
    {}, {"num_layers": 2, "bidirectional": True}, {"bias": False}])
def test_projections(settings):
    layer = nn.LSTM(3, 4, proj_size=2, dtype=WIDE, **settings)
    count = 4 if settings.get("bidirectional") else 1
    states = normal(count, 2, 2), normal(count, 2, 4)
    for arguments in ((normal(5, 2, 3),), (normal(5, 2, 3), states)):
        captured = check_training(WithLoss(layer), *arguments)
        assert len(nodes(captured, ops.lstm.default)) == count
        assert len(nodes(captured, ops.lstm_backward.default)) == count
        check_inference(WithLoss(layer), *arguments)


def test_projection_behind_the_only_cell_state():
    class OfCell(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(3, 4, proj_size=2, dtype=WIDE)

        def forward(self, x):
            cell = self.layer(x)[1][1]
            return cell, poptorch.identity_loss(cell.pow(2), "mean")

    for steps, names in ((1, {"layer.weight_hr_l0"}), (2, set())):
        module = OfCell()
        captured = check_training(module, normal(steps, 2, 3))
        found = {spec.name for spec in captured.outputs if spec.kind == "grad"}
        assert {name for name, _ in module.named_parameters()} - found == names


def test_packed_sequences_of_known_lengths():
    def forward(m, x):
        sequence = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]))
        return m.gru(sequence)[0].data

    module = Function(forward)
    module.gru = nn.GRU(3, 4, dtype=WIDE)
    captured = check_inference(module, normal(5, 2, 3))
    assert len(nodes(captured, ops.gru.default)) == 1


OPTIONS = [{}, {"affine": False}, {"track_running_stats": False}, {"momentum": 0.3}, {"eps": 1e-2}]
AVERAGE = {"momentum": None}  # over all batches; instance norm has no such average
NORMS = [(nn.BatchNorm1d, (4, 3), [*OPTIONS, AVERAGE]), (nn.BatchNorm1d, (4, 3, 2), OPTIONS),
         (nn.BatchNorm2d, (4, 3, 2, 2), [*OPTIONS, AVERAGE]),
         (nn.BatchNorm3d, (2, 3, 2, 2, 2), OPTIONS), (nn.InstanceNorm2d, (4, 3, 2, 2), OPTIONS)]


@pytest.mark.parametrize("kind, shape, options", [
    (kind, shape, options) for kind, shape, some in NORMS for options in some], ids=str)
def test_batch_norm(kind, shape, options):
    layer = kind(3, dtype=WIDE, **options)
    for name, buffer in layer.named_buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
        else:
            buffer.fill_(4)
    captured = check_training(WithLoss(nn.Sequential(Scale(), layer)), normal(*shape))
    assert len(nodes(captured, ops.batch_norm.default)) == 1
    assert len(nodes(captured, ops.batch_norm_backward.default)) == 1
    check_training(WithLoss(nn.Sequential(Scale(), layer).eval()), normal(*shape))
    check_inference(layer.eval(), normal(*shape))


class Scale(nn.Module):
    """A parameter, so that the layer behind it has a gradient to pass on."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.5, dtype=WIDE))

    def forward(self, x):
        return x * self.factor


DROPOUTS = {
    "elements": (lambda x: F.dropout(x, 0.4), (6, 5)),
    "in_place": (lambda x: F.dropout(x.clone(), 0.4, inplace=True), (6, 5)),
    "aten": (lambda x: torch.dropout(x, 0.4, True), (6, 5)),
    "one": (lambda x: F.dropout1d(x, 0.4), (6, 5, 3)),
    "two": (lambda x: F.dropout2d(x, 0.4), (6, 5, 3, 2)),
    "three": (lambda x: F.dropout3d(x, 0.4), (6, 5, 3, 2, 2)),
    "one_unbatched": (lambda x: F.dropout1d(x, 0.4), (6, 5)),
    "alpha": (lambda x: F.alpha_dropout(x, 0.4, True), (6, 5)),
    "feature_alpha": (lambda x: F.feature_alpha_dropout(x, 0.4, True), (6, 5, 3)),
}


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_is_one_operation(name):
    function, shape = DROPOUTS[name]
    module = Function(lambda m, x: (function(x * m.w), F.mse_loss(function(x * m.w), x)),
                      {"w": torch.ones(1)})
    captured = capture(module, (torch.randn(shape),), training=True)
    found = nodes(captured, ops.dropout.default)
    salts = [node.args[2] for node in found if not node.meta["backward"]]
    assert len(salts) == 2 and salts[0] != salts[1]
    assert not [n for n in nodes(captured) if "bernoulli" in str(n.target)]


def test_dropout_does_nothing_where_torch_does_nothing():
    module = Function(lambda m, x: (F.dropout(x, 0.0), F.dropout(x, 0.5, False),
                                    F.alpha_dropout(x, 0.5, False), F.dropout2d(x[None], 0.0)))
    captured = capture(module, (torch.ones(2, 3, 4),), training=False)
    assert not nodes(captured, ops.dropout.default)
    everything = capture(Function(lambda m, x: F.dropout(x, 1.0)), (torch.ones(3),),
                         training=False)
    assert [str(n.target) for n in nodes(everything)] == ["aten.mul.Tensor"]


def test_a_bad_rate_is_torchs_error():
    with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
        capture(Function(lambda m, x: F.dropout(x, 1.5)), (torch.ones(3),), training=False)


def test_random_relu():
    module = Function(lambda m, x: (F.rrelu(x * m.w, training=True), (x * m.w).sum()),
                      {"w": torch.ones(1)})
    text = str([n.target for n in nodes(capture(module, (torch.ones(3),), training=False))])
    assert "uniform" in text and "where" in text


def test_multi_head_attention_keeps_its_parts():
    module = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
    x = torch.randn(2, 5, 8)
    module = Function(lambda m, x: m.attention(x, x, x, need_weights=False)[0])
    module.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
    captured = capture(module, (x,), training=False)
    assert len(nodes(captured, ops.attention.default)) == 1
    module.forward = lambda x: module.attention(x, x, x)[0]
    captured = capture(module, (x,), training=False)
    assert len(nodes(captured, ops.dropout.default)) == 1


@pytest.mark.parametrize("is_causal", (False, True))
def test_transformers_take_any_mask(is_causal):
    torch.manual_seed(1)
    inner = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, dtype=torch.float64)
    layers = nn.TransformerDecoder(inner, 2)
    mask = torch.randn(5, 5, dtype=torch.float64)
    if is_causal:
        mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)

    def forward(m, x, mask):
        y = m.layers(x, x, tgt_mask=mask, memory_mask=m.mask)
        return y, poptorch.identity_loss(y.sin(), "sum")

    module = Function(forward, buffers={"mask": mask.sin().nan_to_num()})
    module.layers = layers
    check_training(module, torch.randn(5, 2, 8, dtype=torch.float64), mask)


def test_random_relu_in_evaluation():
    def forward(m, x):
        y = F.rrelu(x * m.w, 0.1, 0.5)
        x = torch.rrelu_(x.clone(), 0.25, 0.5)
        return y, x, poptorch.identity_loss(torch.rrelu(y, 0.1, 0.2), "sum")

    x = torch.linspace(-2, 2, 6, dtype=torch.float64)
    check_training(Function(forward, {"w": torch.ones(1, dtype=torch.float64)}), x)


NORMS = {
    "batch norm": nn.BatchNorm1d(3),
    "of all batches": nn.BatchNorm1d(3, momentum=None),
    "without weights": nn.BatchNorm1d(3, affine=False),
    "without statistics": nn.BatchNorm1d(3, track_running_stats=False),
    "instance norm": nn.InstanceNorm1d(3, affine=True, track_running_stats=True),
    "two": nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3)),
    "not at the end": nn.Sequential(nn.BatchNorm1d(3), nn.Tanh()),
}


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("name", NORMS)
def test_statistics_in_the_recomputation_of_a_checkpoint(name, early):
    def forward(m, x):
        with set_checkpoint_early_stop(early):
            y = checkpoint(m.part, x, use_reentrant=False)
        return y, poptorch.identity_loss((y.sin() * m.w).sum(), "none")

    module = Function(forward, {"w": normal(4, 3, 5)})
    module.part = nn.Sequential(nn.Conv1d(3, 3, 1), copy.deepcopy(NORMS[name])).double()
    check_training(module, normal(4, 3, 5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_averages_of_statistics_far_below_those_before(dtype):
    """A variance of 1e-4 is lost in its difference from 1."""
    module = WithLoss(nn.BatchNorm1d(4, momentum=None)).to(dtype)
    eager = copy.deepcopy(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    model = poptorch.trainingModel(module, quiet_options(), optimizer)
    for _ in range(3):
        x = (0.01 * torch.randn(64, 4) + 0.1).to(dtype)
        model(x)
        eager(x)
    step = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(module.state_dict(), eager.state_dict(), rtol=step, atol=0)


# -- golden node lists -------------------------------------------------------------------------


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Tanh())

    def forward(self, x):
        y = checkpoint(self.inner, x, use_reentrant=False)
        return F.mse_loss(y, x)


GOLDEN = {
    "dropout": (Function(lambda m, x: F.mse_loss(F.dropout(x * m.w, 0.5), x),
                         {"w": torch.ones(1)}), (2, 3)),
    "dropout2d": (Function(lambda m, x: F.mse_loss(F.dropout2d(x * m.w, 0.5), x),
                           {"w": torch.ones(1)}), (2, 3, 2, 2)),
    "batch_norm": (WithLoss(nn.BatchNorm2d(3)), (2, 3, 2, 2)),
    "batch_norm_eval": (WithLoss(nn.BatchNorm2d(3).eval()), (2, 3, 2, 2)),
    "attention": (Function(lambda m, x: F.mse_loss(
        F.scaled_dot_product_attention(x * m.w, x, x), x), {"w": torch.ones(1)}), (1, 2, 3, 4)),
    "attention_dropout_mask": (Function(lambda m, x: F.mse_loss(F.scaled_dot_product_attention(
        x * m.w, x, x, attn_mask=x[..., :3] > 0, dropout_p=0.1), x),
        {"w": torch.ones(1)}), (1, 2, 3, 4)),
    "lstm": (WithLoss(nn.LSTM(3, 4)), (5, 2, 3)),
    "lstm_two_layers": (WithLoss(nn.LSTM(3, 4, 2, dropout=0.5, bidirectional=True)), (5, 2, 3)),
    "gru": (WithLoss(nn.GRU(3, 4, batch_first=True)), (2, 5, 3)),
    "rnn": (WithLoss(nn.RNN(3, 4)), (5, 2, 3)),
    "checkpoint": (Recomputed(), (2, 3)),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_nodes(name, update):
    module, shape = GOLDEN[name]
    found = text(capture(module, (torch.randn(shape),), training=True))
    check_golden(f"{__file__.rsplit('/', 1)[0]}/layers/{name}.txt", found, update)
