"""nan_report: which value first is not finite, in which step, from which line."""

import copy
import inspect
import math

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

NAN, INF = math.nan, math.inf


class Net(torch.nn.Module):
    """The square root of ``w x``: negative numbers break forward, zero breaks its gradient."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.w = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("mask", torch.tensor([0.0, -INF]))

    def forward(self, x):
        y = torch.sqrt(self.w * x)
        hidden = self.layer(y) + 0 * self.mask.softmax(0)
        return y, poptorch.identity_loss(hidden.sum() + y.sum(), "none")


LINE = inspect.getsourcelines(Net.forward)[1] + 1
GOOD = [1.0, 4.0]


def recording(**settings):
    return quiet_options(Precision__recordNonFinite=True, **settings)


def trained(options, *rows, lr=0.001, optimizer=torch.optim.SGD):
    net = Net()
    model = poptorch.trainingModel(net, options, optimizer(net.parameters(), lr=lr))
    model(torch.tensor(rows))
    return model


def test_all_is_finite():
    model = trained(recording(), GOOD)
    assert model.nan_report() is None
    assert model.nan_report(torch.tensor([GOOD])) is None


def test_forward():
    report = trained(recording(), [1.0, -4.0]).nan_report()
    assert (report.what, report.condition, report.phase) == (
        "sqrt", "real operation with a complex result", "forward")
    assert report.element == "element [0, 1] of f32[1,2]: operand -4, result nan"
    assert report.location == f"{__file__}:{LINE}" and report.step == ""
    assert str(report).endswith(f"result nan\n  at {__file__}:{LINE}")


def test_gradient():
    report = trained(recording(), [1.0, 0.0]).nan_report()
    assert report.phase == "backward" and report.condition == "division by zero"
    assert "in the backward pass: element [0, 1]" in str(report)


def test_update():
    report = trained(recording(), [1e30, 1e30], lr=1e38).nan_report()
    assert report.what == "sgd_update" and report.phase == "update"
    assert report.condition.startswith("overflow")


@pytest.mark.parametrize("rows, expected", [
    ([GOOD, GOOD, GOOD, [1.0, -1.0]], (1, 1, "in device iteration 1, micro-batch 1")),
    ([GOOD, [-1.0, 1.0], [1.0, -1.0], GOOD], (0, 1, "in device iteration 0, micro-batch 1")),
])
def test_accumulation(rows, expected):
    options = recording(deviceIterations=2, Training__gradientAccumulation=2)
    report = trained(options, *rows).nan_report()
    assert (report.device_iteration, report.micro_batch, report.step) == expected


def test_replicas():
    report = trained(recording(replicationFactor=2), GOOD, [1.0, -1.0]).nan_report()
    assert report.replica == 1 and report.step == "in replica 1"


def test_loops():
    class Loop(torch.nn.Module):
        def forward(self, x):
            return poptorch.for_loop(3, lambda y: [1 / (y - 1)], [x])[0]

    model = poptorch.inferenceModel(Loop(), recording(deviceIterations=2))
    model(torch.tensor([3.0, 1.5]))
    report = model.nan_report()
    assert (report.device_iteration, report.loop_iterations) == (1, (2,))
    assert report.condition == "division by zero"


def test_what_was_there_before():
    report = trained(recording(deviceIterations=2), GOOD, [NAN, 1.0]).nan_report()
    assert (report.what, report.condition, report.device_iteration) == ("input x", "NaN", 1)
    model = trained(recording(), GOOD)
    assert model.nan_report() is None
    with torch.no_grad():
        model.layer.weight[1, 0] = INF
    model.copyWeightsToDevice()
    model(torch.tensor([GOOD]))
    report = model.nan_report()
    assert str(report) == "[parameter layer.weight] inf"
    with torch.no_grad():
        model.layer.weight.fill_(1)
        model.w.fill_(1)
        model.layer.bias.fill_(1)
        model.mask[0] = NAN
    model.copyWeightsToDevice()
    model(torch.tensor([GOOD]))
    assert str(model.nan_report()) == "[buffer mask] NaN"


def test_each_run_is_told_of_anew():
    model = trained(recording(), GOOD, lr=0.0)
    model(torch.tensor([[-1.0, 1.0]]))
    assert model.nan_report() is not None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1)
    model.copyWeightsToDevice()
    model(torch.tensor([GOOD]))
    assert model.nan_report() is None


def test_the_state_of_the_optimizer():
    model = trained(recording(), GOOD, optimizer=torch.optim.Adam)
    optimizer = model._optimizer.optimizer
    state = optimizer.state_dict()
    state["state"][0]["exp_avg"].fill_(NAN)
    optimizer.load_state_dict(state)
    model(torch.tensor([GOOD]))
    report = model.nan_report()
    assert report.what.startswith("optimizer ") and report.condition == "NaN"


def test_a_replay_changes_nothing():
    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls += 1
            x += 1  # what is written back to the argument
            y = torch.nn.functional.dropout(self.layer(x), 0.5)
            return y, poptorch.identity_loss((y * y).sum(), "none")

    net = Noisy()
    other = copy.deepcopy(net)
    models = [poptorch.trainingModel(n, quiet_options(randomSeed=3),
                                     torch.optim.Adam(n.parameters(), lr=0.1))
              for n in (net, other)]
    for step in range(3):
        x, again = torch.ones(4, 2), torch.ones(4, 2)
        assert models[0].nan_report(x) is None and torch.equal(x, torch.ones(4, 2))
        results = [model(data) for model, data in zip(models, (x, again), strict=True)]
        assert torch.equal(results[0][0], results[1][0]), step
        assert torch.equal(x, again) and x[0, 0] == 2
    assert models[0].rng_state == models[1].rng_state
    assert torch.equal(models[0].calls, torch.full((1,), 3.0))
    assert torch.equal(models[0].layer.weight, models[1].layer.weight)


def test_a_replay_starts_from_the_present_weights():
    model = trained(quiet_options(), GOOD)
    assert model.nan_report(torch.tensor([[1.0, -1.0]])).what == "sqrt"
    with torch.no_grad():
        model.w[1] = -1
    model.copyWeightsToDevice()
    assert model.nan_report(torch.tensor([GOOD])).element.startswith("element [0, 1]")
    assert model.nan_report(torch.tensor([[1.0, -1.0]])) is None


def test_mistakes():
    model = poptorch.trainingModel(Net(), recording())
    with pytest.raises(poptorch.Error, match="not been compiled"):
        model.nan_report()
    model.compile(torch.tensor([GOOD]))
    with pytest.raises(poptorch.Error, match=r"\[nan_report\] the model has not run. Call it"):
        model.nan_report()
    model = trained(quiet_options(), GOOD)
    with pytest.raises(poptorch.Error, match=r"recorded nothing. Set options.Precision.recordNon"):
        model.nan_report()
    with pytest.raises(poptorch.Error, match=r"x: expected torch.Size\(\[1, 2\]\)"):
        model.nan_report(torch.ones(3, 5))
