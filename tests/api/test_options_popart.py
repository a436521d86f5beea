"""The back door: options by back-end key."""

import pytest
import torch

import poptorch


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


def test_other_known_keys_are_kept_and_warn_once(capsys, monkeypatch):
    monkeypatch.setattr("poptorch.options._popart._said", set())
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
