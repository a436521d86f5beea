"""What programs do with options beyond the documentation: one test for each habit."""

import json

import pytest
import torch
from torch.utils.data import TensorDataset

import popart
import poptorch
from tests.helpers import quiet_options

X = torch.arange(6.0).reshape(2, 3)


def infer(options):
    """Compiles and runs a small model: unknown keys are an error there."""
    return poptorch.inferenceModel(torch.nn.Linear(3, 2), options)(X)


def test_the_back_door():
    options = quiet_options(enableExecutableCaching="/tmp/cache")
    assert options._Popart is options._popart and bool(options._Popart)
    assert options._popart.options["cachePath"] == "/tmp/cache"
    options._Popart.set("outlineThreshold", 10.0).setPatterns({"OpToIdentity": False}, 0)
    assert options._Popart.options["outlineThreshold"] == 10.0
    infer(options)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options._Popart.checkIsFrozen()


def test_the_path_of_the_cache_is_as_it_was_given():
    for path in ("cache", "./a/../b", "/tmp/x/"):
        options = poptorch.Options().enableExecutableCaching(path)
        assert options._popart.options["cachePath"] == options.toDict()["cachePath"] == path
        assert options.clone()._popart.options["cachePath"] == path
    assert "cachePath" not in options.enableExecutableCaching(None)._popart.options


KEYS = {
    "decomposeGradSum": True,
    "subgraphCopyingStrategy": int(popart.SubgraphCopyingStrategy.JustInTime),
    "scheduleNonWeightUpdateGradientConsumersEarly": True,
    "explicitRecomputation": True,
    "enableExplicitIR": False,
    "virtualGraphMode": int(popart.VirtualGraphMode.Manual),
    "timeLimitScheduler": -1,
    "swapLimitScheduler": -1,
    "partialsTypeMatMuls": "half",
    "defaultBufferingDepth": 3,
    "defaultPrefetchBufferingDepth": 3,
    "disableOptimizerStateTensorStreams": True,
    "disableGradAccumulationTensorStreams": True,
    "enableStochasticRounding": False,
    "enableGradientAccumulation": True,
    "replicatedCollectivesSettings.prepareScheduleForMergingCollectives": True,
    "replicatedCollectivesSettings.mergeAllReduceCollectives": True,
    "accumulateOuterFragmentSettings.schedule":
        int(popart.AccumulateOuterFragmentSchedule.OverlapMemoryOptimized),
    "accumulateOuterFragmentSettings.excludedVirtualGraphs": ["0"],
    "batchSerializationSettings.factor": 2,
    "autoRecomputation": int(popart.RecomputationType.Standard),
    "saveInitializersToFile": "weights.onnx",
    "groupNormStridedChannelGrouping": True,
    "engineOptions": {"target.syncReplicasIndependently": "true"},
    "convolutionOptions": {"partialsType": "half"},
    "matmulOptions": {}, "lstmOptions": {}, "gclOptions": {}, "reportOptions": {},
    "hardwareInstrumentations": {0, 1},
    "customCodelets": ["codelet.cpp"],
    "updatableNamedBuffers": [],
}
PATTERNS = ["TiedGather", "TiedGatherAccumulate", "UpdateInplacePrioritiesForIpu", "OpToIdentity"]


def test_keys_of_the_back_end():
    options = quiet_options()
    for key, value in KEYS.items():
        options._Popart.set(key, value)
    options._Popart.setPatterns(dict.fromkeys(PATTERNS, True))
    infer(options)


def test_options_are_read_back():
    options = quiet_options(replicationFactor=2, deviceIterations=4, randomSeed=5,
                            setAvailableMemoryProportion={"IPU0": 0.3, "IPU1": 0.5})
    options.Training.gradientAccumulation(3)
    options.setExecutionStrategy(poptorch.ShardedExecution())
    loader = poptorch.DataLoader(options, TensorDataset(torch.zeros(24, 1)))
    for read in (options, loader.options):
        assert (read.replication_factor, read.device_iterations) == (2, 4)
        assert read.Training.gradient_accumulation == 3
        assert read._values["replication_factor"] == 2 and read._values["random_seed"] == 5
        assert read._values["device_iterations"] == 4
        assert read._values["available_memory_proportion"] == {0: 0.3, 1: 0.5}
    strategy = options._execution_strategy
    assert isinstance(strategy, poptorch.options._IExecutionStrategy)
    assert isinstance(strategy, poptorch.ShardedExecution)
    assert options.Distributed.num_distributed_processes == 1


def test_one_flat_dictionary():
    options = quiet_options(deviceIterations=2, enableExecutableCaching="/tmp/cache",
                            setAvailableMemoryProportion={"IPU0": 0.3})
    options.Training.gradientAccumulation(3)
    off_chip = poptorch.TensorLocationSettings().useOnChipStorage(False)
    options.TensorLocations.setOptimizerLocation(off_chip.useReplicatedTensorSharding(True))
    values = options.toDict()
    assert (values["gradient_accumulation"], values["device_iterations"]) == (3, 2)
    assert values["replication_factor"] == 1 and values["cachePath"] == "/tmp/cache"
    assert poptorch.OutputMode(values["output_mode"]) is poptorch.OutputMode.Default
    assert values["available_memory_proportion"] == {0: 0.3}
    location = values["location_optimizer"]
    assert location["onChip"] is False and location["useReplicatedTensorSharding"] is True
    assert options.Training.toDict()["gradient_accumulation"] == 3
    json.dumps(values)


def test_a_seed_gives_equal_weights():
    weights = []
    for _ in range(2):
        poptorch.Options().randomSeed(0)
        weights.append(torch.nn.Linear(3, 2).weight.detach())
    assert torch.equal(*weights)
    for seed in (1.5, "1", None, torch.tensor(1)):
        with pytest.raises(TypeError, match="randomSeed"):
            poptorch.Options().randomSeed(seed)


def test_setters_are_looked_up_by_name():
    def apply(target, settings):
        for name, value in settings.items():
            setter = getattr(target, name)
            apply(setter, value) if isinstance(value, dict) else setter(value)

    options = poptorch.Options()
    apply(options, {"deviceIterations": 2, "Training": {"gradientAccumulation": 4}})
    assert options.device_iterations == 2 and options.Training.gradient_accumulation == 4
    assert poptorch.Options.deviceIterations.__qualname__ == "Options.deviceIterations"
    assert not callable(options.Precision.autocast_policy)
    with pytest.warns(DeprecationWarning, match="no effect"):
        poptorch.options._PrecisionOptions.autocastEnabled(options.Precision, True)


@pytest.mark.parametrize("kind", [poptorch.OutputMode, poptorch.enums.DataLoaderMode])
def test_choices_from_the_dictionary_of_an_enumeration(kind):
    assert [n for n in kind.__dict__ if not n.startswith("_")] == list(kind.__members__)


def test_names_of_old_releases():
    casting = poptorch.HalfFloatCastingBehavior
    assert casting.HalfUpcastToFloat is not casting.FloatDowncastToHalf
    assert poptorch.AnchorMode.EveryN is not poptorch.AnchorMode.Final
    options = poptorch.Options()
    with pytest.warns(DeprecationWarning, match="anchorMode.*outputMode"):
        assert options.anchorMode(poptorch.AnchorMode.EveryN, 2) is options
    assert options.output_mode is poptorch.OutputMode.EveryN and options.output_return_period == 2


class Launched(poptorch.Options):
    """Options as the launcher popdist subclasses them."""

    def __init__(self, ipus_per_replica=1):
        super().__init__()
        self._ipus_per_replica = ipus_per_replica
        self.Distributed.configureProcessId(0, 1)
        self.replicationFactor(2)


def test_a_subclass():
    options = Launched(ipus_per_replica=4).clone()
    assert type(options) is Launched and options._ipus_per_replica == 4
    assert options.showCompilationProgressBar(False).replication_factor == 2
    assert infer(options).shape == (2, 2)
    with pytest.raises(TypeError):
        poptorch.Options(4)


def test_one_object_for_loaders_and_wrappers():
    options = poptorch.Options().showCompilationProgressBar(False).deviceIterations(2)
    data = TensorDataset(torch.zeros(8, 3))
    assert len(poptorch.DataLoader(options, data)) == len(poptorch.DataLoader(options, data)) == 4
    infer(options)
    infer(options)
    assert len(poptorch.DataLoader(options.clone().deviceIterations(4), data)) == 2
