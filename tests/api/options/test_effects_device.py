"""Effects of options on the device: which, when it is taken, how many IPUs."""

import os
import re
import threading
import time

import pytest
import torch

import poptorch
from tests.api.options.effects import Scale
from tests.helpers import quiet_options as quiet


@pytest.fixture
def log(monkeypatch, caplog):
    """Lines of the log from level DEBUG on."""
    monkeypatch.setattr(poptorch.logger, "propagate", True)
    monkeypatch.setattr("poptorch._device.model_device._said", set())
    level = poptorch.logger.level
    poptorch.setLogLevel("DEBUG")
    yield lambda: [record.getMessage() for record in caplog.records]
    poptorch.setLogLevel("WARN")
    poptorch.logger.setLevel(level)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    monkeypatch.delenv("POPTORCH_IPU_MODEL", raising=False)
    monkeypatch.delenv("POPTORCH_SMALL_IPU_MODEL", raising=False)


def run(options):
    return poptorch.inferenceModel(torch.nn.ReLU(), options)(torch.ones(2))


@pytest.mark.parametrize("words", [(False, "none is present"), (None, "No IPU system"),
                                   (True, None)])
def test_use_ipu_model(words, log):
    use, expected = words
    run(quiet(**({} if use is None else {"useIpuModel": use})))
    lines = [line for line in log() if "running on the IPU Model" in line]
    assert len(lines) == (expected is not None) and all(expected in line for line in lines)


def test_environment_chooses_the_model(log, monkeypatch):
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    run(quiet())
    assert not any("No IPU system" in line for line in log())
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "0")  # beats the other
    run(quiet())
    assert any("No IPU system" in line for line in log())


@pytest.mark.parametrize("variable, value, words", [
    ("POPTORCH_IPU_MODEL", "yes", "expected 0 or 1, got 'yes'"),
    ("POPTORCH_SMALL_IPU_MODEL", "2", "expected 0 or 1, got '2'"),
    ("POPTORCH_WAIT_FOR_IPU", "True", "expected 0 or 1, got 'True'"),
    ("POPTORCH_CACHE_DIR", __file__, "expected a folder, got .*test_effects_device.py"),
])
def test_bad_values_of_the_environment(variable, value, words, monkeypatch):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=rf"^\[{variable}\] {words}"):
        poptorch.inferenceModel(torch.nn.ReLU())
    monkeypatch.setenv(variable, "")
    poptorch.inferenceModel(torch.nn.ReLU())


def test_connection_type_says_when_the_device_is_taken(log):
    def order(kind):
        before = len(log())
        run(quiet(connectionType=kind, modelName="net"))
        return [line.split()[0] for line in log()[before:] if line.startswith(("Took", "compiled"))]

    class Loud(torch.nn.Module):
        def forward(self, x):
            poptorch.logger.info("compiling forward")
            return x

    def lines(kind):
        before = len(log())
        poptorch.inferenceModel(Loud(), quiet(connectionType=kind))(torch.ones(2))
        found = log()[before:]
        return found.index("Took the IPU Model as device.") < found.index("compiling forward")

    assert lines(poptorch.ConnectionType.Always) is True
    assert lines(poptorch.ConnectionType.OnDemand) is False
    assert order(poptorch.ConnectionType.Always) == ["Took", "compiled"]


@pytest.mark.parametrize("settings", [
    {"connectionType": poptorch.ConnectionType.Never}, {"useOfflineIpuTarget": 2}])
def test_models_that_never_run(settings, log):
    model = poptorch.inferenceModel(torch.nn.ReLU(), quiet(**settings))
    model.compile(torch.ones(2))
    assert model.isCompiled() and not any("Took" in line for line in log())
    (option,) = settings
    with pytest.raises(AssertionError, match=rf"^\[{option}\] Trying to run a model on an offline "
                                             rf"device: options.{option}\(.*\) was called\. "
                                             rf"Compile and save it here"):
        model(torch.ones(2))


def test_precompile_fills_the_cache_and_returns_zeros(tmp_path, log):
    class Net(torch.nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return {"y": y, "loss": poptorch.identity_loss(y, "sum")}

    net, x = Net(4, 2), torch.ones(6, 4)
    before = net.weight.clone()
    for kind, runs in ((poptorch.ConnectionType.PreCompile, False),
                       (poptorch.ConnectionType.Always, True)):
        model = poptorch.trainingModel(net, quiet(
            connectionType=kind, deviceIterations=2, enableExecutableCaching=str(tmp_path)))
        found = [model(x) for _ in range(2)][-1]
        assert found["y"].shape == (3, 2) and found["loss"].shape == ()
        assert (found["y"].count_nonzero() > 0) == runs
        assert torch.equal(net.weight, before) != runs
        lines = "\n".join(log())
        assert ("Took the IPU Model" in lines) == runs
        assert ("loaded the executable" in lines) == runs
        if not runs:
            with pytest.raises(AssertionError, match="ConnectionType.PreCompile.*was called"):
                model.attachToDevice()
            with pytest.raises(poptorch.Error, match="expected .*but got"):
                model(x[:3])
        model.destroy()


def test_offline_target_and_model_exclude_each_other(monkeypatch):
    def wrap(**settings):
        return poptorch.inferenceModel(torch.nn.ReLU(), quiet(useOfflineIpuTarget=2, **settings))

    with pytest.raises(poptorch.Error, match="together with the IPU Model"):
        wrap(useIpuModel=True)
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")
    with pytest.raises(poptorch.Error, match="POPTORCH_IPU_MODEL"):
        wrap()
    wrap(useIpuModel=False)
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "0")
    wrap()


def test_number_of_ipus_must_be_a_power_of_two():
    options = quiet(replicationFactor=3)
    with pytest.raises(poptorch.Error, match=r"power of two: the model uses 1 on each of 3 "
                                             r"replicas, 3 in all.*autoRoundNumIPUs"):
        poptorch.inferenceModel(torch.nn.ReLU(), options)(torch.ones(3))
    rounded = options.clone().autoRoundNumIPUs()
    assert poptorch.inferenceModel(torch.nn.ReLU(), rounded)(torch.ones(3)).shape == (3,)


def test_blocks_count_as_ipus():
    class Two(torch.nn.Module):
        def forward(self, x):
            with poptorch.Block(ipu_id=2):
                return x + 1

    with pytest.raises(poptorch.Error, match="uses 3 on each of 1 replicas, 3 in all"):
        poptorch.inferenceModel(Two(), quiet())(torch.ones(3))


def test_execution_strategy():
    class Three(torch.nn.Module):
        def forward(self, x):
            for ipu in (0, 1, 0):
                with poptorch.Block(ipu_id=ipu):
                    x = torch.tanh(x) + ipu
            return x

    def stages(strategy):
        options = quiet(deviceIterations=3)
        if strategy is not None:
            options.setExecutionStrategy(strategy)
        model = poptorch.inferenceModel(Three(), options)
        model.compile(torch.ones(3))
        return set(re.findall(r"stage=(\d)", model.ir("place")))

    assert stages(None) == {"0", "1"}
    assert stages(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)) == {"0", "1", "2"}


def test_too_many_ipus():
    with pytest.raises(poptorch.Error, match=r"Too many IPUs requested \(128\). Maximum .*64"):
        poptorch.inferenceModel(torch.nn.ReLU(), quiet(replicationFactor=128))(torch.ones(128))
    poptorch.trainingModel(Scale(size=1), quiet(replicationFactor=64))(torch.ones(64, 1))


def test_no_system_is_present():
    assert poptorch.ipuHardwareIsAvailable() is False
    assert poptorch.ipuHardwareIsAvailable(num_ipus=4) is False
    with pytest.raises(ValueError, match="at least 1, got 0"):
        poptorch.ipuHardwareIsAvailable(0)
    with pytest.raises(poptorch.Error, match="no IPU system is present"):
        poptorch.ipuHardwareVersion()


def test_attachment():
    model = poptorch.inferenceModel(torch.nn.ReLU(), quiet())
    assert model.isAttachedToDevice() is False and model._is_attached is False
    model(torch.ones(2))
    assert model.isAttachedToDevice() is True and model._is_attached is True
    model.destroy()
    assert model.isAttachedToDevice() is False
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        model.detachFromDevice()


# -- devices that are asked for by their number -----------------------------------------------

X = torch.ones(2)
ON_DEMAND = {"connectionType": poptorch.ConnectionType.OnDemand}


def numbered(number, module=None, **settings):
    return poptorch.inferenceModel(module or torch.nn.ReLU(), quiet(useIpuId=number, **settings))


def test_a_numbered_device_has_as_many_ipus_as_the_program():
    for number, replicas in [(0, 1), (3, 1), (70, 1), (2, 2), (5, 2), (16, 2), (6, 4), (24, 4),
                             (27, 4), (28, 8), (30, 16)]:
        numbered(number, replicationFactor=replicas).compile(torch.ones(replicas))
    for number, replicas in [(0, 2), (3, 2), (24, 2), (28, 4), (30, 8)]:
        with pytest.raises(poptorch.Error, match=rf"\[useIpuId\] device {number} does not have the "
                           rf"{replicas} IPUs that \w+ needs"):
            numbered(number, replicationFactor=replicas).compile(torch.ones(replicas))
    net = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(4)))
    for ipu, layer in enumerate(net):
        poptorch.BeginBlock(layer, ipu_id=ipu)
    model = numbered(0, net, deviceIterations=4)
    with pytest.raises(poptorch.Error, match="4 IPUs.* in a system of 16 IPUs, 24 to 27"):
        model(torch.ones(4, 2))
    assert not model.isCompiled() and not model.isAttachedToDevice()


@pytest.mark.parametrize("settings", [{}, ON_DEMAND], ids=["Always", "OnDemand"])
@pytest.mark.parametrize("end", ["detachFromDevice", "destroy"])
def test_one_executor_holds_a_device(end, settings):
    first, second = numbered(3, modelName="first"), numbered(3, modelName="second", **settings)
    first(X)
    for use in (second.compile, second):
        with pytest.raises(poptorch.Error, match=r"^\[useIpuId\] device 3 is held by another "
                                                 r"executor \(first\), and second needs it too\. "
                                                 r"Call detachFromDevice"):
            use(X)
        assert not second.isAttachedToDevice()
    getattr(first, end)()
    assert torch.equal(second(X), X)
    with pytest.raises(poptorch.Error, match=r"device 3 is held by another executor \(second\)"):
        first(X)
    assert first.isCompiled() == (end == "detachFromDevice")
    second.detachFromDevice()
    assert torch.equal(first(X), X) and first.isAttachedToDevice()


def test_devices_with_other_numbers_or_none():
    models = [numbered(0), numbered(1), *(poptorch.inferenceModel(torch.nn.ReLU(), quiet())
                                          for _ in range(2))]
    for model in models:
        model(X)
    assert all(model.isAttachedToDevice() for model in models)


def test_always_takes_the_device_before_it_compiles():
    """The second model is not even looked at; OnDemand finds out when it is compiled."""
    class Seen(torch.nn.Module):
        def forward(self, x):
            seen.append(1)
            return x

    first, seen = numbered(2), []
    first(X)
    for settings, count in (({}, 0), (ON_DEMAND, 1)):
        with pytest.raises(poptorch.Error, match="device 2 is held"):
            numbered(2, Seen(), **settings).compile(X)
        assert len(seen) == count


def test_an_executor_that_is_gone_or_failed_holds_nothing():
    class Wrong(torch.nn.Module):
        def forward(self, x):
            return x / x.missing

    failed = numbered(4, Wrong())
    with pytest.raises(AttributeError):
        failed(X)
    first = numbered(4)
    first(X)
    with pytest.raises(AttributeError):
        numbered(5, Wrong())(X)
    first.itself = first  # an executor that only the collector of cycles finds
    del first
    numbered(4)(X)


def test_a_model_that_never_runs_holds_nothing():
    first = numbered(6)
    first(X)
    never = numbered(6, connectionType=poptorch.ConnectionType.Never)
    never.compile(X)
    assert never.isCompiled() and not never.isAttachedToDevice()


@pytest.mark.parametrize("settings", [{}, ON_DEMAND], ids=["Always", "OnDemand"])
@pytest.mark.parametrize("is_compiled", [False, True], ids=["compile", "attach"])
def test_waiting_for_a_device(settings, is_compiled, monkeypatch, log):
    first, second = numbered(7), numbered(7, **settings)
    if is_compiled:
        second(X), second.detachFromDevice()
    first(X)
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")
    results = []
    thread = threading.Thread(target=lambda: results.append(second(X)))
    thread.start()
    while not any(line.startswith("Waiting: [useIpuId] device 7 is held") for line in log()):
        time.sleep(0.001)
    assert not results
    first.detachFromDevice()
    thread.join()
    assert torch.equal(results[0], X) and second.isAttachedToDevice()


@pytest.mark.parametrize("settings", [{}, ON_DEMAND], ids=["Always", "OnDemand"])
@pytest.mark.parametrize("is_load", [True, False], ids=["load", "loadExecutable"])
def test_waiting_for_a_device_for_a_file(settings, is_load, monkeypatch, log, tmp_path):
    path = numbered(7, **settings).compileAndExport(str(tmp_path / "relu.poptorch"), X)
    first, results = numbered(7), []
    first(X)
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")

    def load():
        second = numbered(7, **settings)
        second = poptorch.load(path) if is_load else second.loadExecutable(path) or second
        results.append(second(X))

    thread = threading.Thread(target=load)
    thread.start()
    while not any(line.startswith("Waiting: [useIpuId] device 7 is held") for line in log()):
        time.sleep(0.001)
        assert thread.is_alive()
    assert not results
    first.detachFromDevice()
    thread.join()
    assert torch.equal(results[0], X)


def test_a_device_of_a_file(tmp_path):
    path = numbered(8).compileAndExport(str(tmp_path / "relu.poptorch"), X)
    holder = numbered(9)
    holder(X)
    with pytest.raises(poptorch.Error, match="device 9 is held"):
        poptorch.load(path, lambda options: options.useIpuId(9))
    holder.detachFromDevice()
    again = poptorch.load(path, lambda options: options.useIpuId(9))
    with pytest.raises(poptorch.Error, match="model is compiled already"):
        again.loadExecutable(path)
    assert again.isAttachedToDevice() and again.options.ipu_id == 9 and torch.equal(again(X), X)


def test_a_forked_process_has_devices_of_its_own():
    holder = numbered(10)
    holder(X)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            os.write(writer, b"ok" if torch.equal(numbered(10)(X), X) else b"no")
        finally:
            os._exit(0)
    os.close(writer)
    assert os.read(reader, 2) == b"ok" and os.waitpid(child, 0)[1] == 0
    os.close(reader)
