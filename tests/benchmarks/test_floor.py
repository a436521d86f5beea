"""The list of products that the floor replays, and the replay."""

import pytest
import torch
from torch import nn

from benchmarks.calls import Call, Operand, record
from benchmarks.floor import Floor
from benchmarks.networks import Classifier, Recurrent, bert


def _kinds(calls):
    return [call.kind for call in calls]


def _convnet():
    layers = [nn.Conv2d(2, 4, 3, padding=1), nn.Flatten(), nn.Linear(4 * 25, 3)]
    return Classifier(nn.Sequential(*layers)), (torch.randn(2, 2, 5, 5), torch.tensor([0, 1]))


def test_a_training_step_of_a_convnet():
    module, inputs = _convnet()
    calls = record(module.train(), inputs)
    # the image needs no gradient
    assert _kinds(calls) == ["conv", "mm", "mm", "mm", "conv_weight"]
    assert [call.flops() for call in calls if call.kind.startswith("conv")] == [
        2 * (2 * 4 * 25) * (2 * 9)
    ] * 2
    assert sum(call.flops() for call in calls if call.kind == "mm") == 3 * 2 * (2 * 100 * 3)


def test_inference_has_the_forward_calls_only():
    module, inputs = _convnet()
    assert _kinds(record(module.eval(), inputs)) == ["conv", "mm"]


def test_flops_of_grouped_and_transposed_convolutions():
    settings = ((1, 1), (0, 0), (1, 1), False, (0, 0), 2)
    x, weight = Operand.plain(1, 4, 3, 3), Operand.plain(6, 2, 1, 1)
    assert Call("conv", (x, weight), settings).flops() == 2 * 9 * 6 * 2
    settings = ((2, 2), (0, 0), (1, 1), True, (0, 0), 1)
    x, weight = Operand.plain(1, 4, 3, 3), Operand.plain(4, 5, 2, 2)
    assert Call("conv", (x, weight), settings).flops() == 2 * 9 * 4 * 5 * 4


def test_least_bytes_leave_out_what_a_gradient_does_not_read():
    settings = ((1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    operands = tuple(Operand.plain(*s) for s in ((1, 8, 4, 4), (1, 2, 4, 4), (8, 2, 1, 1)))
    assert Call("conv_input", operands, settings).bytes() == 4 * (128 + 16 + 32)
    assert Call("conv_weight", operands, settings).bytes() == 4 * (128 + 32 + 16)


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3)])
def test_recurrent_products_go_over_the_sequence_where_they_can(kind, gates):
    steps, batch = 5, 2
    inputs = (torch.randn(batch, steps, 128), torch.tensor([0, 1]))
    forward = 2 * batch * steps * gates * 256 * (128 + 256 + 256 + 256)
    backward = forward + 2 * batch * steps * gates * 256 * (256 + 256 + 256)
    head = 2 * batch * 256 * 10
    calls = record(Recurrent(kind).train(), inputs)
    assert sum(call.flops() for call in calls) == forward + backward + 3 * head
    calls = record(Recurrent(kind).eval(), inputs)
    assert sum(call.flops() for call in calls) == forward + head


def test_attention_counts_whether_it_is_fused_or_not():
    tokens = torch.randint(0, 100, (1, 16))
    products = {}
    for trains in (False, True):
        calls = record(bert(1).train(trains), (tokens, tokens))
        products[trains] = [call for call in calls if call.kind == "bmm"]
    assert len(products[False]) == 2
    assert {call.flops() for call in products[True]} == {2 * 12 * 16 * 16 * 64}


def test_an_encoder_layer_is_its_products_in_inference_too():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    calls = record(layer.eval(), (torch.randn(3, 5, 16),))
    rows, width = 3 * 5, 16
    weights = 3 * width * width + width * width + 2 * width * 32
    attention = 2 * (3 * 2) * 5 * 5 * (width // 2)
    assert sum(call.flops() for call in calls) == 2 * rows * weights + 2 * attention
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.sampled
def test_the_replay_runs_every_call_in_one_of_the_layouts():
    for trains in (True, False):
        module, inputs = _convnet()
        floor = Floor(module.train(trains), inputs)
        floor.call()
        assert floor.totals()["calls"] == len(floor.calls) == sum(r["count"] for r in floor.rows())
        ways = {row["way"] for row in floor.rows() if row["kind"] == "conv"}
        assert ways <= {"nchw", "nhwc", "packed"}
        assert all(row["ms"] > 0 for row in floor.rows())
    assert floor.dispatch_us() > 0
