"""Options: setters, checks, freezing, copies, printing."""

import pytest
import torch

import poptorch

# setter on Options or its group -> (good value, read as, bad type, bad value)
CASES = [
    ("deviceIterations", 4, "device_iterations", "4", 0),
    ("replicationFactor", 2, "replication_factor", 2.0, 0),
    ("Training.gradientAccumulation", 8, "gradient_accumulation", None, -1),
    ("randomSeed", 42, "random_seed", "x", 2**64),
]


def _setter(opts, name):
    group = opts
    *groups, method = name.split(".")
    for part in groups:
        group = getattr(group, part)
    return group, getattr(group, method)


@pytest.mark.parametrize(("name", "good", "read", "bad_type", "bad_value"), CASES,
                         ids=[c[0] for c in CASES])
def test_int_option(name, good, read, bad_type, bad_value):
    group, setter = _setter(poptorch.Options(), name)
    assert setter(good) is group
    assert getattr(group, read) == good
    with pytest.raises(TypeError, match=name.split(".")[-1]):
        setter(bad_type)
    with pytest.raises(ValueError, match=str(bad_value)):
        setter(bad_value)
    assert getattr(group, read) == good


def test_bool_options():
    opts = poptorch.Options().useIpuModel(True).showCompilationProgressBar(False)
    assert opts.use_ipu_model is True and opts.show_compilation_progress_bar is False
    with pytest.raises(TypeError, match="useIpuModel.*True or False"):
        opts.useIpuModel(1)


def test_output_mode():
    opts = poptorch.Options()
    assert opts.defaultOutputMode()
    opts.outputMode(poptorch.OutputMode.EveryN, 3)
    assert (opts.output_mode, opts.output_return_period) == (poptorch.OutputMode.EveryN, 3)
    opts.outputMode(poptorch.OutputMode.All, 7)
    assert opts.output_return_period == 1
    assert not opts.defaultOutputMode()
    with pytest.raises(ValueError, match="needs output_return_period"):
        opts.outputMode(poptorch.OutputMode.EveryN)
    with pytest.raises(TypeError, match="OutputMode.Final, OutputMode.EveryN"):
        opts.outputMode("All")


def test_reduction_type():
    training = poptorch.Options().Training
    training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    assert training.accumulation_and_replication_reduction_type is poptorch.ReductionType.Sum
    with pytest.raises(ValueError, match="NoReduction"):
        training.accumulationAndReplicationReductionType(poptorch.ReductionType.NoReduction)


def test_unknown_names():
    with pytest.raises(AttributeError, match="device_iterations"):
        poptorch.Options().device_iteration
    with pytest.raises(AttributeError, match="calling their method"):
        poptorch.Options().device_iterations = 3


def test_frozen_after_use():
    opts = poptorch.Options()
    poptorch.DataLoader(opts, [1, 2, 3])
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        opts.deviceIterations(2)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        opts.Training.gradientAccumulation(2)
    copy = opts.clone()
    copy.deviceIterations(2).Training.gradientAccumulation(3)
    assert (opts.device_iterations, opts.Training.gradient_accumulation) == (1, 1)


def test_equality_and_repr():
    first, second = (poptorch.Options().deviceIterations(2) for _ in range(2))
    second.Training.gradientAccumulation(4)
    assert first != second
    first.Training.gradientAccumulation(4)
    assert first == second and repr(first) == repr(second)
    assert repr(first) == ("Options(device_iterations=2, "
                           "Training=TrainingOptions(gradient_accumulation=4))")
    assert repr(poptorch.Options()) == "Options()"


def test_random_seed_seeds_the_host_too():
    poptorch.Options().randomSeed(7)
    first = torch.rand(3)
    poptorch.Options().randomSeed(7)
    assert torch.equal(first, torch.rand(3))
