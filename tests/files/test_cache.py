"""The cache of executables: what hits, what misses, damaged entries, sizes."""

import os
import re

import pytest
import torch

import poptorch
from poptorch import _C
from poptorch._base.extension_check import PACKAGE
from poptorch._base.logging import logger
from poptorch._executor import caching
from poptorch._files import cache
from tests.helpers import quiet_options


class Net(torch.nn.Module):
    """Dropout, a buffer that changes, a constant of more than a few elements."""

    def __init__(self, factor=2.0):
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)
        self.drop = torch.nn.Dropout(0.5)
        self.factor = factor
        self.table = torch.arange(40.0)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        y = self.drop(self.fc(x)) * self.factor + self.table[:4] * self.table[36:]
        return y, poptorch.identity_loss(y.square(), "mean")


@pytest.fixture
def compiles(monkeypatch):
    """A list that grows with each compilation."""
    found, compile_ = [], _C.compile

    def counted(module, *more):
        found.append(module)
        return compile_(module, *more)

    monkeypatch.setattr(_C, "compile", counted)
    return found


@pytest.fixture
def log(capsys):
    """The lines of the log since the last call."""
    level = logger.level
    poptorch.setLogLevel("DEBUG")
    yield lambda: capsys.readouterr().err.splitlines()
    logger.setLevel(level)


def options(folder, **settings):
    return quiet_options(enableExecutableCaching=str(folder), randomSeed=3, **settings)


def train(opts, steps=3, net=None):
    """Results of some steps, and the weights."""
    torch.manual_seed(1)
    net = net or Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, opts, optimizer)
    x = torch.linspace(-1, 1, 32).view(4, 8)
    found = [model(x) for _ in range(steps)]
    return [*(tensor for pair in found for tensor in pair), *model.state_dict().values()], model


def entries(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(cache.SUFFIX))


def equal(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_second_model_compiles_nothing_and_has_the_same_bits(tmp_path, compiles, log):
    first, model = train(options(tmp_path / "cache"))
    assert "[INFO] [cache] " in (text := "\n".join(log())) and "no executable of Net, train" in text
    second, again = train(options(tmp_path / "cache"))
    assert f"loaded the executable from {tmp_path}" in "\n".join(log())
    plain, _ = train(quiet_options(randomSeed=3))
    assert len(compiles) == 2 and equal(first, second) and equal(first, plain)
    assert os.listdir(tmp_path / "cache") == entries(tmp_path / "cache")
    assert len(entries(tmp_path / "cache")) == 1
    for step in ("translate", "rewrite", "place", "lower", "schedule", "plan"):
        assert model.ir(step) == again.ir(step)
    assert model.memory_report() == again.memory_report()
    assert model.partition_summary().rows == again.partition_summary().rows


@pytest.mark.parametrize("change", [
    lambda folder: train(options(folder), net=Net(3.0)),
    lambda folder: train(options(folder, deviceIterations=2)),
    lambda folder: train(options(folder, deterministic=True)),
    lambda folder: train(options(folder, replicationFactor=2, broadcastBuffers=False)),
    lambda folder: train(options(folder), net=torch.nn.Sequential(Net())),
])
def test_what_changes_the_program_misses(change, tmp_path, compiles):
    train(options(tmp_path))
    change(tmp_path)
    change(tmp_path)
    assert len(compiles) == 2 and len(entries(tmp_path)) == 2


def test_a_changed_hook_and_a_changed_line_are_seen(tmp_path, compiles):
    x = torch.ones(2, 8)
    for negated in (False, True):
        net = Net().eval()
        if negated:
            net.fc.register_forward_hook(lambda module, args, result: -result)
        y, _ = poptorch.inferenceModel(net, options(tmp_path))(x)
        assert torch.allclose(y, net(x)[0])
    scope = {}
    for line in ("x + 1", "x - 1"):
        exec(f"import torch\nclass Line(torch.nn.Module):\n  def forward(self, x):\n    "
             f"return {line}", scope)
        y = poptorch.inferenceModel(scope["Line"](), options(tmp_path))(x)
        assert torch.equal(y, eval(line))
    assert len(compiles) == 4


@pytest.mark.parametrize("variable", ["POPTORCH_OFF", "POPTORCH_ALGORITHM", "POPTORCH_HOST"])
def test_variables_of_the_environment_are_part_of_the_key(variable, tmp_path, compiles,
                                                          monkeypatch):
    value = {"POPTORCH_OFF": "fuse", "POPTORCH_ALGORITHM": "gemm:blas", "POPTORCH_HOST": "inline"}
    train(options(tmp_path))
    monkeypatch.setenv(variable, value[variable])
    train(options(tmp_path))
    assert len(compiles) == 2


@pytest.mark.parametrize("variable, value", [("POPTORCH_PASS_LIMIT", "2"),
                                             ("POPTORCH_RELOAD_IR", "1"), ("POPTORCH_DUMP_IR", "")])
def test_who_looks_at_the_steps_compiles(variable, value, tmp_path, compiles, monkeypatch):
    train(options(tmp_path / "cache"))
    monkeypatch.setenv(variable, value or str(tmp_path / "dump"))
    train(options(tmp_path / "cache"))
    assert len(compiles) == 2 and len(entries(tmp_path / "cache")) == 1


def test_values_of_weights_and_data_are_not_part_of_the_key(tmp_path, compiles):
    for value in (1.0, 2.0):
        net = torch.nn.Linear(8, 4)
        torch.nn.init.constant_(net.weight, value)
        torch.nn.init.zeros_(net.bias)
        model = poptorch.inferenceModel(net, options(tmp_path))
        assert torch.equal(model(torch.full((2, 8), value)), torch.full((2, 4), 8 * value**2))
    assert len(compiles) == 1


def test_files_in_other_folders(tmp_path, compiles):
    """An entry of another machine: the same files elsewhere, two of them with one name."""
    inner = "import torch\ndef look(table, index):\n    return table[index]\n"
    outer = ("import torch\n\ndef make(look):\n    class Found(torch.nn.Module):\n"
             "        def forward(self, index):\n"
             "            return look(torch.arange(4.0), index).cos()\n    return Found()\n")
    for place in ("here", "there/deep"):
        scopes = {}
        for folder, text in (("a", inner), ("b", outer)):
            path = tmp_path / place / folder / "net.py"
            path.parent.mkdir(parents=True)
            path.write_text(text)
            exec(compile(text, path, "exec"), scopes.setdefault(folder, {}))
        net = scopes["b"]["make"](scopes["a"]["look"])
        model = poptorch.inferenceModel(net, options(tmp_path / "cache"))
        assert torch.equal(model(torch.tensor([0])), torch.ones(1))
        for step in ("translate", "place", "plan"):
            assert {line.partition("  // ")[2] for line in model.ir(step).splitlines()} == {
                "", f"{tmp_path}/{place}/a/net.py:3", f"{tmp_path}/{place}/b/net.py:6"}
        with pytest.raises(poptorch.Error, match=rf"at {tmp_path}/{place}/a/net.py:3"):
            model(torch.tensor([7]))
    assert len(compiles) == 1 and len(entries(tmp_path / "cache")) == 1
    exec(compile("\n" + inner, tmp_path / "net.py", "exec"), scopes["a"])
    model = poptorch.inferenceModel(scopes["b"]["make"](scopes["a"]["look"]),
                                    options(tmp_path / "cache"))
    model.compile(torch.tensor([0]))
    assert len(compiles) == 2


def test_functions_of_the_host_are_not_kept(tmp_path, compiles):
    class Host(torch.nn.Module):
        def forward(self, x):
            return poptorch.CPU(torch.neg, "neg")(x) + 1

    for _ in range(2):
        model = poptorch.inferenceModel(Host(), options(tmp_path / "cache"))
        assert torch.equal(model(torch.ones(2)), torch.zeros(2))
    assert len(compiles) == 2 and not (tmp_path / "cache").exists()


def test_the_environment_names_the_folder(tmp_path, compiles, monkeypatch):
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path / "there"))
    for _ in range(2):
        train(quiet_options(randomSeed=3))
    assert len(compiles) == 1 and len(entries(tmp_path / "there")) == 1
    train(quiet_options(randomSeed=3, enableExecutableCaching=None))
    off = quiet_options(randomSeed=3)
    off._Popart.set("enableEngineCaching", False)
    train(off)
    assert len(compiles) == 3


def test_the_key_of_the_back_end(tmp_path, compiles):
    for _ in range(2):
        opts = quiet_options(randomSeed=3)
        opts._Popart.set("enableEngineCaching", True).set("cachePath", str(tmp_path / "there"))
        train(opts)
    assert len(compiles) == 1 and len(entries(tmp_path / "there")) == 1


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "text", "foreign", "swapped"])
def test_a_damaged_entry_is_replaced_with_one_warning(damage, tmp_path, compiles, log):
    first, _ = train(options(tmp_path))
    path = tmp_path / entries(tmp_path)[0]
    data = good = path.read_bytes()
    if damage == "swapped":  # of another program
        train(options(tmp_path, deterministic=True))
        other = next(name for name in entries(tmp_path) if name != path.name)
        data = (tmp_path / other).read_bytes()
    middle = len(data) // 2
    path.write_bytes({"cut": data[:middle], "empty": b"", "foreign": b"hello", "swapped": data,
                      "changed": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:],
                      "text": data.replace(b"addr=0", b"addr=1")}[damage])
    log()
    count = len(compiles)
    again, _ = train(options(tmp_path))
    warnings = [line for line in log() if "[WARN" in line]
    assert equal(first, again) and len(compiles) == count + 1
    assert len(warnings) == 1 and f"the entry {path} cannot be used: it " in warnings[0]
    assert path.read_bytes() == good
    train(options(tmp_path))
    assert len(compiles) == count + 1


def test_a_folder_that_cannot_be_written_to(tmp_path, compiles, log):
    (tmp_path / "file").write_text("")
    first, _ = train(options(tmp_path / "file"))
    assert f"[cache] the compiled program is not kept: {tmp_path}/file is not a folder. Pass " \
        "one to enableExecutableCaching()." in "\n".join(log())
    plain, _ = train(quiet_options(randomSeed=3))
    assert equal(first, plain) and (tmp_path / "file").read_text() == ""


def test_the_entries_used_last_stay(tmp_path):
    def use(width, most=1 << 30):
        opts = quiet_options(enableExecutableCaching=str(tmp_path), limitExecutableCache=most)
        poptorch.inferenceModel(torch.nn.Linear(8, width), opts)(torch.ones(2, 8))
        return max((tmp_path / name for name in entries(tmp_path)),
                   key=lambda path: path.stat().st_atime_ns)

    first, second = use(3), use(4)
    for age, path in ((300, first), (200, second)):
        os.utime(path, (path.stat().st_atime - age,) * 2)
    assert use(3) == first  # which is the newer one now
    third = use(5, most=2 * first.stat().st_size + 2000)
    assert {first.name, third.name} == set(entries(tmp_path))
    use(6, most=1)
    assert len(entries(tmp_path)) == 1  # the one that is in use


def test_estimates_of_an_entry_are_those_of_the_compiled_program(tmp_path, monkeypatch):
    monkeypatch.setenv("POPTORCH_IPU_SYSTEM", "pod4")
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "0")
    reports = []
    for _ in range(2):
        _, model = train(options(tmp_path))
        reports.append((str(model.report()), model.cycleCount()))
        model.destroy()
    assert reports[0] == reports[1]


def test_save_after_a_hit(tmp_path):
    for _ in range(2):
        first, model = train(options(tmp_path))
        path = model.save(tmp_path / "net.poptorch")
    again = poptorch.load(path)
    x = torch.ones(4, 8)
    assert equal(model(x), again(x))


def test_a_plan_is_checked_where_another_build_may_have_written_it(tmp_path, monkeypatch):
    proved, assemble = [], _C.assemble_text

    def noted(*given):
        proved.append(given[-1])
        return assemble(*given)

    monkeypatch.setattr(_C, "assemble_text", noted)
    for _ in range(2):
        _, model = train(options(tmp_path / "cache"))
    poptorch.load(model.save(tmp_path / "net.poptorch"))
    assert proved == [True, False]


def test_the_build_is_the_hash_that_the_linker_wrote(tmp_path):
    library = PACKAGE / "lib" / "libpoptorch.so"
    with open(library, "rb") as file:
        assert re.fullmatch("[0-9a-f]{32,}", caching.build_id(file)) and caching._build()
    whole = library.read_bytes()
    (tmp_path / "none").write_bytes(whole.replace(b"GNU\0", b"XXX\0"))
    (tmp_path / "text").write_text("no library")
    for name in ("none", "text"):
        with open(tmp_path / name, "rb") as file:
            assert caching.build_id(file) == ""
