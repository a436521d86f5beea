"""Packed sequences, with lengths of each call or compiled in, compared with eager."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

import poptorch
from poptorch._capture import capture
from poptorch._capture.library.layers import ops
from tests.capture.common import Function, nodes
from tests.helpers import quiet_options

TIME, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6


class Packed(nn.Module):
    """A recurrent layer on packed sequences, and a loss that weighs all that it gives."""

    def __init__(self, kind, lengths=None, is_sorted=True, has_states=False, padding=0.0,
                 total=None, **settings):
        super().__init__()
        self.layer = getattr(nn, kind)(WIDTH, HIDDEN, **settings)
        count = settings.get("num_layers", 1) * (1 + settings.get("bidirectional", False))
        shown = settings.get("proj_size") or HIDDEN
        self.h0 = nn.Parameter(torch.randn(count, BATCH, shown))
        self.c0 = nn.Parameter(torch.randn(count, BATCH, HIDDEN))
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.lengths, self.is_sorted, self.has_states = lengths, is_sorted, has_states
        self.padding, self.total = padding, total

    def states(self):
        if not self.has_states:
            return None
        return (self.h0, self.c0) if isinstance(self.layer, nn.LSTM) else self.h0

    def forward(self, x, lengths=None):
        first = self.layer.batch_first
        x = x.transpose(0, 1) if first else x
        packed = rnn.pack_padded_sequence(
            x * self.scale, lengths if self.lengths is None else self.lengths, batch_first=first,
            enforce_sorted=self.is_sorted)
        y, ends = self.layer(packed, self.states())
        y, found = rnn.pad_packed_sequence(y, batch_first=first, padding_value=self.padding,
                                           total_length=self.total)
        out = [y, *(ends if isinstance(ends, tuple) else [ends])]
        loss = sum((o.float() * torch.linspace(0.5, 1.5, o.numel()).reshape(o.shape)).sum()
                   for o in out)
        return [*(o.detach() for o in out), found.int()], poptorch.identity_loss(loss, "none")


def check(net, *inputs, limit=1e-5, in_inference=False):
    """Results and gradients as eager's."""
    eager = copy.deepcopy(net)
    expected, loss = eager(*inputs)
    loss.backward()
    if in_inference:
        found, _ = poptorch.inferenceModel(copy.deepcopy(net), quiet_options())(*inputs)
        torch.testing.assert_close(found, expected, rtol=limit, atol=limit)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 1.0))
    found, _ = model(*inputs)
    torch.testing.assert_close(found, expected, rtol=limit, atol=limit)
    for (name, ours), theirs in zip(net.named_parameters(), eager.parameters(), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(
                before[name] - ours.detach(), theirs.grad, rtol=limit,
                atol=limit * float(theirs.grad.abs().max() + before[name].abs().max()))


SETTINGS = [{}, {"bidirectional": True, "batch_first": True},
            {"num_layers": 2, "bidirectional": True}, {"num_layers": 2, "batch_first": True}]
LAYERS = list(itertools.product(["LSTM", "GRU", "RNN"], SETTINGS))


@pytest.mark.sampled
@pytest.mark.parametrize("kind, settings", LAYERS)
def test_lengths_as_an_input(kind, settings):
    both = "bidirectional" in settings
    x = torch.randn(TIME, BATCH, WIDTH)
    check(Packed(kind, has_states=both, **settings), x, torch.tensor([5, 3, 1]),
          in_inference=True)
    check(Packed(kind, is_sorted=False, **settings), x, torch.tensor([2, 5, 4]))


@pytest.mark.parametrize("kind, settings", LAYERS[1::2])
def test_lengths_that_are_compiled_in(kind, settings):
    both = "bidirectional" in settings
    x = torch.randn(TIME, BATCH, WIDTH)
    check(Packed(kind, [4, 3, 1], has_states=both, **settings), x)
    check(Packed(kind, torch.tensor([2, 4, 3]), is_sorted=False, **settings), x)


@pytest.mark.parametrize("dtype, limit", [(torch.float16, 1e-2), (torch.bfloat16, 6e-2)])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_16_bit_types(kind, dtype, limit):
    net = Packed(kind, is_sorted=False, bidirectional=True, has_states=True).to(dtype)
    x = torch.randn(TIME, BATCH, WIDTH).to(dtype)
    check(net, x, torch.tensor([2, 5, 4]), limit=limit, in_inference=True)


@pytest.mark.parametrize("kind, settings", [
    ("RNN", {"nonlinearity": "relu"}), ("LSTM", {"proj_size": 3}), ("LSTM", {"bias": False}),
    ("GRU", {"bias": False}), ("LSTM", {"padding": 2.5, "total": 5}), ("GRU", {"total": 8}),
    ("LSTM", {"padding": -1.0, "total": 7})])
def test_settings(kind, settings):
    x = torch.randn(TIME, BATCH, WIDTH)
    check(Packed(kind, bidirectional=True, has_states=True, **settings), x,
          torch.tensor([5, 3, 1]))
    check(Packed(kind, [4, 3, 2], has_states=True, **settings), x)


def test_one_program_for_all_lengths():
    x = torch.randn(TIME, BATCH, WIDTH)
    net = Packed("LSTM", is_sorted=False, bidirectional=True, total=TIME)
    model = poptorch.inferenceModel(copy.deepcopy(net), quiet_options())
    for lengths in ([5, 5, 5], [1, 1, 1], [2, 4, 3]):
        found, _ = model(x, torch.tensor(lengths))
        torch.testing.assert_close(found, net(x, torch.tensor(lengths))[0])


def test_what_stands_in_the_padding_is_not_seen():
    x = torch.randn(TIME, BATCH, WIDTH)
    for number, length in enumerate([5, 3, 1]):
        x[length:, number] = torch.nan
    for kind in ("LSTM", "GRU", "RNN"):
        net = Packed(kind, bidirectional=True)
        net.scale.requires_grad_(False)
        check(net, x, torch.tensor([5, 3, 1]))


def test_a_layer_stays_one_operation():
    x = torch.randn(TIME, BATCH, WIDTH)
    captured = capture(Packed("LSTM", num_layers=2, bidirectional=True), (
        x, torch.tensor([5, 3, 1])), training=True)
    assert len(nodes(captured, ops.lstm.default)) == 4
    assert len(nodes(captured, ops.lstm_backward.default)) == 4


def test_known_lengths_are_packed_as_in_eager():
    def forward(m, a, b):
        packed = rnn.pack_sequence([a, b])
        again = rnn.PackedSequence(packed.data.relu(), packed.batch_sizes)
        y, lengths = rnn.pad_packed_sequence(again, batch_first=True)
        return (packed.data, y, lengths.int(), packed.batch_sizes.sum().int(),
                *rnn.unpack_sequence(packed))

    a, b = torch.randn(4, 2), torch.randn(2, 2)
    found = poptorch.inferenceModel(Function(forward), quiet_options())(a, b)
    torch.testing.assert_close(tuple(found), forward(None, a, b))


@pytest.mark.parametrize("read", [
    lambda m, x: m.layer(x["a"]), lambda m, x: rnn.pad_packed_sequence(x["a"]),
    lambda m, x: rnn.unpack_sequence(x["a"]),
    lambda m, x: x["a"].data * int(x["a"].batch_sizes[-1]),
    lambda m, x: x["a"].data * x["a"].batch_sizes.tolist()[0],
], ids=["layer", "padded", "unpacked", "item", "list"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_packed_sequence_is_no_argument(kind, read):
    packed = rnn.pack_padded_sequence(torch.randn(TIME, BATCH, WIDTH), torch.tensor([5, 3, 1]))
    module = Function(read)
    module.layer = getattr(nn, kind)(WIDTH, 2)
    model = poptorch.inferenceModel(module, quiet_options())
    with pytest.raises(poptorch.Error, match=(
            r"^\[arguments\] args\.0\.a is a torch.nn.utils.rnn.PackedSequence, and forward needs "
            r"the values of its batch sizes, .* Pass the padded tensor and the lengths, and "
            r"call pack_padded_sequence in forward.\n  at .*test_packed.py:\d+")):
        model({"a": packed})


def test_the_data_of_a_packed_argument():
    packed = rnn.pack_padded_sequence(torch.randn(TIME, BATCH, WIDTH), torch.tensor([5, 3, 1]))
    model = poptorch.inferenceModel(Function(lambda m, x: (x.data * 2, x)), quiet_options())
    doubled, same = model(packed)
    assert torch.equal(doubled, packed.data * 2) and torch.equal(same.data, packed.data)
    assert isinstance(same, rnn.PackedSequence)


@pytest.mark.parametrize("lengths, total, words", [
    ([3, 5, 1], None, "lengths are to fall .* Pass enforce_sorted=False"),
    ([5, 3, 0], None, "a length is not between 1 and 5"),
    ([6, 3, 1], None, "a length is not between 1 and 5"),
    ([4, 3, 1], None, "shorter than the 5 steps .* Pass total_length=5"),
    ([5, 3, 1], 4, "total_length is 4, but a sequence is longer"),
])
def test_lengths_that_do_not_fit(lengths, total, words):
    model = poptorch.inferenceModel(Packed("GRU", total=total), quiet_options())
    x = torch.randn(TIME, BATCH, WIDTH)
    with pytest.raises(poptorch.Error, match=f"(?s){words}.*test_packed.py:"):
        model(x, torch.tensor(lengths))
    model(x, torch.tensor([4, 3, 1] if total else [5, 3, 1]))  # the model goes on


@pytest.mark.parametrize("total", [None, 4])
@pytest.mark.parametrize("trains", [False, True])
def test_lengths_are_checked_where_only_the_sequences_are_read(trains, total):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.RNN(WIDTH, HIDDEN)

        def forward(self, x, n):
            packed = rnn.pack_padded_sequence(x, n)
            y, _ = rnn.pad_packed_sequence(self.layer(packed)[0], total_length=total)
            return poptorch.identity_loss(y.mean(), "none")

    net, x = Net(), torch.randn(TIME, BATCH, WIDTH)
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 0.0)) \
        if trains else poptorch.inferenceModel(net, quiet_options())
    right, wrong = ([4, 3, 1], [5, 3, 1]) if total else ([5, 3, 1], [4, 3, 1])
    torch.testing.assert_close(model(x, torch.tensor(right)), net(x, torch.tensor(right)).detach())
    with pytest.raises(poptorch.Error, match="pad_packed_sequence"):
        model(x, torch.tensor(wrong))


def packed(x, n):
    return rnn.pack_padded_sequence(x, n)


@pytest.mark.parametrize("use", [
    lambda x, n: packed(x, n).data.sum(), lambda x, n: packed(x, n).data * 2,
    lambda x, n: packed(x, n), lambda x, n: packed(x, n).data,
    lambda x, n: packed(x, n).batch_sizes.sum(), lambda x, n: x * packed(x, n).data.shape[0],
    lambda x, n: nn.functional.linear(packed(x, n).data, x[:, 0, :4])])
def test_data_of_unknown_size(use):
    words = "(?s)size depends on the lengths of each call.*\n  at .*test_packed.py:"
    module = Function(lambda m, x, n: use(x, n))
    with pytest.raises(poptorch.Error, match=words):
        poptorch.inferenceModel(module, quiet_options())(
            torch.randn(TIME, BATCH, WIDTH), torch.tensor([5, 3, 1]))


def test_a_packed_sequence_of_arguments():
    x = rnn.pack_padded_sequence(torch.randn(TIME, BATCH, WIDTH), [5, 3, 1])
    module = Function(lambda m, *parts: rnn.pad_packed_sequence(rnn.PackedSequence(*parts)))
    with pytest.raises(poptorch.Error, match="Pass padded tensors and lengths to the model"):
        poptorch.inferenceModel(module, quiet_options())(x.data, x.batch_sizes)


def test_pytorchs_own_words():
    module = Function(lambda m, x: rnn.pack_padded_sequence(x, [3, 5, 1]).data)
    with pytest.raises(poptorch.Error, match="must be sorted in decreasing order"):
        poptorch.inferenceModel(module, quiet_options())(torch.randn(TIME, BATCH, WIDTH))


@pytest.mark.parametrize("lengths", [[5, 2, 3], torch.tensor([5, 2, 3])], ids=["list", "tensor"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8, torch.float16])
def test_the_type_of_what_is_packed(dtype, lengths):
    class Net(nn.Module):
        def forward(self, x):
            packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            return rnn.pad_packed_sequence(packed, padding_value=1.7)[0]

    x = torch.randint(0, 5, (TIME, BATCH, 2)).to(dtype)
    expected = Net()(x)
    found = poptorch.inferenceModel(Net(), quiet_options())(x)
    assert found.dtype is (torch.int32 if dtype is torch.int64 else dtype)
    assert torch.equal(found.to(dtype), expected)


@pytest.mark.parametrize("repeats", [
    lambda body, x: poptorch.for_loop(2, body, [x])[0],
    lambda body, x: poptorch.cond(x.sum() > -1e9, body, [x], lambda v: v * 2, [x])[0],
], ids=["loop", "branch"])
def test_packing_in_a_body_that_is_trained(repeats):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(WIDTH, WIDTH)

        def forward(self, x, lengths):
            def body(v):
                packed = rnn.pack_padded_sequence(v, lengths, enforce_sorted=False)
                return [rnn.pad_packed_sequence(self.layer(packed)[0], total_length=TIME)[0]]

            return poptorch.identity_loss(repeats(body, x).pow(2).sum(), "none")

    net = Net()
    eager = copy.deepcopy(net)
    x, lengths = torch.randn(TIME, BATCH, WIDTH), torch.tensor([5, 2, 3])
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 0.1))
    loss, expected = model(x, lengths), eager(x, lengths)
    expected.backward()
    torch.optim.SGD(eager.parameters(), 0.1).step()
    torch.testing.assert_close(loss, expected.detach())
    for own, other in zip(net.parameters(), eager.parameters()):
        torch.testing.assert_close(own, other)
