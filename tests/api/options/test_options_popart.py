"""The back door: options by back-end key."""

import json
import re

import pytest
import torch

import poptorch
from tests.helpers import quiet_options


def test_setters_with_a_key_are_seen():
    options = poptorch.Options().enableExecutableCaching("/cache")
    assert options._Popart is options._popart and options._Popart
    assert options._popart.options == {"cachePath": "/cache"}
    options.Precision.setPartialsType(torch.half)
    options.TensorLocations.numIOTiles(32)
    assert options._popart.options["partialsTypeMatMuls"] == "torch.float16"
    assert options._popart.options["numIOTiles"] == options.toDict()["numIOTiles"] == 32


@pytest.mark.parametrize(("key", "value", "read", "gives"), [
    ("accumulationFactor", 4, "Training.gradient_accumulation", 4),
    ("replicatedGraphCount", 2, "replication_factor", 2),
    ("cachePath", "/c", "executable_cache_path", "/c"),
    ("partialsTypeMatMuls", "half", "Precision.partials_type", torch.float16),
    ("accumulationAndReplicationReductionType", 0,
     "Training.accumulation_and_replication_reduction_type", poptorch.ReductionType.Sum),
    ("enableStochasticRounding", True, "Precision.stochastic_rounding", True)])
def test_a_key_with_a_counterpart_sets_it(key, value, read, gives):
    options = poptorch.Options()
    assert options._Popart.set(key, value) is options._Popart
    group, _, name = read.rpartition(".")
    assert getattr(getattr(options, group) if group else options, name) == gives
    assert key in options._popart.options


@pytest.mark.parametrize(("key", "value"), [
    ("accumulationFactor", 1), ("cachePath", "somewhere"), ("partialsTypeMatMuls", "half"),
    ("partialsTypeMatMuls", "float"), ("accumulationAndReplicationReductionType", 1),
    ("enableStochasticRounding", False), ("numIOTiles", 0), ("updatableNamedBuffers", {"b", "a"}),
    ("updatableNamedBuffers", []), ("matmulOptions", {"partialsType": "half"})])
def test_keys_hold_what_was_set(key, value):
    options = poptorch.Options()
    assert options._Popart.set(key, value).options == {key: value}
    again = poptorch.Options.fromDict(json.loads(json.dumps(options.toDict())))
    assert again == options and list(again._Popart.options) == [key]
    assert options.clone()._Popart.options == {key: value}


def test_setters_and_keys_follow_one_another():
    options = poptorch.Options()
    assert options._Popart.options == {}
    options.Training.gradientAccumulation(1)
    assert options._Popart.options == {"accumulationFactor": 1}
    options._Popart.set("accumulationFactor", 4)
    options.Training.gradientAccumulation(8)
    options.Precision.setPartialsType(torch.float32)
    assert options._Popart.options == {"accumulationFactor": 8,
                                       "partialsTypeMatMuls": "torch.float32"}
    assert options.clone()._Popart.options == options._Popart.options
    assert repr(options) == "Options(Training=TrainingOptions(gradient_accumulation=8))"


def test_keys_that_are_refused_are_not_set():
    options = poptorch.Options()
    for key, value, error in [("accumulationFactor", 0, ValueError),
                              ("replicatedGraphCount", 2**31, ValueError),
                              ("updatableNamedBuffers", {1, 2}, TypeError),
                              ("updatableNamedBuffers", {1, "a"}, TypeError)]:
        with pytest.raises(error, match="expected an int from 1 to 2147483647|a list of str"):
            options._Popart.set(key, value)
    assert options._Popart.options == {} and options == poptorch.Options()


def test_buffers_that_are_named_by_a_set():
    module = torch.nn.Module()
    module.register_buffer("b", torch.ones(1))
    module.forward = lambda x: x + module.b
    options = poptorch.Options().showCompilationProgressBar(False)
    options._Popart.set("updatableNamedBuffers", {"b"})
    assert options.updatable_named_buffers == ["b"]
    model, x = poptorch.inferenceModel(module, options), torch.zeros(1)
    model(x)
    module.b.fill_(5)
    model.copyNamedBuffersToDevice()
    assert model(x) == 5


def test_what_is_set_is_copied():
    options, names = poptorch.Options(), ["a"]
    options._Popart.set("customCodelets", names).set("updatableNamedBuffers", names)
    names.append("b")
    assert options._Popart.options == {"customCodelets": ["a"], "updatableNamedBuffers": ["a"]}


def test_other_known_keys_are_kept_and_warn_once(capsys, monkeypatch):
    monkeypatch.setattr("poptorch.options._group._said", set())
    options = poptorch.Options()
    for _ in range(2):
        options._Popart.set("outlineThreshold", 10.0)
        options._Popart.set("batchSerializationSettings.factor", 2)
    err = capsys.readouterr().err
    assert err.count("outlineThreshold has no effect") == 1
    assert err.count("batchSerializationSettings.factor has no effect") == 1
    assert options._popart.options["batchSerializationSettings.factor"] == 2
    assert poptorch.Options.fromDict(options.toDict()) == options
    assert "outlineThreshold=10.0" in repr(options) and options != poptorch.Options()


def test_unknown_keys_are_an_error_when_compiling():
    options = poptorch.Options().showCompilationProgressBar(False)
    options._Popart.set("outlineThresholds", 10.0)
    with pytest.raises(poptorch.Error, match="'outlineThresholds'. Did you mean outlineThreshold"):
        poptorch.inferenceModel(torch.nn.ReLU(), options)(torch.ones(2))


@pytest.mark.parametrize(("key", "name", "words"), [
    ("engineOptions", "nonsense", "engineOptions: unknown option 'nonsense'. Take it out"),
    ("engineOptions", "target.hostSyncTimeouts", "Did you mean target.hostSyncTimeout"),
    ("convolutionOptions", "partialType", "Did you mean partialsType"),
    ("matmulOptions", "partials", "matmulOptions: unknown option 'partials'"),
    ("lstmOptions", "numShard", "Did you mean numShards"),
    ("gclOptions", "maxBytes", "gclOptions: unknown option 'maxBytes'"),
    ("reportOptions", "showVarStorages", "Did you mean showVarStorage")])
def test_unknown_keys_of_dictionaries_are_an_error_when_compiling(key, name, words):
    options = quiet_options()
    options._Popart.set(key, {name: "1"})
    with pytest.raises(poptorch.Error, match=re.escape(words)):
        poptorch.inferenceModel(torch.nn.ReLU(), options)(torch.ones(2))
    with pytest.raises(TypeError, match=f"{key}: expected a dict from str to str, got int 3"):
        options.clone()._Popart.set(key, 3)


def test_known_keys_of_dictionaries_warn_once(capsys, monkeypatch):
    monkeypatch.setattr("poptorch.options._group._said", set())
    options = quiet_options()
    for _ in range(2):
        options._Popart.set("engineOptions", {"target.hostSyncTimeout": "900",
                                              "autoReport.all": "false"})
    err = capsys.readouterr().err
    assert err.count("engineOptions target.hostSyncTimeout has no effect") == 1
    assert err.count("has no effect") == 1
    poptorch.inferenceModel(torch.nn.ReLU(), options)(torch.ones(2))


def test_the_report_is_asked_for_by_engine_options(tmp_path):
    options = quiet_options(modelName="net")
    options._Popart.set("engineOptions", {"autoReport.all": "true",
                                          "autoReport.directory": str(tmp_path)})
    poptorch.inferenceModel(torch.nn.ReLU(), options)(torch.ones(2))
    assert (tmp_path / "net" / "report.json").exists()


@pytest.mark.parametrize("value", [None, 1j, [1.5], {"a": 1}, {1: "a"}, object()])
def test_bad_values(value):
    with pytest.raises(TypeError, match="outlineThreshold: expected a bool"):
        poptorch.Options()._Popart.set("outlineThreshold", value)


def test_patterns():
    popart = poptorch.Options()._Popart
    popart.setPatterns({"TiedGather": True}, level=0).setPatterns({"OpToIdentity": False})
    assert popart.patterns == {"TiedGather": True, "OpToIdentity": False}
    assert popart.patterns_level == 2 and popart.toDict()["patterns_level"] == 2
    with pytest.raises(ValueError, match="from 0 to 3, got 4"):
        popart.setPatterns({}, 4)
    with pytest.raises(TypeError, match="TiedGather: expected|True or False"):
        popart.setPatterns({"TiedGather": 1})
    with pytest.raises(TypeError, match="dict from names"):
        popart.setPatterns(["TiedGather"])


def test_frozen():
    options = poptorch.Options()
    options._freeze()
    with pytest.raises(AttributeError, match="Can't modify frozen Options .outlineThreshold."):
        options._Popart.set("outlineThreshold", 1.0)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options._Popart.checkIsFrozen("cachePath")
    options.clone()._Popart.set("accumulationFactor", 3)
    assert options.Training.gradient_accumulation == 1


def test_recomputation(caplog):
    options = poptorch.Options()
    for value, kind in [(0, "Off"), (3, "Stages")]:
        options._Popart.set("autoRecomputation", value)
        assert options.Training.recompute is poptorch.Recomputation[kind]
        assert options._Popart.options == {"autoRecomputation": value}
    options._Popart.set("autoRecomputation", 2)
    assert "autoRecomputation=2 (NormOnly) has no effect" in caplog.text
    assert options.Training.recompute is poptorch.Recomputation.Stages
    with pytest.raises(TypeError, match=r"expected one of Recomputation\.Auto, .*, got 9"):
        options._Popart.set("autoRecomputation", 9)
