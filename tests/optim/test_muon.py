"""Muon on the device compared with PyTorch's, whose orthogonal matrices are in bfloat16."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.fuzz.judge import budget
from tests.helpers import check_narrow, quiet_options


class Recorded(torch.nn.Module):
    """Matrices; the gradient of each is the input of the same place."""

    def __init__(self, sizes):
        super().__init__()
        self.matrices = torch.nn.ParameterList(torch.randn(size) for size in sizes)

    def forward(self, *gradients):
        products = [(p * g).sum() for p, g in zip(self.matrices, gradients)]
        return poptorch.identity_loss(sum(products), "none")


def exact(parameter, gradient, buffer, group):
    """One update in float64 by the documented formula; returns the parameter and the momentum."""
    gradient, parameter = gradient.double(), parameter.double()
    buffer = group["momentum"] * buffer + (1 - group["momentum"]) * gradient
    update = buffer
    if group["nesterov"]:
        update = group["momentum"] * buffer + (1 - group["momentum"]) * gradient
    rows, columns = parameter.shape
    x = update / max(update.norm(), group["eps"])
    a, b, c = group["ns_coefficients"]
    for _ in range(group["ns_steps"]):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    ratio = 0.2 * max(rows, columns) ** 0.5 if group["adjust_lr_fn"] == "match_rms_adamw" else \
        max(1, rows / columns) ** 0.5
    decay = 1 - group["lr"] * group["weight_decay"]
    return decay * parameter - group["lr"] * ratio * x, buffer


def steps_of(net, optimizer, gradients, step):
    """What each step adds to each parameter, and the momentum in the end."""
    found = []
    for values in gradients:
        before = [p.detach().clone() for p in net.matrices]
        step(values)
        found.append([p.detach() - old for p, old in zip(net.matrices, before)])
    return found, [optimizer.state[p]["momentum_buffer"] for p in net.matrices]


def on_device(net, settings, gradients):
    net = copy.deepcopy(net)
    optimizer = torch.optim.Muon(net.parameters(), **settings)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    found = steps_of(net, optimizer, gradients, lambda values: model(*values))
    model.destroy()
    return found


def by_torch(net, settings, gradients):
    net = copy.deepcopy(net)
    optimizer = torch.optim.Muon(net.parameters(), **settings)

    def step(values):
        for p, value in zip(net.matrices, values):
            p.grad = value.to(p.dtype)
        optimizer.step()

    return steps_of(net, optimizer, gradients, step)


def reference(net, settings, gradients):
    group, = torch.optim.Muon(net.parameters(), **settings).param_groups
    parameters = [p.detach().double() for p in net.matrices]
    buffers, found = [torch.zeros_like(p) for p in parameters], []
    for values in gradients:
        new = [exact(*one, group) for one in zip(parameters, values, buffers)]
        found.append([p - old for (p, _), old in zip(new, parameters)])
        parameters, buffers = map(list, zip(*new))
    return found, buffers


@st.composite
def settings_of(draw):
    chosen = {"lr": draw(st.sampled_from([0.02, 0.25])),
              "weight_decay": draw(st.sampled_from([0.0, 0.1])),
              "momentum": draw(st.sampled_from([0.0, 0.5, 0.95])), "nesterov": draw(st.booleans()),
              "adjust_lr_fn": draw(st.sampled_from([None, "original", "match_rms_adamw"]))}
    if draw(st.booleans()):
        chosen |= {"ns_coefficients": (2.0, -1.5, 0.5), "ns_steps": draw(st.integers(1, 6))}
    return chosen


@budget(12)
@given(st.lists(st.tuples(st.integers(1, 24), st.integers(1, 24)), min_size=1, max_size=3),
       settings_of(), st.integers(0, 2**31))
def test_steps_equal_torch(sizes, settings, seed):
    torch.manual_seed(seed)
    net = Recorded(sizes)
    gradients = [[torch.randn(size) for size in sizes] for _ in range(3)]
    check_narrow(on_device(net, settings, gradients), [by_torch(net, settings, gradients)],
                 reference(net, settings, gradients))


def test_a_gradient_of_zeros():
    net, zeros = Recorded([(3, 5)]), [[torch.zeros(3, 5)]]
    check_narrow(on_device(net, {}, zeros), [by_torch(net, {}, zeros)],
                 reference(net, {}, zeros))


def test_settings_of_a_compiled_program():
    net = Recorded([(3, 5)])
    optimizer = torch.optim.Muon(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    gradient = torch.randn(3, 5)
    model(gradient)
    group, = optimizer.param_groups
    group["lr"] = 0.0
    before = net.matrices[0].detach().clone()
    model(gradient)
    assert torch.equal(net.matrices[0], before)
    for name, value, words in (
            ("ns_steps", 3, "ns_steps=5 of parameter group 0 is already compiled, got 3"),
            ("nesterov", False, "nesterov=True of parameter group 0 is already compiled"),
            ("adjust_lr_fn", "match_rms_adamw", "adjust_lr_fn=None of parameter group 0 is"),
            ("ns_coefficients", (1, 1, 1), r"ns_coefficients=\(3.4445, -4.775, 2.0315\) of")):
        known, group[name] = group[name], value
        with pytest.raises(ValueError, match=words):
            model(gradient)
        group[name] = known
    model(gradient)


def test_training_goes_on_from_a_file(tmp_path):
    net = Recorded([(6, 4), (3, 5)])
    groups = [{"params": [net.matrices[0]]},
              {"params": [net.matrices[1]], "adjust_lr_fn": "match_rms_adamw"}]
    optimizer = torch.optim.Muon(groups, lr=0.1)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    gradients = [torch.randn(6, 4), torch.randn(3, 5)]
    model(*gradients)
    again = poptorch.load(model.save(tmp_path / "net.poptorch"))
    for one in (model, again):
        one(*gradients)
    assert all(map(torch.equal, model.state_dict().values(), again.state_dict().values()))
