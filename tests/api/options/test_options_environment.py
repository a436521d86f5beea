"""What environment variables do to new options."""

import json

import pytest

import poptorch


@pytest.fixture
def defaults(monkeypatch):
    """Sets POPTORCH_DEFAULT_OPTIONS."""
    def set_variable(settings):
        text = settings if isinstance(settings, str) else json.dumps(settings)
        monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", text)

    return set_variable


def test_defaults_hold_for_all_options(defaults):
    defaults({"deviceIterations": 4, "Training.gradientAccumulation": 2,
              "outputMode": ["OutputMode.EveryN", 2], "maxRepeatLogs": None,
              "connectionType": "ConnectionType.OnDemand", "disableModuleNamescope": [],
              "setAvailableMemoryProportion": {"IPU0": 0.25}, "logDir": "a.b"})
    options = poptorch.Options()
    assert options.device_iterations == 4 and options.Training.gradient_accumulation == 2
    assert options.output_mode is poptorch.OutputMode.EveryN and options.output_return_period == 2
    assert options.connection_type is poptorch.ConnectionType.OnDemand
    assert options.max_repeat_logs is None and not options.module_namescope_enabled
    assert options.available_memory_proportion == {0: 0.25} and options.log_dir.endswith("/a.b")
    assert options.deviceIterations(5).device_iterations == 5


@pytest.mark.parametrize(("settings", "words"), [
    ("{", "is no JSON"), ("[1]", "must be a JSON object"),
    ('{"deviceIterations": ' + "[" * 50000, "is no JSON: maximum recursion depth"),
    ('{"deviceIterations": 1' + "0" * 5000 + "}", "is no JSON: Exceeds the limit"),
    ({"deviceIteration": 4}, "no option 'deviceIteration'. Did you mean .* or deviceIterations"),
    ({"Trainings.gradientAccumulation": 4}, "no group 'Trainings'. Did you mean Training"),
    ({"deviceIterations": 0}, "deviceIterations: .*an int from 1 to 2147483647"),
    ({"deviceIterations": [1, 2]}, "deviceIterations: .*positional argument"),
    ({"connectionType": "ConnectionType.Sometimes"}, "expected one of ConnectionType.Always"),
    ({"clone": []}, r"clone: Options.clone\(\) changes no option"),
    ({"Jit.toDict": []}, r"Jit.toDict: JitOptions.toDict\(\) changes no option"),
    ({"_set": ["device_iterations", 3]}, "no option '_set'")])
def test_bad_defaults(defaults, settings, words):
    defaults(settings)
    with pytest.raises(ValueError, match=rf"POPTORCH_DEFAULT_OPTIONS.*{words}"):
        poptorch.Options()


def test_launcher_variables(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    distributed = poptorch.Options().Distributed
    assert (distributed.processId, distributed.numProcesses) == (3, 4)
    distributed.disable()
    assert (distributed.processId, distributed.numProcesses) == (0, 1)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "x")
    with pytest.raises(ValueError, match="OMPI_COMM_WORLD_RANK must hold an int, got 'x'"):
        poptorch.Options()


def test_without_a_launcher_this_is_process_0_of_1(monkeypatch):
    distributed = poptorch.Options().Distributed.configureProcessId(1, 4)
    distributed.setEnvVarNames("NO_SUCH_SIZE", "NO_SUCH_RANK")
    assert (distributed.processId, distributed.numProcesses) == (0, 1)
    monkeypatch.setenv("NO_SUCH_SIZE", "2")  # a launcher sets both
    with pytest.raises(ValueError, match="NO_SUCH_RANK must hold an int, got None"):
        distributed.setEnvVarNames("NO_SUCH_SIZE", "NO_SUCH_RANK")
