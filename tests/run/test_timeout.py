"""Options.timeout: a late call raises an error, and the executor can run again."""

import threading
import time

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

FORMS = ("inline", "replicas", "micro", "stages", "literal")
LONG_S = 1000.0


class Net(torch.nn.Module):
    """Two stages with many products."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, x):
        with poptorch.Block("first", ipu_id=0):
            for _ in range(30):
                x = self.first(x).tanh()
        with poptorch.Block("last", ipu_id=1):
            for _ in range(30):
                x = self.last(x).tanh()
        return x


def deep():
    """Layers on one IPU."""
    return torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(20)))


def late(model, x):
    with pytest.raises(TimeoutError) as caught:
        model(x)
    assert isinstance(caught.value, poptorch.Error)
    return str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_a_late_call_is_an_error_and_the_next_one_runs(form, monkeypatch):
    monkeypatch.setenv("POPTORCH_HOST", form)
    options = quiet_options(replicationFactor=2, deviceIterations=4).setExecutionStrategy(
        poptorch.PipelinedExecution("first", "last"))
    net, x = Net().eval(), torch.randn(2 * 4 * 8, 64)
    expected = poptorch.inferenceModel(net, options.clone())(x)
    model = poptorch.inferenceModel(net, options.timeout(1e-6))
    model.compile(x)
    assert model._executable.host_form()["form"] == form
    for _ in range(3):
        text = late(model, x)
        assert "[call] the call was stopped after 0" in text and "timeout is 1e-06 s" in text
    model._executable.set_timeout(LONG_S)
    assert torch.equal(model(x), expected)


def test_the_time_that_a_call_waits_counts():
    class Slow(torch.nn.Module):
        def forward(self, x):
            return poptorch.for_loop(count, lambda y: [(y @ y).tanh()], [x])[0]

    count = 2000
    x = torch.rand(200, 200)
    model = poptorch.inferenceModel(Slow(), quiet_options())
    expected, results = model(x), []
    executable = model._executable
    begun = executable.runs_begun
    running = threading.Thread(target=lambda: results.append(model(x)))
    running.start()
    while executable.runs_begun == begun:
        time.sleep(0)
    executable.set_timeout(0.01)  # of calls that begin now
    text = late(model, x)
    assert running.is_alive()
    running.join()
    assert float(text.split("of the model: ")[1].split()[0]) >= 0.01
    assert torch.equal(results[0], expected)


def test_calls_in_time():
    net, x = deep(), torch.randn(8, 64)
    model = poptorch.inferenceModel(net, quiet_options().timeout(LONG_S))
    assert torch.equal(model(x), poptorch.inferenceModel(net, quiet_options())(x))


def test_what_the_first_run_prepares_does_not_count():
    class Prepared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(300, 300))

        def forward(self, x):
            weight = self.weight  # of these products, which run once
            for _ in range(400):
                weight = (weight @ weight).tanh()
            return x @ weight

    x = torch.rand(1, 300)
    model = poptorch.inferenceModel(Prepared(), quiet_options())
    model.compile(x)
    begin = time.monotonic()
    expected = model(x)
    seconds = time.monotonic() - begin
    limited = poptorch.inferenceModel(model.model, quiet_options().timeout(seconds / 4))
    assert torch.equal(limited(x), expected)


def test_the_random_state_may_change():
    net = torch.nn.Dropout(0.5)
    model = poptorch.inferenceModel(net, quiet_options().timeout(LONG_S)).train()
    assert model(torch.ones(100)).count_nonzero() < 100


def test_models_whose_calls_change_states_are_refused():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls.add_(1.0)
            return x + self.calls

    words = r"\[timeout\] each call changes calls, and a call that is stopped after 2.5 s would"
    counting = poptorch.inferenceModel(Counts(), quiet_options().timeout(2.5))
    with pytest.raises(poptorch.Error, match=words):
        counting.compile(torch.ones(3))
    words = r"\[timeout\] a training call that is stopped after 2.5 s would leave weights half"
    with pytest.raises(poptorch.Error, match=words):
        poptorch.trainingModel(torch.nn.Linear(4, 2), quiet_options().timeout(2.5))


def test_not_a_time():
    model = poptorch.inferenceModel(deep(), quiet_options())
    model.compile(torch.randn(8, 64))
    for seconds in (0.0, -1.0, float("nan")):
        with pytest.raises(poptorch.Error, match=r"\[timeout\] expected a positive number of sec"):
            model._executable.set_timeout(seconds)


def test_a_loaded_model_takes_another_timeout(tmp_path):
    x = torch.randn(8, 64)
    model = poptorch.inferenceModel(deep(), quiet_options())
    path = model.compileAndExport(str(tmp_path / "net"), x)
    late(poptorch.load(path, lambda options: options.timeout(1e-6)), x)
    assert torch.equal(poptorch.load(path)(x), model(x))
