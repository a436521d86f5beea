"""Options.loadFromFile: what a line may say, and the errors for all else."""

import pytest
import torch

import poptorch


@pytest.fixture
def load(tmp_path):
    """Loads options from the text of a file."""
    def load_text(text, options=None, name="run.cfg"):
        path = tmp_path / name
        path.write_text(text)
        return (poptorch.Options() if options is None else options).loadFromFile(path)

    return load_text


def test_a_whole_file(load):
    options = load('''
# a comment
deviceIterations(4)   # a trailing comment
  outputMode(poptorch.OutputMode.EveryN, 2)

Training.gradientAccumulation(gradient_accumulation=8)
setAvailableMemoryProportion({"IPU0": 0.5, "IPU1": 1})
Precision.setPartialsType(torch.half)
TensorLocations.setWeightLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))
_Popart.set("outlineThreshold", -1.5)
setExecutionStrategy(poptorch.ShardedExecution(poptorch.Stage("a").ipu(1), "b"))
appendToLocationExcludes("a", 'b')
replicationFactor(2).autoRoundNumIPUs()
''')
    expected = poptorch.Options().deviceIterations(4).replicationFactor(2).autoRoundNumIPUs()
    expected.outputMode(poptorch.OutputMode.EveryN, 2).appendToLocationExcludes("a", "b")
    expected.setAvailableMemoryProportion({"IPU0": 0.5, "IPU1": 1})
    expected.Training.gradientAccumulation(8)
    expected.Precision.setPartialsType(torch.half)
    expected.TensorLocations.setWeightLocation(poptorch.TensorLocationSettings(onChip=False))
    expected._Popart.set("outlineThreshold", -1.5)
    stages = poptorch.Stage("a").ipu(1), poptorch.Stage("b")
    expected.setExecutionStrategy(poptorch.ShardedExecution(*stages))
    assert options == expected


def test_a_second_file_overrides_what_it_lists(load):
    options = load("deviceIterations(4)\nrandomSeed(1)")
    assert load("deviceIterations(5)", options) is options
    assert (options.device_iterations, options.random_seed) == (5, 1)


@pytest.mark.parametrize(("line", "words"), [
    ("deviceIterations(", r"SyntaxError at line 2 of run.cfg: .*\n> options.deviceIterations\("),
    ("deviceIteration(4)", "AttributeError at line 2 .*Did you mean .*deviceIterations"),
    ("deviceIterations(0)", "ValueError at line 2 .*an int from 1 to 2147483647, got 0"),
    ("deviceIterations('4')", "TypeError at line 2"),
    ("deviceIterations", "SyntaxError at line 2 .*expected a call"),
    ("deviceIterations = 4", "SyntaxError at line 2"),
    ("Trainings.gradientAccumulation(2)", "no group 'Trainings'. Did you mean Training"),
    ("Training.gradientAccumulate(2)", "Did you mean .*gradientAccumulation"),
    ("outputMode(poptorch.OutputMode.Al)", "no member 'Al'.*Members: Final, EveryN, All"),
    ("outputMode(poptorch.OutputModes.All)", "no enum 'OutputModes'. Did you mean OutputMode"),
    ("deviceIterations(n)", "NameError at line 2 .*name 'n' is not known"),
    ("deviceIterations(2 ** 2)", "is not a plain value"),
    ("deviceIterations(*[1])", "is not a plain value"),
    ("deviceIterations(**{'a': 1})", "write the arguments out"),
    ("import os", "SyntaxError at line 2"),
    ("__class__.__init__()", "no group '__class__'"),
    ("_set('device_iterations', 4)", "no option '_set'"),
    ("logDir(__import__('os').getcwd())", "may not be called"),
    ("logDir(poptorch.os.getcwd())", "may not be called"),
    ("logDir(poptorch.logger.name)", "no enum 'logger'"),
    ("logDir(open('x'))", "may not be called"),
    ("(deviceIterations)(lambda: 3)", "is not a plain value"),
    ("deviceIterations(4)(5)", "expected the name of an option"),
    ("TensorLocations.setWeightLocation(poptorch.TensorLocationSettings()._freeze())",
     "no option '_freeze'"),
    ("setExecutionStrategy(poptorch.ShardedExecution().stages())",
     "ShardedExecution has no method 'stages'"),
    ("clone().deviceIterations(4)", r"Options.clone\(\) changes no option. Take it out, and name "),
    ("toDict()", r"Options.toDict\(\) changes no option"),
    ("Training.checkIsFrozen()", r"TrainingOptions.checkIsFrozen\(\) changes no option"),
    ("_Popart.check_known()", r"PopartOptions.check_known\(\) changes no option")])
def test_bad_lines(load, line, words, tmp_path):
    with pytest.raises(poptorch.options.ConfigFileError, match=words) as caught:
        load(f"randomSeed(1)\n{line}\n")
    assert caught.value.line == 2 and caught.value.file == str(tmp_path / "run.cfg")
    assert str(caught.value).endswith(f"\n> options.{line}")


def test_frozen_options_and_missing_files(load, tmp_path):
    options = poptorch.Options()
    options._freeze()
    with pytest.raises(poptorch.options.ConfigFileError, match="Can't modify frozen Options"):
        load("deviceIterations(4)", options)
    with pytest.raises(FileNotFoundError):
        poptorch.Options().loadFromFile(tmp_path / "missing.cfg")


def test_files_that_are_no_text(tmp_path):
    path = tmp_path / "run.cfg"
    path.write_bytes(b"deviceIterations(4)\n# \xff\n")
    with pytest.raises(poptorch.options.ConfigFileError, match="line 2 .*0xff is not UTF-8") as e:
        poptorch.Options().loadFromFile(path)
    assert (e.value.file, e.value.line) == (str(path), 2)
