"""Names of tensors, and anchors: values from inside of the model."""

import logging

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

OutputMode = poptorch.OutputMode


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 5)
        self.norm = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(5, 5))
        self.fc2 = torch.nn.Linear(5, 3)

    def hidden(self, x):
        return torch.relu(self.fc1(x))

    def forward(self, x, target=None):
        y = self.fc2(self.norm(self.hidden(x)))
        if target is None:
            return y
        return y, torch.nn.functional.cross_entropy(y, target)


def options(anchors=(), **settings):
    opts = quiet_options(**settings)
    for anchor in anchors:
        opts.anchorTensor(*anchor)
    return opts


def batch(n=6):
    return torch.randn(n, 4), torch.randint(0, 3, (n,))


def training(net, opts, lr=0.1):
    return poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), lr=lr))


def test_names_are_readable_and_stable():
    def names():
        model = training(Net(), options())
        model.compile(*batch())
        return model.getTensorNames()

    found = names()
    assert found == names() and len(found) == len(set(found))
    trained = [name for name, _ in Net().named_parameters()]
    for name in trained:
        assert {name, f"Gradient___{name}", f"UpdatedVar___{name}"} <= set(found)
    assert "norm.weight" not in found  # of a weight norm there are the two factors
    assert {"input.x", "input.target", "output.0", "output.1", "loss", "fc1/addmm", "relu",
            "backward/fc2/mm"} <= set(found)


def test_names_need_a_compiled_model():
    model = poptorch.inferenceModel(Net(), options())
    with pytest.raises(AssertionError, match="not compiled"):
        model.getTensorNames()
    model.compile(batch()[0])
    assert not any("___" in name for name in model.getTensorNames())
    model.destroy()
    with pytest.raises(AssertionError, match="not compiled"):
        model.getTensorNames()


def test_gradients_and_weights():
    net, lr = Net(), 0.25
    before = {name: value.detach().clone() for name, value in net.named_parameters()}
    anchors = [(name, name) for name in before]
    anchors += [(kind + name, kind + name) for name in before
                for kind in ("Gradient___", "UpdatedVar___")]
    model = training(net, options(anchors), lr)
    data = batch()
    reference = Net()
    reference.load_state_dict(before)
    loss = reference(*data)[1]
    loss.backward()
    assert model(*data)[1].shape == torch.Size([])
    for name, parameter in reference.named_parameters():
        assert torch.equal(model.getAnchoredTensor(name), before[name])
        gradient = model.getAnchoredTensor(f"Gradient___{name}")
        torch.testing.assert_close(gradient, parameter.grad)
        assert torch.equal(model.getAnchoredTensor(f"UpdatedVar___{name}"),
                           dict(net.named_parameters())[name])


@pytest.mark.parametrize("mode, period, kept, words", [
    (OutputMode.All, 1, [0, 1, 2, 3, 4, 5], "ALL/1"), (OutputMode.Final, 1, [5], "FINAL/1"),
    (OutputMode.EveryN, 3, [2, 5], "EVERYN/3"), (OutputMode.Sum, 1, None, "Sum/1"),
    (None, 1, [0, 1, 2, 3, 4, 5], "ALL/1"),
    (OutputMode.Default, 1, [0, 1, 2, 3, 4, 5], "ALL/1"),
])
def test_output_modes(mode, period, kept, words, caplog, monkeypatch):
    monkeypatch.setattr(poptorch.logger, "propagate", True)
    net = Net()
    model = poptorch.inferenceModel(net, options([("h", "relu", mode, period)],
                                                 deviceIterations=6))
    x = torch.randn(12, 4)
    with caplog.at_level(logging.DEBUG, logger=poptorch.logger.name):
        model(x)
    assert f"Anchored relu {words}" in caplog.text
    steps = net.hidden(x).detach().reshape(6, 2, 5)
    expected = steps.sum(0) if kept is None else steps[kept].reshape(-1, 5)
    torch.testing.assert_close(model.getAnchoredTensor("h"), expected)


def test_within_and_outside_of_accumulation():
    opts = options([("h", "relu", OutputMode.All), ("g", "Gradient___fc1.bias", OutputMode.All),
                    ("loss", "loss")], deviceIterations=3, replicationFactor=2)
    opts.Training.gradientAccumulation(2)
    model = training(Net(), opts)
    _, loss = model(*batch(24))
    assert model.getAnchoredTensor("h").shape == (24, 5)  # every micro-batch
    assert model.getAnchoredTensor("g").shape == (3 * 2 * 5,)  # every update, of each replica
    assert torch.equal(model.getAnchoredTensor("loss"), loss)  # as the results: Final


def test_the_default_mode_is_that_of_the_kind_of_model():
    opts = options([("h", "relu", OutputMode.Default), ("all", "relu")], deviceIterations=3)
    model = training(Net(), opts.outputMode(OutputMode.All))
    model(*batch(6))
    every = model.getAnchoredTensor("all")
    assert every.shape == (6, 5) and torch.equal(model.getAnchoredTensor("h"), every[-2:])


def test_anchors_change_nothing_else(tmp_path):
    net = Net().eval()
    x, _ = batch()
    plain = poptorch.inferenceModel(net, options())
    anchored = poptorch.inferenceModel(net, options([("h", "relu")]))
    assert torch.equal(plain(x), anchored(x))
    assert "anchor.h" not in plain.ir("plan") and "anchor.h" in anchored.ir("plan")
    again = poptorch.inferenceModel(net, options([("h", "relu")]))
    again.loadExecutable(anchored.save(tmp_path / "net.poptorch", export_model=False))
    again(x)
    assert torch.equal(again.getAnchoredTensor("h"), anchored.getAnchoredTensor("h"))
    assert again.getTensorNames() == anchored.getTensorNames()


def test_wrong_names():
    model = poptorch.inferenceModel(Net(), options([("w", "fc1.wieght")]))
    with pytest.raises(poptorch.Error, match=r"no tensor 'fc1.wieght'. Did you mean fc1.weight"):
        model.compile(batch()[0])
    model = poptorch.inferenceModel(Net(), options([("w", "fc1.weight")]))
    with pytest.raises(poptorch.Error, match="not been compiled"):
        model.getAnchoredTensor("w")
    model.compile(batch()[0])
    with pytest.raises(poptorch.Error, match="the model has not run"):
        model.getAnchoredTensor("w")
    with pytest.raises(poptorch.Error, match="no tensor is anchored as 'v'. Anchored: w"):
        model.getAnchoredTensor("v")


@pytest.mark.parametrize("settings", [{}, {"Training__gradientAccumulation": 2},
                                      {"replicationFactor": 2}])
def test_gradients_of_weights_and_activations(settings):
    """Against autograd: of a weight what the optimizer sees, of activations each micro-batch."""
    net = Net()
    names = {"weight": "Gradient___fc2.weight", "sum": "backward/fc2/sum",
             "hidden": "backward/norm/mm"}
    opts = options([(short, name, OutputMode.All) for short, name in names.items()], **settings)
    model = training(net, opts)
    data = batch(4)
    parts = 2 if settings else 1
    expected = {"weight": 0, "sum": [], "hidden": []}
    for x, target in zip(*(part.chunk(parts) for part in data), strict=True):
        hidden = net.hidden(x).detach().requires_grad_()
        normed = net.norm(hidden)
        scores = net.fc2(normed)
        scores.retain_grad()
        net.zero_grad()
        torch.nn.functional.cross_entropy(scores, target).backward()
        expected["weight"] = expected["weight"] + net.fc2.weight.grad / parts
        expected["sum"].append(scores.grad.sum(0))
        expected["hidden"].append(hidden.grad)
    model(*data)
    found = {name for name in model.getTensorNames() if name.startswith("backward/")}
    assert set(names.values()) - found == {names["weight"]}, sorted(found)
    replicas = settings.get("replicationFactor", 1)
    torch.testing.assert_close(model.getAnchoredTensor("weight"),
                               torch.cat([expected["weight"]] * replicas))
    for short in ("sum", "hidden"):
        anchored = model.getAnchoredTensor(short)
        torch.testing.assert_close(anchored.flatten(), torch.cat(expected[short]).flatten())


def test_anchored_gradients_are_those_of_the_unscaled_step_in_half_precision():
    net = torch.nn.Linear(4, 2).half()

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return poptorch.identity_loss(self.net(x).float().sum(), "none")

    model = training(Loss(), options([("g", "Gradient___net.weight")]))
    x = torch.randn(3, 4).half()
    model(x)
    gradient = model.getAnchoredTensor("g")
    assert gradient.dtype == torch.float16
    torch.testing.assert_close(gradient, x.float().sum(0).half().expand(2, 4), rtol=2e-3,
                               atol=2e-3)


def test_a_buffer_that_is_called_like_an_operation():
    class Mean(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.full((2,), 3.0))

        def forward(self, x):
            return x.mean(0) * self.mean

    model = poptorch.inferenceModel(Mean(), options([("m", "mean"), ("o", "mean.1")]))
    model(torch.ones(4, 2))
    assert torch.equal(model.getAnchoredTensor("m"), torch.full((2,), 3.0))
    assert torch.equal(model.getAnchoredTensor("o"), torch.ones(2))


def filled(value):
    return torch.nn.Parameter(torch.full((2,), float(value)))


class Clashing(torch.nn.Module):
    """Parameters with the paths that results, an argument, operations and the loss would have."""

    def __init__(self):
        super().__init__()
        self.output = torch.nn.ParameterList([filled(7)])
        self.mul = torch.nn.ParameterList([filled(3), filled(5)])
        self.input, self.loss = torch.nn.ParameterDict({"x": filled(2)}), filled(11)

    def forward(self, x):
        y = x * self.mul[0] * self.mul[1] * self.output[0] * self.input["x"]
        return y, poptorch.identity_loss((y + self.loss).sum(), "sum")


def test_parameters_keep_their_paths():
    values = {"output.0": 7, "mul.0": 3, "mul.1": 5, "input.x": 2, "loss": 11}
    names = {f"a{number}": name for number, name in enumerate(values)}
    others = {"x": "input.x.value", "y": "output.0.value", "l": "loss.value", "m": "mul.2"}
    net, anchors = Clashing(), {**names, **others}
    model = training(net, options(anchors.items()), lr=0.0)
    y, loss = model(torch.ones(2))
    found = model.getTensorNames()
    assert len(found) == len(set(found)) and set(anchors.values()) <= set(found)
    for short, name in names.items():
        assert model.getAnchoredTensor(short).tolist() == [values[name]] * 2, name
    assert model.getAnchoredTensor("x").tolist() == [1, 1]
    assert torch.equal(model.getAnchoredTensor("y"), y) and y.tolist() == [210, 210]
    assert model.getAnchoredTensor("l").item() == loss.item() == 442
    assert model.getAnchoredTensor("m").tolist() == [15, 15]  # the second of the products
