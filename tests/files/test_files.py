"""Files: what was saved comes back with the same bits, and bad files are refused with a reason."""

import collections
import importlib
import inspect
import json
import os
import sys
import textwrap
import zipfile

import pytest
import safetensors.torch
import torch

import poptorch
from tests.helpers import quiet_options as options
from tests.helpers import run_python

Pair = collections.namedtuple("Pair", "scores loss")


class Net(torch.nn.Module):
    """Convolution, batch norm, dropout, tied and frozen weights, a named tuple as result."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.drop = torch.nn.Dropout(0.3)
        self.fc = torch.nn.Linear(8 * 16, 5)
        self.again = self.fc
        self.scale = torch.nn.Parameter(torch.ones(5), requires_grad=False)
        self.activation = torch.nn.functional.gelu

    def forward(self, x, target=None, factor=1.0):
        y = self.drop(self.activation(self.norm(self.conv(x))))
        y = self.again(y.flatten(1)) * self.scale * factor
        if target is None:
            return y
        return Pair(y, torch.nn.functional.cross_entropy(y, target))


def batch(n=4):
    return torch.randn(n, 3, 6, 6), torch.randint(0, 5, (n,))


def training(net, opts=None, optimizer=None):
    optimizer = optimizer or torch.optim.Adam(net.parameters(), lr=0.01)
    return poptorch.trainingModel(net, opts or options(), optimizer)


def same_training(model, again, n=4, steps=3):
    for _ in range(steps):
        data = batch(n)
        ours, theirs = model(*data), again(*data)
        assert type(theirs) is type(ours)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs))
    ours, theirs = model.state_dict(), again.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: poptorch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: poptorch.optim.RMSprop(p, lr=0.01, centered=True, use_tf_variant=True),
    "lamb": lambda p: poptorch.optim.LAMB(p, lr=0.01, max_weight_norm=2.0),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.1),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.1),
}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_goes_on_bit_for_bit(kind, tmp_path):
    net = Net()
    model = training(net, optimizer=OPTIMIZERS[kind]([p for p in net.parameters()
                                                      if p.requires_grad]))
    for _ in range(3):
        model(*batch())
    model._optimizer.optimizer.param_groups[0]["lr"] *= 0.5
    again = poptorch.load(model.save(tmp_path / "net.poptorch"))
    assert again.rng_state == model.rng_state
    same_training(model, again)
    third = poptorch.load(again.save(tmp_path / "again.poptorch"))  # what was loaded is saved
    same_training(again, third)


@pytest.mark.parametrize("kind", ["rmsprop", "nadam", "asgd"])
def test_states_that_do_not_begin_at_zero_before_the_first_call(kind, tmp_path):
    net = Net()
    parts = [p for p in net.parameters() if p.requires_grad]
    model = training(net, optimizer=OPTIMIZERS[kind](parts))
    again = poptorch.load(model.compileAndExport(tmp_path / "net.poptorch", *batch()))
    same_training(model, again)


def test_the_state_of_a_file_is_taken_by_one_that_has_just_begun(tmp_path):
    net = Net()
    model = training(net, optimizer=torch.optim.Adagrad(net.parameters(), lr=0.1))
    for _ in range(3):
        model(*batch())
    path = model.save(tmp_path / "net.poptorch")
    other = Net()
    other.load_state_dict(net.state_dict())
    again = training(other, optimizer=torch.optim.Adagrad(other.parameters(), lr=0.1))
    again.loadExecutable(path)
    same_training(model, again)


def test_accumulation_replicas_and_iterations(tmp_path):
    opts = options(deviceIterations=2, replicationFactor=2, broadcastBuffers=False)
    opts.Training.gradientAccumulation(2)
    model = training(Net(), opts)
    model(*batch(16))
    same_training(model, poptorch.load(model.save(tmp_path / "net.poptorch")), n=16)


def test_export_before_the_first_call(tmp_path):
    net = Net().eval()
    model = poptorch.inferenceModel(net, options())
    x, _ = batch()
    again = poptorch.load(model.compileAndExport(tmp_path / "net.poptorch", x))
    assert torch.equal(model(x), again(x))
    assert torch.equal(again.model(x), net(x))  # the module runs on the CPU, too
    assert again.model is not net and again.model.again is again.model.fc
    assert not again.model.training and not again.model.scale.requires_grad


def test_nothing_is_captured_or_compiled(tmp_path, monkeypatch):
    model = poptorch.inferenceModel(Net().eval(), options())
    x, _ = batch()
    path = model.compileAndExport(tmp_path / "net.poptorch", x)
    for name in ("capture", "translate"):
        monkeypatch.setattr(poptorch._executor.translation, name,
                            lambda *_, **__: pytest.fail("called"))
    monkeypatch.setattr(poptorch._C, "compile", lambda *_, **__: pytest.fail("called"))
    calls = []
    monkeypatch.setattr(Net, "__call__", lambda *_: calls.append(1))
    again = poptorch.load(path)
    assert not calls
    assert torch.equal(again(x), model(x))
    assert again._executable.step_times() == {}
    assert again.ir("plan") == model.ir("plan")


IN_A_PROCESS = """
import sys, torch, poptorch
sys.path.insert(0, {folder!r})
import saved_net
sys.modules.pop("poptorch._capture", None)
model = poptorch.load({path!r})
data = torch.load({data!r})
out = [model(*data[i]) for i in range(len(data))]
torch.save((out, {{k: v for k, v in model.state_dict().items()}}), {result!r})
"""


def test_the_same_bits_in_a_fresh_process(tmp_path, monkeypatch):
    body = inspect.getsource(Net)
    (tmp_path / "saved_net.py").write_text(
        "import collections, torch\nPair = collections.namedtuple('Pair', 'scores loss')\n" + body)
    monkeypatch.syspath_prepend(str(tmp_path))
    saved_net = importlib.import_module("saved_net")
    model = training(saved_net.Net())
    for _ in range(2):
        model(*batch())
    names = {key: str(tmp_path / key) for key in ("path", "data", "result")}
    model.save(names["path"])
    data = [batch() for _ in range(3)]
    torch.save(data, names["data"])
    run_python(IN_A_PROCESS.format(folder=str(tmp_path), **names))
    results, state = torch.load(names["result"], weights_only=False)
    for pair, theirs in zip(data, results):
        assert all(torch.equal(a, b) for a, b in zip(model(*pair), theirs))
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    del sys.modules["saved_net"]


def test_load_executable_takes_the_weights_of_the_module(tmp_path):
    x, _ = batch()
    path = poptorch.inferenceModel(Net().eval(), options()).compileAndExport(
        tmp_path / "net.poptorch", x, export_model=False)
    other = Net().eval()
    model = poptorch.inferenceModel(other, options())
    model.loadExecutable(path)
    assert model.isCompiled()
    compiled = poptorch.inferenceModel(other, options())
    assert torch.equal(model(x), compiled(x))
    with pytest.raises(poptorch.Error, match="compiled already. Call destroy"):
        model.loadExecutable(path)
    with pytest.raises(poptorch.Error, match="export_model=False.*loadExecutable"):
        poptorch.load(path)


def test_load_executable_for_training_goes_on(tmp_path):
    model = training(Net())
    for _ in range(3):
        model(*batch())
    path = model.save(tmp_path / "net.poptorch", export_model=False)
    net = Net()
    net.load_state_dict(model.state_dict())
    again = training(net)
    again.loadExecutable(path)
    same_training(model, again)


@pytest.mark.parametrize(("make", "words"), [
    (lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.5, weight_decay=0.25),
     r"weight_decay=0.0 of parameter group 0 .* got 0.25\. Make the optimizer as it was"),
    (lambda p: torch.optim.Adam(p, lr=0.1), "SGD is already compiled, got Adam. Make the optim"),
    (lambda p: poptorch.optim.SGD(p, lr=0.1), "an update with momentum .* got momentum=0. Make")])
def test_load_executable_with_another_optimizer(make, words, tmp_path):
    net = Net()
    path = training(net, optimizer=poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)) \
        .compileAndExport(tmp_path / "net.poptorch", *batch())
    other = Net()
    model = training(other, optimizer=make(other.parameters()))
    with pytest.raises(poptorch.Error, match=rf"^\[loadExecutable\] .*net.poptorch: .*{words}"):
        model.loadExecutable(path)


@pytest.mark.parametrize("wrap", [lambda net, opts: poptorch.inferenceModel(net.eval(), opts),
                                  training], ids=["inference", "training"])
def test_load_executable_of_another_class(wrap, tmp_path):
    class Other(Net):
        def forward(self, *args):
            return super().forward(*args)

    path = wrap(Net(), options()).compileAndExport(tmp_path / "net.poptorch", *batch())
    model = wrap(Other(), options())
    with pytest.raises(poptorch.Error, match=r"^\[loadExecutable\] .*net.poptorch: the file was "
                       r"made from a module of the class Net, this is a Other\. Wrap a module of"):
        model.loadExecutable(path)
    again = wrap(poptorch.BeginBlock(Net(), ipu_id=0), options())
    again.loadExecutable(path)
    assert again.isCompiled()


def test_a_local_class_needs_export_model_false(tmp_path):
    class Local(torch.nn.Linear):
        pass

    net, x = Local(4, 2), torch.randn(3, 4)
    model = poptorch.inferenceModel(net, options())
    with pytest.raises(poptorch.Error, match=r"\[save\] model.*export_model=False"):
        model.compileAndExport(tmp_path / "a.poptorch", x)
    assert os.listdir(tmp_path) == []
    path = model.compileAndExport(tmp_path / "a.poptorch", x, export_model=False)
    again = poptorch.inferenceModel(net, options())
    again.loadExecutable(path)
    assert torch.equal(again(x), model(x))


def test_a_folder_gets_one_file(tmp_path):
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), options())
    path = model.compileAndExport(tmp_path, torch.randn(3, 4))
    assert [str(tmp_path / name) for name in os.listdir(tmp_path)] == [path]
    assert model.save(tmp_path) == path  # the same contents
    assert len(os.listdir(tmp_path)) == 1
    with pytest.raises(poptorch.Error, match="cannot read"):
        poptorch.load(tmp_path)


def test_without_the_random_state(tmp_path):
    x = torch.ones(256)
    model = poptorch.inferenceModel(torch.nn.Dropout(0.5), options(randomSeed=7))
    first = model(x)
    fresh = poptorch.load(model.save(tmp_path / "a.poptorch", save_rng_state=False))
    going_on = poptorch.load(model.save(tmp_path / "b.poptorch"))
    assert torch.equal(fresh(x), first)
    second = model(x)
    assert not torch.equal(second, first) and torch.equal(going_on(x), second)


def test_ordinary_tools_read_it(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(4, 30), torch.nn.Linear(30, 2))
    model = poptorch.inferenceModel(net, options())
    path = model.compileAndExport(tmp_path / "net.poptorch", torch.randn(3, 4))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read("manifest.json"))
        assert manifest["format_version"] == 16 and manifest["training"] is False
        assert manifest["poptorch_version"] == poptorch.__version__
        assert archive.read("plan.ir").decode() == model.ir("plan")
        assert archive.read("translate.ir").decode() == model.ir("translate")
        poptorch._C.parse(archive.read("translate.ir").decode()).verify()
        weights = safetensors.torch.load(archive.read("weights.safetensors"))
    assert all(torch.equal(weights[name], value) for name, value in net.state_dict().items())
    assert sorted(os.listdir(tmp_path)) == ["net.poptorch"]


class Lookup(torch.nn.Module):
    """Large constants, a captured tensor that forward changes, nested results."""

    def __init__(self):
        super().__init__()
        self.table = torch.randn(40, 3)
        self.seen = torch.zeros(())
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, batch, flag=None, **more):
        self.calls += 1
        self.seen += 1
        rows = self.table[batch["index"]]
        return {"rows": rows, "more": [more["scale"] * 2, None, self.calls], "flag": flag}


def test_constants_nested_arguments_and_changed_tensors(tmp_path):
    model = poptorch.inferenceModel(Lookup(), options())
    data = collections.OrderedDict(index=torch.randint(0, 40, (7,)))
    scale = torch.randn(2)
    model(data, "on", scale=scale)
    again = poptorch.load(model.save(tmp_path / "net.poptorch"))
    for _ in range(2):
        ours, theirs = model(data, "on", scale=scale), again(data, "on", scale=scale)
        assert list(ours) == list(theirs) and theirs["flag"] == "on" and theirs["more"][1] is None
        assert torch.equal(ours["rows"], theirs["rows"])
        assert torch.equal(ours["more"][2], theirs["more"][2])
    with pytest.raises(poptorch.Error, match="mismatch for flag: expected 'on' but got 'off'"):
        again(data, "off", scale=scale)


@pytest.mark.parametrize("isa", poptorch._C.machine_isas())
def test_kernels_are_chosen_where_it_is_loaded(isa, tmp_path):
    own = poptorch._C.isa()
    net, (x, _) = Net().eval(), batch()
    try:
        poptorch._C.set_isa(isa)
        path = poptorch.inferenceModel(net, options()).compileAndExport(tmp_path / "a.poptorch", x)
        poptorch._C.set_isa(own)
        torch.set_num_threads(3)
        assert torch.equal(poptorch.load(path)(x), poptorch.inferenceModel(net, options())(x))
    finally:
        poptorch._C.set_isa(own)


def test_compiled_model_checks_the_arguments_of_an_export(tmp_path):
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), options())
    model(torch.randn(3, 4))
    with pytest.raises(poptorch.Error, match=r"expected torch.Size\(\[3, 4\]\)"):
        model.compileAndExport(tmp_path / "a.poptorch", torch.randn(5, 4))


def test_options_that_may_be_edited(tmp_path):
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), options(deviceIterations=2))
    path = model.compileAndExport(tmp_path / "net.poptorch", torch.randn(6, 4))
    again = poptorch.load(path, lambda opts: opts.useIpuModel(True))
    assert again.options.use_ipu_model is True and again.options.device_iterations == 2
    with pytest.raises(AttributeError, match="frozen"):
        again.options.deviceIterations(4)
    with pytest.raises(poptorch.Error, match="changed device_iterations from 2 to 4"):
        poptorch.load(path, lambda opts: opts.deviceIterations(4))
    with pytest.raises(poptorch.Error, match="edit_opts_fn returned other options .* Change those"):
        poptorch.load(path, lambda opts: opts.clone().timeout(2.0))
    with pytest.raises(TypeError, match="expected edit_opts_fn to be a function of options, got 5"):
        poptorch.load(path, 5)


class Scaled:
    """A result with a parser that looks at the tensor of the original."""

    def __init__(self, values):
        self.values = values


class ScaledParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.values

    def reconstruct(self, original_structure, tensor_iterator):
        assert original_structure.values.ndim == 2
        return Scaled(next(tensor_iterator))


class Scaler(torch.nn.Module):
    def forward(self, x):
        return Scaled(x * 2)


def test_results_that_cannot_be_put_together(tmp_path, monkeypatch):
    monkeypatch.setattr("poptorch.custom_args._parsers", {})
    poptorch.registerCustomArgParser(Scaled, ScaledParser())
    model = poptorch.inferenceModel(Scaler(), options())
    path = model.compileAndExport(tmp_path / "net.poptorch", torch.ones(2, 3))
    assert model(torch.ones(2, 3)).values.sum() == 12
    with pytest.raises(poptorch.Error, match=r"\[loadExecutable\] .*net.poptorch: the results "
                                             r"cannot be put together .*AttributeError.*reconst"):
        poptorch.load(path)


def test_the_graph_of_an_exported_program(tmp_path):
    x = torch.ones(3, 2)
    program = torch.export.export(torch.nn.Linear(2, 2), (x,))
    model = poptorch.inferenceModel(program, options())
    y = model(x)
    with pytest.raises(poptorch.Error, match=r"\[save\] the module is a graph, as torch.export "
                       r"makes it, .* Pass export_model=False"):
        model.save(tmp_path / "net.poptorch")
    path = model.save(tmp_path / "net.poptorch", export_model=False)
    torch.export.save(program, tmp_path / "net.pt2")
    again = poptorch.inferenceModel(torch.export.load(tmp_path / "net.pt2"), options())
    again.loadExecutable(path)
    assert torch.equal(again(x), y)


def test_a_class_of_the_name_with_the_parameters_is_enough(tmp_path):
    """For calls of the executor: nothing of the class runs."""
    code = """
        import poptorch, torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(2, 2)
            def forward(self, x):
                return self.layer(x) + 1
        options = poptorch.Options().showCompilationProgressBar(False)
        poptorch.inferenceModel(Net(), options).compileAndExport(PATH, torch.ones(3, 2))
        """
    again = """
        import poptorch, torch
        class Net(torch.nn.Module):
            def forward(self, x):
                pass
        print(tuple(poptorch.load(PATH)(torch.ones(3, 2)).shape))
        """
    path = repr(str(tmp_path / "net.poptorch"))
    for text in (code, again):
        printed = run_python(textwrap.dedent(text).replace("PATH", path))
    assert printed == "(3, 2)\n"


def test_empty_tables_of_layers_take_few_bytes(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    model = poptorch.inferenceModel(net, options())
    path = model.compileAndExport(str(tmp_path / "net"), torch.ones(2, 4))
    with zipfile.ZipFile(path) as archive:
        text = archive.read("model.json").decode()
    assert '{"make":"collections:OrderedDict"}' in text and '"args":[]' not in text
    assert poptorch.load(path).model[0]._forward_hooks == collections.OrderedDict()
