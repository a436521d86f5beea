"""Options: every setter by its row of option_cases, copies, freezing, comparing, printing."""

import copy
import inspect
import json
import pickle
import warnings

import pytest
import torch

import poptorch
from poptorch._base.unimplemented import LATER
from poptorch._runtime import settings
from tests.api.options.option_cases import (  # noqa: F401  (environment is a fixture)
    BY_NAME,
    CASES,
    OTHER_METHODS,
    environment,
    resolve,
)

GROUPS = [poptorch.Options, *(type(g) for n, g in poptorch.Options()._groups.items()
                              if n != "_Popart")]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
# What is deprecated says so each time; test_deprecated_setters_say_so looks at that.
pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect and will be removed")


def changed(case):
    """New options with a case applied."""
    options = poptorch.Options()
    resolve(options, case.name)[1](*case.arguments)
    return options


@each_case
def test_setter_sets_and_can_be_chained(case):
    group, setter = resolve(poptorch.Options(), case.name)
    assert setter(*case.arguments) is group
    for name, value in case.gives.items():
        assert getattr(group, name) == value
        assert group._values[name] == value


@each_case
def test_bad_values_are_refused(case):
    group, setter = resolve(poptorch.Options(), case.name)
    before = dict(group._values)
    method = case.name.rpartition(".")[2]
    if case.wrong_type is not None:
        with pytest.raises(TypeError, match=f"{method}.*expected .*got"):
            setter(*case.wrong_type)
    if case.out_of_range is not None:
        with pytest.raises((ValueError, AssertionError), match=f"{method}"):
            setter(*case.out_of_range)
    assert group._values == before


@pytest.mark.parametrize("name", ["deviceIterations", "replicationFactor",
                                  "Training.gradientAccumulation"])
def test_counts_that_are_too_large(name):
    options = poptorch.Options()
    _, setter = resolve(options, name)
    for number in (2**31, 2**63, 2**70):
        with pytest.raises(ValueError, match=rf"\[{name}\] expected an int from 1 to 2147483647, "
                                             rf"got {number}"):
            setter(number)
    assert options == poptorch.Options()
    setter(2**31 - 1)


@each_case
def test_frozen_options_refuse(case):
    options = poptorch.Options()
    poptorch.DataLoader(options, [1, 2, 3])
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        resolve(options, case.name)[1](*case.arguments)
    assert options == poptorch.Options()


@pytest.mark.parametrize("kind", [poptorch.Options, poptorch.TensorLocationSettings])
def test_a_frozen_group_says_so(kind):
    group = kind()
    group.checkIsFrozen("logDir")
    group._freeze()
    with pytest.raises(AttributeError, match=r"Can't modify frozen Options \(logDir\)"):
        group.checkIsFrozen("logDir")


@each_case
def test_copies_share_nothing(case):
    options = poptorch.Options()
    options._freeze()
    copies = [options.clone(), copy.deepcopy(options), copy.copy(options)]
    for other in copies:
        resolve(other, case.name)[1](*case.arguments)
    assert options == poptorch.Options() and options._is_frozen
    assert copies[0] == copies[1] == copies[2]
    assert pickle.loads(pickle.dumps(copies[0])) == copies[0]


@each_case
def test_what_differs_is_printed(case):
    options = changed(case)
    if case.name == "Distributed.disable":  # back to the default
        assert repr(options) == "Options()"
        return
    assert options != poptorch.Options()
    assert repr(options) == str(options) == repr(changed(case))
    assert all(f"{name}=" in repr(options) for name in case.gives)
    assert " at 0x" not in repr(options)


@each_case
def test_dict_and_back(case):
    options = changed(case)
    values = options.toDict()
    assert case.gives.keys() <= values.keys()
    assert poptorch.Options.fromDict(values) == options


def test_every_setter_has_a_case():
    public = {f"{'' if group is poptorch.Options else group._PREFIX}{name}"
              for group in GROUPS for name in group._setters()}
    assert public - set(BY_NAME) <= {f"{g._PREFIX}{n}" for g in GROUPS for n in OTHER_METHODS}
    assert set(BY_NAME) <= public


def test_every_row_has_its_setter_and_says_when_it_works():
    for group in (*GROUPS, poptorch.TensorLocationSettings):
        for row in group._ROWS:
            assert row.doc.endswith(".") and row.later in {"", *LATER}
            assert not row.setter or row.setter in group._setters()
            assert not (row.later and row.deprecated)


@each_case
def test_errors_are_those_of_the_docstring(case):
    group, setter = resolve(poptorch.Options(), case.name)
    raises = inspect.getdoc(setter).partition("\nRaises:\n")[2].partition("\n\n")[0]
    for arguments in (case.wrong_type, case.out_of_range):
        if arguments is not None:
            with pytest.raises(Exception) as caught:
                setter(*arguments)
            assert type(caught.value).__name__ in raises


def test_values_reach_the_fields_that_rows_name():
    options = poptorch.Options()
    for name in ("deviceIterations", "replicationFactor", "inputReplicaGrouping", "deterministic",
                 "enableSyntheticData", "Training.gradientAccumulation",
                 "Training.setMeanAccumulationAndReplicationReductionStrategy",
                 "Training.setAutomaticLossScaling", "Training.gradientClipping",
                 "Training.recomputation", "TensorLocations.numIOTiles", "syncPattern",
                 "Precision.enableStochasticRounding",
                 "Precision.enableFloatingPointExceptions", "Precision.recordNonFinite"):
        resolve(options, name)[1](*BY_NAME[name].arguments)
    training, inference = (settings.step_spec(options, trains, ()) for trains in (True, False))
    compiler = settings.compile_options(options)
    for group, row in options._rows():
        value = group._values[row.name]
        if row.step:
            assert getattr(training, row.step) == value != row.default
            is_default = getattr(inference, row.step) == row.default
            assert is_default == (group is options.Training)
        if row.compiler:
            assert compiler[row.compiler] == value != row.default


def test_setters_are_found_on_the_classes():
    for group in GROUPS:
        for name in set(group._setters()) - OTHER_METHODS:
            assert getattr(group, name).__qualname__ == f"{group.__name__}.{name}"
    assert poptorch.Options.deviceIterations.__qualname__ == "Options.deviceIterations"
    assert not callable(poptorch.Options().Precision.autocast_policy)
    with pytest.raises(ValueError, match=r"autocast_policy.* expected None, got \(\)"):
        poptorch.Options.fromDict({"autocast_policy": ()})


def test_a_tensor_is_no_value_of_an_option():
    for name in ("device_iterations", "accumulation_and_replication_reduction_type"):
        with pytest.raises(TypeError, match=r"expected .*, got (Tensor )?tensor\("):
            poptorch.Options.fromDict({name: torch.zeros(2)})


@pytest.mark.parametrize("case", [c for c in CASES if c.name in (
    "Precision.halfFloatCasting", "Precision.runningStatisticsAlwaysFloat",
    "Precision.autocastEnabled", "Jit.traceModel")], ids=lambda case: case.name)
def test_deprecated_setters_say_so(case):
    with pytest.warns(DeprecationWarning, match="has no effect and will be removed") as caught:
        changed(case)
    assert len(caught) == 1


def test_output_mode():
    opts = poptorch.Options()
    assert opts.defaultOutputMode()
    opts.outputMode(poptorch.OutputMode.EveryN, 3).outputMode(poptorch.OutputMode.All, 7)
    assert opts.output_return_period == 1 and not opts.defaultOutputMode()
    with pytest.raises(TypeError, match="OutputMode.Final, OutputMode.EveryN"):
        opts.outputMode("All")


@pytest.mark.parametrize(("name", "words"), [
    ("device_iteration", "Did you mean device_iterations or deviceIterations"),
    ("deviceIteration", "Did you mean .*deviceIterations"),
    ("setDeviceIterations", "Did you mean .*deviceIterations"),
    ("nonsense", "Methods: .*deviceIterations.*. Read values by their snake_case names.")])
def test_unknown_names(name, words):
    with pytest.raises(AttributeError, match=words):
        getattr(poptorch.Options(), name)


@pytest.mark.parametrize(("name", "words"), [
    ("anchorTensor", r"calling their method: anchorTensor\(3\)"),
    ("deviceIterations", r"calling their method: deviceIterations\(3\)"),
    ("deviceIteration", "Did you mean .*deviceIterations")])
def test_options_cannot_be_assigned(name, words):
    options = poptorch.Options()
    with pytest.raises(AttributeError, match=words):
        setattr(options, name, 3)
    assert options == poptorch.Options()


def _assignable():
    groups = poptorch.Options()._groups
    for group, options in [("", poptorch.Options()), *groups.items()]:
        for row in options._ROWS:
            if row.setter not in ("", "setPatterns"):
                yield group, row
                assert row.setter in options._setters()


def test_options_are_assigned_as_their_setter_sets_them():
    """By the option's name, and by its setter's without ``set``."""
    tried = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for group, row in _assignable():
            names = [row.name]
            if row.setter.startswith("set"):
                names.append(row.setter[3].lower() + row.setter[4:])
            for name in names:
                value = row.example if row.example is not None else (
                    not row.default if isinstance(row.default, bool) else row.default)
                options = poptorch.Options()
                target = options._groups.get(group, options)
                if value is not None:
                    setattr(target, name, value)
                    assert row.name in target._chosen
                assert getattr(target, name) is target._values[row.name]
                if value is not None and row.default is not None and value != row.default:
                    assert options != poptorch.Options(), row.name
                    tried += 1
    assert tried > 25, tried


def test_assigned_options_are_checked():
    options = poptorch.Options()
    options.replication_factor = 4
    options.Training.meanAccumulationAndReplicationReductionStrategy = \
        poptorch.MeanReductionStrategy.Running
    assert options.replication_factor == 4
    assert options.Training.mean_accumulation_and_replication_reduction_strategy is \
        poptorch.MeanReductionStrategy.Running
    with pytest.raises(ValueError, match=r"\[replicationFactor\] expected an int from 1"):
        options.replication_factor = 0
    poptorch.inferenceModel(torch.nn.ReLU(), options.clone())
    frozen = options.clone()
    frozen._freeze()
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        frozen.replication_factor = 2


@pytest.mark.parametrize(("name", "words"), [
    ("gradientAccumulation", r"'gradientAccumulation'\. Did you mean "
                             r"Training\.gradientAccumulation\?"),
    ("gradientAccumulations", r"Did you mean Training\.gradient_accumulation or "
                              r"Training\.gradientAccumulation"),
    ("numIOTiles", r"Did you mean TensorLocations\.numIOTiles\?"),
])
def test_a_name_of_a_group_is_found(name, words):
    with pytest.raises(AttributeError, match=words):
        getattr(poptorch.Options(), name)(4)
    with pytest.raises(AttributeError, match=words):
        setattr(poptorch.Options(), name, 4)


def test_subclasses_may_have_attributes_and_arguments():
    class Launched(poptorch.Options):
        def __init__(self, ipus_per_replica=1):
            super().__init__()
            self.ipus_per_replica = ipus_per_replica

    options = Launched(ipus_per_replica=4).deviceIterations(2)
    assert options.clone().ipus_per_replica == 4 and options.clone() == options
    options.device_iterations = 3
    assert options.device_iterations == 3 and "device_iterations" not in vars(options)
    poptorch.inferenceModel(torch.nn.ReLU(), options)


def test_location_settings_are_copied():
    settings = poptorch.TensorLocationSettings().useOnChipStorage(False)
    locations = poptorch.Options().TensorLocations.setWeightLocation(settings)
    settings.useOnChipStorage(True).minElementsForOffChip(3)
    assert locations.location_weight["onChip"] is False
    assert locations.location_weight["minElementsForOffChip"] is None
    with pytest.raises(TypeError, match="onChip"):
        poptorch.TensorLocationSettings(onChips=True)


LOCATIONS = [
    ("useOnChipStorage", True, 1), ("minElementsForOffChip", 4, -1),
    ("useReplicatedTensorSharding", True, "yes"), ("useIOTilesToLoad", False, 0),
    ("minElementsForReplicatedTensorSharding", 4, "4"), ("useIOTilesToStore", True, 2)]


@pytest.mark.parametrize(("name", "good", "bad"), LOCATIONS, ids=[row[0] for row in LOCATIONS])
def test_location_setters(name, good, bad):
    settings = poptorch.TensorLocationSettings()
    assert getattr(settings, name)(good) is settings
    assert good in settings.toDict().values() and settings != poptorch.TensorLocationSettings()
    with pytest.raises((TypeError, ValueError), match=f"{name}.*expected"):
        getattr(settings, name)(bad)


def test_random_seed_seeds_the_host_too():
    poptorch.Options().randomSeed(7)
    first = torch.rand(3)
    poptorch.Options().randomSeed(7)
    assert torch.equal(first, torch.rand(3))


def test_equal_options_print_equal():
    first, second = (poptorch.Options().deviceIterations(2) for _ in range(2))
    second.Training.gradientAccumulation(4)
    assert first != second
    first.Training.gradientAccumulation(4)
    assert first == second and repr(first) == ("Options(device_iterations=2, "
                                               "Training=TrainingOptions(gradient_accumulation=4))")
    assert repr(poptorch.Options()) == "Options()"


def test_unknown_name_in_a_dict():
    with pytest.raises(ValueError, match="'device_iteration'. Did you mean device_iterations"):
        poptorch.Options.fromDict({"device_iteration": 3})
    assert poptorch.Options.fromDict({"cachePath": "/c"}).executable_cache_path == "/c"


@pytest.mark.parametrize(("name", "key", "value", "edited"), [
    ("gradient_accumulation", "accumulationFactor", 4, 8),
    ("gradient_accumulation", "accumulationFactor", 4, 1),
    ("replication_factor", "replicatedGraphCount", 4, 2)])
def test_an_edited_dict(name, key, value, edited):
    """It has an option and its back-end key."""
    values = poptorch.Options.fromDict({name: value}).toDict()
    assert values[name] == values[key] == value
    for changed_name, kept in ((name, key), (key, name)):
        found = {n: v for n, v in {name: value, key: value, changed_name: edited}.items()}
        with pytest.raises(ValueError, match=rf"\[Options.fromDict\] {name} is {found[name]}, and "
                                             rf"{key}, which names the same option, is "
                                             rf"{found[key]}. Change both, or take {key} out"):
            poptorch.Options.fromDict({**values, changed_name: edited})
        edited_alone = {**values, changed_name: edited}
        del edited_alone[kept]
        assert poptorch.Options.fromDict(edited_alone).toDict()[name] == edited
    assert poptorch.Options.fromDict({**values, name: edited, key: edited}).toDict()[name] == edited


@pytest.mark.parametrize(("entries", "words"), [
    ({"num_distributed_processes": 2, "distributed_process_id": 5},
     r"configureProcessId process_id. expected an int from 0 to 1, got 5"),
    ({"distributed_process_id": 1}, "configureProcessId process_id. expected .*, got 1"),
    ({"model_name": "a/b"}, r"\[modelName\] expected a name without '/', got 'a/b'"),
    ({"input_group_type": poptorch.CommGroupType.NoGrouping.value, "input_group_size": 2},
     "group size of 1 with CommGroupType.NoGrouping, got 2")])
def test_values_of_a_dict_that_do_not_fit_together(entries, words):
    with pytest.raises(ValueError, match=words):
        poptorch.Options.fromDict(entries)


def test_a_model_that_cannot_be_built_freezes_nothing():
    options = poptorch.Options().replicationFactor(3).inputReplicaGrouping(2)
    module = torch.nn.Linear(1, 1)
    with pytest.raises(poptorch.Error, match="groups of 2 replicas do not divide"):
        poptorch.inferenceModel(module, options)
    options.inputReplicaGrouping(3)
    with pytest.raises(poptorch.Error, match="LBFGS"):
        poptorch.trainingModel(module, options, torch.optim.LBFGS(module.parameters()))
    options.replicationFactor(6)
    poptorch.inferenceModel(module, options)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options.replicationFactor(3)


def test_options_without_effect_warn_once(capsys, monkeypatch):
    monkeypatch.setattr("poptorch.options._group._said", set())
    with warnings.catch_warnings(action="error"):
        poptorch.Options().Distributed.IPUoFConfigFiles([])
        assert capsys.readouterr().err == ""
        for _ in range(2):
            poptorch.Options().Distributed.IPUoFConfigFiles("/etc/*.conf")
    assert capsys.readouterr().err.count("IPUoFConfigFiles] has no effect yet") == 1


@pytest.mark.parametrize("strategy", [
    poptorch.PipelinedExecution(poptorch.Stage("a", "b"), poptorch.Stage("c").ipu(2)),
    poptorch.PipelinedExecution("a").schedule(poptorch.PipelineSchedule.Interleaved),
    poptorch.ShardedExecution(poptorch.AutoStage.AutoIncrement),
    poptorch.SerialPhasedExecution("a", poptorch.Phase("b", "c")).setTensorsLiveness(
        poptorch.Liveness.OffChipAfterFwd),
    poptorch.ParallelPhasedExecution([poptorch.Stage("a"), poptorch.Stage("b")], ["c"])
    .useSeparateBackwardPhase(),
], ids=lambda strategy: type(strategy).__name__)
def test_strategies_and_locations_as_json(strategy):
    options = poptorch.Options().setExecutionStrategy(strategy)
    options.TensorLocations.setWeightLocation(
        poptorch.TensorLocationSettings().useOnChipStorage(False).minElementsForOffChip(64))
    values = json.loads(json.dumps(options.toDict()))
    assert poptorch.Options.fromDict(values) == options


@pytest.mark.parametrize("entries, words", [
    ({"anchored_tensors": None}, "anchorTensor. expected a dict from names"),
    ({"anchored_tensors": {"w": "fc"}}, "anchorTensor. expected a dict from names"),
    ({"anchored_tensors": {"w": poptorch.TensorLocationSettings()}},
     "anchorTensor. expected a dict from names"),
    ({"available_memory_proportion": 5}, "setAvailableMemoryProportion. expected a dict such"),
    ({"available_memory_proportion": {"IPU\u00b2": 0.5}}, "expected a dict such"),
    ({"output_mode": 99}, "outputMode. expected one of OutputMode.Final"),
    ({"partials_type": "torch.no_such"}, "setPartialsType. expected one of"),
    ({"location_weight": {3: True}}, "setWeightLocation. expected a poptorch.TensorLocation"),
    ({"execution_strategy": 5}, "setExecutionStrategy. expected an execution strategy"),
    ({"execution_strategy": {"kind": "pipelined"}}, "expected an execution strategy"),
    ({"execution_strategy": {"kind": ["sharded"]}}, "expected an execution strategy"),
    ({"execution_strategy": {"kind": "sharded", "stages": [{"blocks": 3, "ipu": 1}]}},
     "expected an execution strategy"),
])
def test_from_dict_refuses_strange_values(entries, words):
    with pytest.raises((TypeError, ValueError), match=words):
        poptorch.Options.fromDict(entries)


def test_names_of_anchors_are_strings():
    with pytest.raises(TypeError, match=r"anchorTensor short_name\] expected a str.* got list"):
        poptorch.Options().anchorTensor([], "fc.weight")
