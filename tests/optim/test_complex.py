"""Complex parameters: optimizers update their real and imaginary parts, as in PyTorch."""

import copy

import pytest
import torch

import poptorch
from tests.helpers import check_narrow, quiet_options

KINDS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, 0.05), "rprop": lambda p: torch.optim.Rprop(p, 0.05),
    "amsgrad": lambda p: torch.optim.AdamW(p, 0.05, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.05, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.05, initial_accumulator_value=0.1),
    "adamax": lambda p: torch.optim.Adamax(p, 0.05), "nadam": lambda p: torch.optim.NAdam(p, 0.05),
    "adadelta": lambda p: torch.optim.Adadelta(p, 0.05),
}


class Net(torch.nn.Module):
    """A complex matrix after a real layer."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = torch.fft.fft(self.layer(x)) @ self.weight
        return y, poptorch.identity_loss((y.abs() ** 2).mean(), "none")


def states(net, optimizer):
    found = {"weight": torch.view_as_real(net.weight.detach()), "bias": net.layer.bias.detach()}
    for name, value in optimizer.state[net.weight].items():
        assert value.is_complex() == (value.dim() > 0), name
        found[name] = torch.view_as_real(value) if value.is_complex() else value.float()
    return found


def eager(net, kind, batches, dtype):
    net = copy.deepcopy(net)
    for name in ("weight", "layer"):
        part = getattr(net, name)
        if name == "layer":
            part.to(dtype)
        elif dtype is torch.float64:
            net.weight = torch.nn.Parameter(part.detach().to(torch.complex128))
    optimizer = KINDS[kind](net.parameters())
    for batch in batches:
        optimizer.zero_grad()
        net(batch.to(dtype))[1].backward()
        optimizer.step()
    return states(net, optimizer)


@pytest.mark.parametrize("kind", KINDS)
def test_updates_and_states(kind, seed):
    net, batches = Net(), [torch.randn(5, 4) for _ in range(3)]
    narrow, wide = (eager(net, kind, batches, dtype) for dtype in (torch.float32, torch.float64))
    optimizer = KINDS[kind](net.parameters())
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model(batches[0])
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for batch in batches[1:]:
        model(batch)
    check_narrow(states(net, optimizer), [narrow], wide)


def test_accumulation_and_replicas(seed):
    net, batch = Net(), torch.randn(8, 4)
    eagers = [eager(net, "adam", [batch], dtype) for dtype in (torch.float32, torch.float64)]
    options = quiet_options(replicationFactor=2)
    options.Training.gradientAccumulation(2)
    optimizer = KINDS["adam"](net.parameters())
    poptorch.trainingModel(net, options, optimizer)(batch)
    check_narrow(states(net, optimizer), eagers[:1], eagers[1])


def test_an_update_that_is_not_elementwise():
    net = Net()
    net.layer.requires_grad_(False)
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.Muon([net.weight]))
    with pytest.raises(poptorch.Error, match=r"weight is torch.complex64, and Muon is not .* Adam"):
        model(torch.randn(5, 4))
