"""Random numbers of compiled graphs follow torch's generator."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import poptorch
from tests.helpers import check_equal_bits, quiet_options
from tests.torch_compile.common import compiled


class Drawing(nn.Module):
    """Numbers of all kinds: of a layer, of an element-wise operation, and of a loop."""

    def forward(self, x):
        places = torch.randperm(x.shape[0])
        return nn.functional.dropout(x) + torch.rand_like(x), places, torch.bernoulli(x / 2)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_seed_of_torch(is_dynamic):
    run, x = compiled(Drawing()), torch.ones(30, 4)
    if is_dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    seen = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        seen.append((run(x), run(x), torch.rand(3)))
    check_equal_bits(seen[0], seen[1])
    for first, second in ((seen[0][0], seen[0][1]), (seen[0][0], seen[2][0])):
        assert not any(torch.equal(*pair) for pair in zip(first, second))


def test_graphs_without_random_numbers_draw_none():
    run = compiled(nn.Linear(3, 2))
    state = torch.get_rng_state()
    for _ in range(2):
        run(torch.ones(1, 3)).sum().backward()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.RReLU()], ids=["dropout", "rrelu"])
def test_checkpoints_recompute_the_same_numbers(layer, use_reentrant):
    run = compiled(layer)
    x = torch.full((1000,), -1.0, requires_grad=True)
    for _ in range(3):  # the first call compiles
        x.grad = None
        y = checkpoint(run, x, use_reentrant=use_reentrant)
        y.sum().backward()
        check_equal_bits(y.detach(), -x.grad)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_of_several_layers(use_reentrant):
    layers = [nn.Dropout(0.3), nn.LSTM(8, 8, 2, dropout=0.5, batch_first=True),
              nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)]

    def network(x):
        return layers[2](layers[1](layers[0](x))[0]).square().mean()

    def loss_and_gradient(function):
        x.grad = None
        torch.manual_seed(1)
        loss = function(x)
        loss.backward()
        return loss.detach(), x.grad

    run, x = compiled(network), torch.randn(2, 5, 8, requires_grad=True)
    for _ in range(2):
        torch.testing.assert_close(
            loss_and_gradient(lambda x: checkpoint(run, x, use_reentrant=use_reentrant)),
            loss_and_gradient(run))


@pytest.mark.parametrize("is_direct", [False, True])
def test_stochastic_rounding(is_direct):
    options = quiet_options()
    options.Precision.enableStochasticRounding(True)
    run = poptorch.compile(lambda x: (x.half() if is_direct else x.half().view(-1)) * 1.0, options)
    x, seen = torch.full((10, 100), 1 + 2**-12), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        run(x)
        seen.append(run(x))
    check_equal_bits(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
