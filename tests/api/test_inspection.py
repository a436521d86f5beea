"""Hooks, measured times, the random state, the program as JSON."""

import json
import time

import pytest
import torch

import poptorch
from tests.helpers import quiet_options as options

OutputMode = poptorch.OutputMode


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x, y):
        return torch.nn.functional.mse_loss(self.fc(x), y), y + 1


def test_hooks_run_around_each_compilation(tmp_path):
    said = []
    handles = [poptorch.registerPreCompileHook(lambda: said.append("first")),
               poptorch.registerPreCompileHook(lambda: said.append("second")),
               poptorch.registerPostCompileHook(lambda: said.append("after"))]
    try:
        model, x = poptorch.inferenceModel(torch.nn.Linear(4, 2), options()), torch.randn(3, 4)
        model(x), model(x)
        assert said == ["first", "second", "after"]
        handles.pop(0).remove()
        model.destroy()
        model(x)
        assert said[3:] == ["second", "after"]
        poptorch.load(model.save(tmp_path / "a.poptorch"))(x)
        assert len(said) == 5
    finally:
        for handle in handles:
            handle.remove()
    poptorch.inferenceModel(torch.nn.Linear(4, 2), options())(x)
    assert len(said) == 5


def test_after_a_failed_compilation_no_hook_runs():
    said = []
    handle = poptorch.registerPostCompileHook(lambda: said.append(1))
    try:
        with pytest.raises(poptorch.Error):
            poptorch.trainingModel(torch.nn.Linear(4, 2), options())(torch.randn(3, 4))
        assert said == []
    finally:
        handle.remove()


class Dropped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = (torch.nn.Parameter(torch.ones(64)) for _ in range(2))

    def forward(self, x):
        y = torch.nn.functional.dropout(self.w * x) + 0 * self.v
        return y, poptorch.identity_loss(y.sum(), "sum")


def dropped():
    """A model that has run once, and is compiled again in the next call."""
    net = Dropped()
    optimizer = torch.optim.SGD([net.w], lr=0.0)
    model = poptorch.trainingModel(net, options(randomSeed=1), optimizer)
    model(torch.ones(64))
    optimizer.add_param_group({"params": [net.v]})
    return model


def fails():
    raise ValueError("mine")


@pytest.mark.parametrize("register", [poptorch.registerPreCompileHook,
                                      poptorch.registerPostCompileHook])
def test_random_numbers_go_on_after_a_hook_that_fails(register):
    expected = dropped()(torch.ones(64))[0]
    model, handle = dropped(), register(fails)
    try:
        with pytest.raises(ValueError, match="mine"):
            model(torch.ones(64))
    finally:
        handle.remove()
    assert torch.equal(model(torch.ones(64))[0], expected) and model.rng_state == [1, 2]
    model, handle = dropped(), register(fails)
    with pytest.raises(ValueError, match="mine"):
        model(torch.ones(64))
    handle.remove()
    model.destroy()  # whatever failed: a model starts again
    model(torch.ones(64))
    assert model.rng_state == [1, 1]


def test_a_hook_that_calls_the_model_that_is_compiled_again():
    model, x = dropped(), torch.ones(64)
    handle = poptorch.registerPostCompileHook(lambda: model(x))
    try:
        with pytest.raises(poptorch.Error, match=(
                r"^\[call\] the model is called while it is compiled again, saved or destroyed in "
                r"the same thread, from a hook of the compilation or the handler of a signal\. "
                r"Call it afterwards\.$")):
            model(x)
    finally:
        handle.remove()
    model(x)
    assert model.rng_state == [1, 2]


@pytest.mark.parametrize("register", [poptorch.registerPreCompileHook,
                                      poptorch.registerPostCompileHook])
def test_a_hook_must_be_callable(register):
    with pytest.raises(RuntimeError, match="must be callable, got 3 of int"):
        register(3)


@pytest.mark.parametrize("mode, period, steps", [
    (OutputMode.All, None, 24), (OutputMode.Final, None, 2), (OutputMode.Sum, None, 2),
    (OutputMode.EveryN, 2, 12)])
def test_counters_of_each_step(mode, period, steps):
    opts = options(deviceIterations=4, replicationFactor=2).outputMode(mode, period)
    opts.Training.gradientAccumulation(3)
    model = poptorch.trainingModel(Net(), opts)
    begin = time.monotonic()
    model(torch.randn(24, 4), torch.randn(24, 3))
    end = time.monotonic()
    times = model.getPerfCounters()
    assert {event: [len(entry) for entry in found] for event, found in times.items()} == {
        "input": [24, 24], "input_complete": [24, 24],
        "output": [steps, steps], "output_complete": [steps, steps]}
    for first, last in (("input", "input_complete"), ("output", "output_complete")):
        for asked, there in zip(times[first], times[last]):
            assert all(begin <= a <= b <= end for a, b in zip(asked, there))
    check_latencies(model, end - begin)


def check_latencies(model, elapsed):
    found = [model.getLatency(), model.getHostIpuLatency(), model.getComputeLatency(),
             model.getIpuHostLatency()]
    for least, greatest, mean in found:
        # The mean is a sum of rounded numbers.
        assert 0 <= least <= mean * (1 + 1e-9) <= greatest * (1 + 2e-9) <= elapsed * 1.01
    assert found[0][0] > 0


def test_latency_of_a_later_iteration_is_its_own():
    model = poptorch.inferenceModel(Net(), options(deviceIterations=50))
    begin = time.monotonic()
    model(torch.randn(50, 4), torch.randn(50, 3))
    elapsed = time.monotonic() - begin
    assert model.getLatency()[2] * 50 <= elapsed  # they do not overlap


@pytest.mark.parametrize("kind", ["Consecutive", "Orthogonal"])
def test_latency_where_replicas_have_the_same_input(kind):
    """The time of the first of a group counts, so that no result is earlier than its input."""
    settings = options(replicationFactor=4)
    settings.inputReplicaGrouping(2, getattr(poptorch.CommGroupType, kind))
    model = poptorch.inferenceModel(Net(), settings)
    begin = time.monotonic()
    model(torch.randn(2000, 4), torch.randn(2000, 3))
    check_latencies(model, time.monotonic() - begin)
    assert model.getComputeLatency()[0] > 0


def test_models_without_arguments_and_without_results():
    class Counter(torch.nn.Module):
        def __init__(self, returns):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))
            self.returns = returns

        def forward(self):
            self.count += 1
            return self.count * 1 if self.returns else None

    for returns in (True, False):
        model = poptorch.inferenceModel(Counter(returns), options(deviceIterations=3))
        model()
        times = model.getPerfCounters()
        assert times["input"] == [] and len(times["output"]) == returns
        assert 0 < model.getLatency()[0]


def test_an_argument_that_is_not_read_has_no_times():
    """The others keep their number."""
    class Second(torch.nn.Module):
        def forward(self, x, pair, z=None):
            return pair[1] + 1, pair[0]

    model = poptorch.inferenceModel(Second(), options(deviceIterations=3))
    x = torch.randn(6, 2)
    model(x, (x, x), x)
    times = model.getPerfCounters()
    assert {event: [len(steps) for steps in found] for event, found in times.items()} == {
        "input": [0, 3, 3, 0], "input_complete": [0, 3, 3, 0],
        "output": [3, 3], "output_complete": [3, 3]}
    assert 0 < model.getLatency()[0] and 0 <= model.getHostIpuLatency()[0]
    model = poptorch.inferenceModel(torch.nn.Identity(), options())
    model.model.forward = lambda x: torch.ones(2)
    model(x)
    assert model.getPerfCounters()["input"] == [] and 0 < model.getLatency()[0]


def test_synthetic_data_has_no_times():
    model = poptorch.inferenceModel(Net(), options(enableSyntheticData=True))
    model(torch.randn(2, 4), torch.randn(2, 3))
    assert not any(model.getPerfCounters().values())
    assert model.getLatency() == model.getComputeLatency() == (0.0, 0.0, 0.0)


def test_times_need_a_run():
    model = poptorch.inferenceModel(Net(), options())
    for read in (model.getPerfCounters, model.getLatency, lambda: model.compilationTime):
        with pytest.raises(poptorch.Error, match="not been compiled"):
            read()
    begin = time.monotonic()
    model.compile(torch.randn(2, 4), torch.randn(2, 3))
    assert 0 < model.compilationTime <= time.monotonic() - begin
    for read in (model.getPerfCounters, model.getHostIpuLatency, model.getIpuHostLatency):
        with pytest.raises(poptorch.Error, match="has not run"):
            read()


def test_random_state_of_replicas():
    x = torch.ones(128)
    model = poptorch.inferenceModel(torch.nn.Dropout(0.5), options(
        randomSeed=2**63 + 5, replicationFactor=2, deviceIterations=3))
    assert model.model.training
    with pytest.raises(poptorch.Error, match="not been compiled"):
        _ = model.rng_state
    model(x.repeat(6))
    assert model.rng_state == [2**63 + 5, 3, 3]
    state, following = model.rng_state, model(x.repeat(6))
    model.rng_state = state
    assert torch.equal(model(x.repeat(6)), following)
    for wrong in ([1, 2], [1, 2, -1], [2**64, 0, 0], "abc", [1, 2.0, 3], [True, 0, 0]):
        with pytest.raises(poptorch.Error, match=r"\[rng_state\] expected a list of 3 ints"):
            model.rng_state = wrong
    assert model.rng_state == [2**63 + 5, 6, 6]


def test_random_state_of_a_model_without_random_numbers():
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), options(randomSeed=3))
    model(torch.randn(3, 4))
    assert model.rng_state == [3, 0]


def test_program_as_json():
    model = poptorch.inferenceModel(torch.nn.Sequential(torch.nn.Linear(4, 2)), options())
    model.compile(torch.randn(3, 4))
    ops = json.loads(model._debugGetPopartIR())["maingraph"]
    text = model.ir("plan")
    assert all(op["text"] in text for op in ops)
    assert [op["type"] for op in ops].count("stream_out") == text.count("stream_out")
    assert any(op["name"] == "0" for op in ops) and "output" not in {op["type"] for op in ops}


def test_program_as_json_of_a_file_with_a_blank(tmp_path):
    file, names = tmp_path / "a  b 1.py", {"__name__": "net"}
    file.write_text("import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
                    "        return getattr(self, 'a b')(x).sum().exp()\n")
    exec(compile(file.read_text(), file, "exec"), names)
    net = names["Net"]()
    net.add_module("a b", torch.nn.Sequential(torch.nn.Tanh()))
    model = poptorch.inferenceModel(net, options())
    model.compile(torch.ones(3))
    found = {op["type"]: op["name"] for op in json.loads(model._debugGetPopartIR())["maingraph"]}
    assert found["tanh"] == "a b.0" and found["exp"] == ""


@pytest.mark.parametrize("name", [
    "getLatency", "getPerfCounters", "ir", "memory_report", "partition_summary", "op_report",
    "work_report", "nan_report", "copyWeightsToHost", "copyWeightsToDevice", "attachToDevice",
    "rng_state", "compilationTime"])
def test_what_needs_a_compiled_model_names_itself(name):
    model = poptorch.inferenceModel(torch.nn.ReLU(), options())
    words = rf"^\[{name}\] Model has not been compiled or has been destroyed. Call it, or compile"
    with pytest.raises(poptorch.Error, match=words):
        getattr(model, name)()
