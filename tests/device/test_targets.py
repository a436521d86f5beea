"""Which kind of IPU estimates are for: rows, machines of the user's own, and what chooses one."""

import json

import pytest
import torch

import poptorch
from poptorch import _C, Options
from poptorch._device.cost_settings import settings_of, target_of
from tests.device.test_costs import cost, product

TEXT = product(512, 768, 768)
ROWS = {row["name"]: row for row in _C.targets()}


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    """No variable chooses a device."""
    for name in ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL", "POPTORCH_IPU_SYSTEM"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def write(folder, text, name="mine.toml"):
    """The path of a TOML file."""
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_with_a_base(tmp_path):
    path = write(tmp_path, 'base = "gc200"\ntiles = 736\nclock_hz = 2_000_000_000\n')
    target = target_of(Options().target(path))
    assert target == {**ROWS["gc200"], "name": "mine", "source": target["source"], "tiles": 736,
                      "clock_hz": 2e9}
    assert cost(TEXT, target)["cycles"] > cost(TEXT, "gc200")["cycles"]


def test_a_file_with_all_fields(tmp_path):
    fields = {name: ROWS["bow"][name] for name, *_ in _C.target_fields()}
    text = "".join(f"{name} = {value}\n" for name, value in fields.items())
    target = target_of(Options().target(str(write(tmp_path, f'name = "all of it"\n{text}'))))
    assert target == {**fields, "name": "all of it", "source": ""}
    assert cost(TEXT, target) == cost(TEXT, "bow")


def test_the_file_is_read_once(tmp_path):
    path = write(tmp_path, 'base = "gc200"\ntiles = 736\n')
    options = Options().target(path)
    path.unlink()
    again = Options.fromDict(json.loads(json.dumps(options.toDict())))
    assert target_of(options) == target_of(options.clone()) == target_of(again)
    assert options == again


# Each field of a target changes something, but for those of whole programs.
@pytest.mark.parametrize("field, factor", [
    ("tiles", 0.5), ("workers", 2), ("interleaved_start", 0.5), ("units_f16", 2),
    ("exchange_bytes", 2), ("sync_cycles", 2), ("launch_cycles", 2), ("step_cycles", 2),
    ("op_cycles", 2)])
def test_fields_change_costs(field, factor):
    value = type(ROWS["gc200"][field])(ROWS["gc200"][field] * factor)
    target = target_of(Options().target({"name": "x", "base": "gc200", field: value}))
    assert cost(TEXT, target) != cost(TEXT, "gc200")


def test_plans_of_machines_with_one_name_differ():
    """They are kept by problem and machine."""
    cycles = [cost(TEXT, target_of(Options().target({"name": "x", "base": "gc200", "tiles": n})))
              for n in (1472, 736)]
    assert cycles[0] == cost(TEXT, "gc200") and cycles[0] != cycles[1]


@pytest.mark.parametrize("text, words", [
    ("tiles = 4", r"mine\.toml: missing fields: version, workers, .*base = \"gc200\""),
    ('base = "gc3"', r"mine\.toml: base: expected one of gc2, gc200, .* got 'gc3'"),
    ('base = "bow"\ntile = 4', r"mine\.toml: unknown field 'tile'\. Did you mean .*tiles.*\? "
                               r"Fields: name, base, source, version, tiles"),
    ('base = "bow"\ntiles = 0', "tiles: expected an int of at least 1, got 0"),
    ('base = "bow"\ntiles = 4.5', r"tiles: expected an int of at least 1, got 4\.5"),
    ('base = "bow"\nclock_hz = 0', "clock_hz: expected a finite number above 0, got 0"),
    ('base = "bow"\nsync_cycles = inf', "sync_cycles: expected a finite number of at least 0"),
    ('base = "bow"\nsync_cycles = true', "sync_cycles: expected a finite number .* got True"),
    ('base = "bow"\nname = 4', "name: expected a text, got 4"),
    ('base = "bow"\nname = "gc2"', "name: expected a name that poptorch does not use itself"),
    ('base = "bow"\ntile_bytes = 1024', "interleaved_start 212992 is not below tile_bytes 1024"),
    ("tiles = ", r"mine\.toml: not a TOML file: Invalid value"),
])
def test_wrong_files(tmp_path, text, words):
    with pytest.raises(ValueError, match=rf"^\[target\] .*{words}"):
        Options().target(write(tmp_path, text))


def test_neither_a_name_nor_a_file(tmp_path):
    with pytest.raises(ValueError, match=r"^\[target\] expected one of gc2, gc200, .* got 'gc20'\. "
                                         "Did you mean gc200"):
        Options().target("gc20")
    with pytest.raises(FileNotFoundError, match="mine.toml"):
        Options().target(tmp_path / "mine.toml")
    with pytest.raises(TypeError, match=r"^\[target\] expected .*, got int 4"):
        Options().target(4)


def test_what_chooses_the_target(variables):
    assert target_of(Options()) == "gc200"
    variables.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    assert target_of(Options()) == target_of(Options().useIpuModel(True)) == "small"
    variables.setenv("POPTORCH_IPU_MODEL", "1")
    assert target_of(Options()) == "gc200"
    variables.delenv("POPTORCH_IPU_MODEL")
    variables.setenv("POPTORCH_SMALL_IPU_MODEL", "0")
    assert target_of(Options()) == "gc200"
    for version, name in {1: "gc2", 2: "gc200", 21: "c600"}.items():
        assert target_of(Options().useOfflineIpuTarget(version)) == name
    variables.setenv("POPTORCH_IPU_SYSTEM", "bow-pod4")
    assert target_of(Options()) == "bow"
    assert target_of(Options().useOfflineIpuTarget(1)) == "gc2"
    assert target_of(Options().system("c2")) == "gc2"
    assert target_of(Options().useIpuModel(True)) == "gc200"
    assert target_of(Options().system("c2").target("c600")) == "c600"


def test_versions_cost_different_cycles():
    cycles = [cost(TEXT, target_of(Options().useOfflineIpuTarget(n)))["cycles"] for n in (1, 2)]
    assert cycles[0] > cycles[1]


def test_the_small_model_has_few_tiles(variables):
    variables.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    assert cost(TEXT, target_of(Options()))["cycles"] > 100 * cost(TEXT, "gc200")["cycles"]


def test_settings_of_options():
    assert settings_of(Options()) == {
        "memory_proportion": {}, "half_partials": False, "stable_norm": False,
        "dithering": False, "io_tiles": 0, "replicas": 1}
    options = Options().setAvailableMemoryProportion({"IPU1": 0.2}).enableStableNorm(True)
    options.Precision.setPartialsType(torch.half)
    options.Training.setConvolutionDithering(True)
    options.TensorLocations.numIOTiles(32)
    options.replicationFactor(2).Distributed.configureProcessId(1, 4)
    assert settings_of(options) == {
        "memory_proportion": {1: 0.2}, "half_partials": True, "stable_norm": True,
        "dithering": True, "io_tiles": 32, "replicas": 8}


def test_an_unknown_setting():
    with pytest.raises(poptorch.Error, match=r"\[settings\] there is no setting \"memory\""):
        cost(TEXT, memory=0.3)
