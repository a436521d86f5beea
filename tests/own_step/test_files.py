"""Programs with a captured ``step()`` in files: in Python, and without it."""

import copy

import numpy
import pytest
import safetensors.torch
import torch

import poptorch
from tests.own_step import zoo
from tests.own_step.common import Net, options
from tests.runner.test_inference import run

# load_state_dict of these does not give them all of their state, as in eager mode.
_WRAPPERS = ("Lookahead", "Ranger")


class Moved(zoo.Own):
    """As Lion, by other calls."""

    def update(self, p, grad, state, group):
        p.sub_(grad, alpha=group["lr"])


class Late(zoo.Own):
    """Takes another form from update 20 on."""

    def update(self, p, grad, state, group):
        state["step"] = state.get("step", 0) + 1
        p.sub_(grad if state["step"] < 20 else grad.sign(), alpha=group["lr"])


class Counting(zoo.Own):
    """Has a number of its own, which state_dict() does not have."""

    def __init__(self, params, **defaults):
        super().__init__(params, **defaults)
        self.updates = 0

    def step(self, closure=None):
        self.updates += 1
        super().step(closure)

    def update(self, p, grad, state, group):
        p.sub_(grad, alpha=group["lr"] / self.updates)


class PerGroup(zoo.Own):
    def update(self, p, grad, state, group):
        p.sub_(grad, alpha=group["rate"][0] / 100)


def wrapped(make, net=None, **settings):
    net = net or Net()
    optimizer = make(net.parameters())
    return net, optimizer, poptorch.trainingModel(net, options(**settings), optimizer)


def batches(steps, samples=2):
    """Parts of one array, as a file has them: bits depend on where in memory a batch begins."""
    x, target = torch.randn(steps * samples, 5), torch.randn(steps * samples, 1)
    return list(zip(x.split(samples), target.split(samples)))


def check_continues(model, others, data):
    for batch in data:
        expected = model(*batch)[1]
        for other in others:
            assert torch.equal(other(*batch)[1], expected)
    for other in others:
        for name, value in model.state_dict().items():
            assert torch.equal(other.state_dict()[name], value), name
        assert len(other.programs()) == 1


@pytest.mark.sampled
@pytest.mark.parametrize("kind", zoo.ALL)
@pytest.mark.parametrize("iterations", [1, 3])
def test_training_continues(kind, iterations, tmp_path):
    make, data = zoo.ALL[kind], batches(5, 2 * iterations)
    net, optimizer, model = wrapped(make, iterations=iterations)
    for batch in data[:2]:
        model(*batch)
    others = [poptorch.load(model.save(str(tmp_path / "net.poptorch")))]
    if kind not in _WRAPPERS:
        path = model.save(str(tmp_path / "program.poptorch"), export_model=False)
        other, own, executor = wrapped(make, iterations=iterations)
        other.load_state_dict(net.state_dict())
        if own.state:  # made by the constructor
            own.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        executor.loadExecutable(path)
        assert own.state_dict()["state"].keys() == optimizer.state_dict()["state"].keys()
        others.append(executor)
    check_continues(model, others, data[2:])


def test_a_program_that_never_ran(tmp_path):
    _, _, model = wrapped(zoo.AdaBelief)
    data = batches(3)
    again = poptorch.load(model.compileAndExport(str(tmp_path / "net.poptorch"), *data[0]))
    twice = poptorch.load(again.save(str(tmp_path / "twice.poptorch")))
    check_continues(model, [again, twice], data)


def test_attributes_of_the_optimizer(tmp_path):
    _, _, model = wrapped(Counting)
    data = batches(4)
    model(*data[0])
    again = poptorch.load(model.save(str(tmp_path / "net.poptorch")))
    check_continues(model, [again], data[1:])


def test_an_optimizer_with_a_state_keeps_it(tmp_path):
    net, _, model = wrapped(zoo.Tiger)
    data = batches(3)
    model(*data[0])
    path = model.save(str(tmp_path / "net.poptorch"), export_model=False)
    other, own, executor = wrapped(zoo.Tiger)
    other.load_state_dict(net.state_dict())
    for p in other.parameters():
        own.state[p]["ema"] = torch.ones_like(p)
    executor.loadExecutable(path)
    executor(*data[1])
    expected, reference, eager = wrapped(zoo.Tiger)
    expected.load_state_dict(net.state_dict())
    for p in expected.parameters():
        reference.state[p]["ema"] = torch.ones_like(p)
    eager(*data[1])
    assert torch.equal(own.state[other.a.weight]["ema"], reference.state[expected.a.weight]["ema"])


def test_numbers_are_those_of_the_new_optimizer(tmp_path):
    net, _, model = wrapped(zoo.SGDW)
    data = batches(2)
    path = model.compileAndExport(str(tmp_path / "net.poptorch"), *data[0], export_model=False)
    other, own, executor = wrapped(zoo.SGDW)
    other.load_state_dict(net.state_dict())
    executor.loadExecutable(path)
    own.param_groups[0]["lr"] = 0.0
    before = other.a.weight.clone()
    executor(*data[0])
    assert torch.equal(other.a.weight, before)
    own.param_groups[0]["lr"] = 0.1
    executor(*data[0])
    assert not torch.equal(other.a.weight, before) and len(executor.programs()) == 1


def test_a_late_form_compiles_again(tmp_path):
    _, _, model = wrapped(Late)
    data = batches(24)
    again = poptorch.load(model.compileAndExport(str(tmp_path / "net.poptorch"), *data[0]))
    for batch in data:
        assert torch.equal(model(*batch)[1], again(*batch)[1])


def test_the_next_update_takes_a_late_form(tmp_path):
    _, _, model = wrapped(Late)
    data = batches(21)
    for batch in data[:19]:
        model(*batch)
    path = str(tmp_path / "net.poptorch")
    with pytest.raises(poptorch.Error, match=r"\[save\] step\(\) of Late takes a form that it did "
                                             r"not have before. Call compileAndExport\(\)"):
        model.save(path)
    again = poptorch.load(model.compileAndExport(path, *data[0]))
    for batch in data[19:]:
        assert torch.equal(model(*batch)[1], again(*batch)[1])


def test_replicas(tmp_path):
    _, _, model = wrapped(zoo.Lion, accumulation=2, replicas=2)
    data = batches(3, 8)
    model(*data[0])
    check_continues(model, [poptorch.load(model.save(str(tmp_path / "net.poptorch")))], data[1:])


def test_a_state_that_is_cleared_begins_again(tmp_path):
    _, optimizer, model = wrapped(zoo.Lion)
    data = batches(3)
    model(*data[0])
    again = poptorch.load(model.save(str(tmp_path / "net.poptorch")))
    for one in (model, again):
        one._wrapped.optimizer.optimizer.state.clear()
    check_continues(model, [again], data[1:])


def test_a_bundle(tmp_path):
    net, _, model = wrapped(zoo.Lion)
    data = batches(3)
    model(*data[0])
    path = poptorch.save_bundle({"train": model}, str(tmp_path / "net.poptorch"))
    check_continues(model, [poptorch.load_bundle(path)["train"]], data[1:])


@pytest.mark.parametrize("make, text", [
    (zoo.Tiger, "the class of the optimizer is Tiger, in the file Lion"),
    (lambda p: zoo.Lion(list(p)[:2]), r"the parameter groups of the optimizer is \[\['scale', "
                                      r"'unused'\]\], in the file \[\['scale',"),
    (lambda p: type("Lion", (Moved,), {})(p),
     r"step\(\) of Lion calls TensorBase.sub_\(\(param scale, grad scale\), \{alpha=number\}\) "
     r"-> param scale at .*test_files.py:\d+, where the file has TensorBase.mul_\(")])
def test_another_optimizer_is_refused(make, text, tmp_path):
    net, _, model = wrapped(zoo.Lion)
    path = model.compileAndExport(str(tmp_path / "net.poptorch"), *batches(1)[0],
                                  export_model=False)
    _, own, executor = wrapped(make)
    with pytest.raises(poptorch.Error, match=f"{text}.* Make the optimizer as it was"):
        executor.loadExecutable(path)
    assert not own.state and not executor.isCompiled()


def test_numbers_that_were_equal_are_refused(tmp_path):
    def shared(net):
        return lambda params: PerGroup([{"params": [p], "rate": [rate]}
                                        for p, rate in zip(params, [2, 2, net, net, net, net])])

    _, _, model = wrapped(shared(2))
    path = model.compileAndExport(str(tmp_path / "net.poptorch"), *batches(1)[0],
                                  export_model=False)
    net, own, executor = wrapped(shared(3))
    own.state[net.scale]["seen"] = True  # a state of its own: that of the file is not taken
    with pytest.raises(poptorch.Error, match=r"two numbers of step\(\) of PerGroup differ"):
        executor.loadExecutable(path)


def test_changed_parameters_are_not_saved(tmp_path):
    net, optimizer, model = wrapped(zoo.Lion)
    model(*batches(1)[0])
    model.setOptimizer(zoo.Lion(net.parameters()))
    with pytest.raises(poptorch.Error, match=r"another optimizer was set. Call compileAndExport"):
        model.save(str(tmp_path / "net.poptorch"))


# -- without Python ----------------------------------------------------------------------------


def trained_without_python(path, folder, data, *words):
    names = [folder / "x.npy", folder / "target.npy"]
    for name, parts in zip(names, zip(*data)):
        numpy.save(name, torch.cat(parts).numpy())
    out = run("train", path, "--data", *names, "--steps", len(data), "--out",
              folder / "w.safetensors", *words)
    return [[float(word) for word in line.split()] for line in out.splitlines()]


@pytest.mark.parametrize("kind, steps, settings", [
    ("Lion", 0, {}), ("Tiger", 0, {"replicas": 2}), ("Trusting", 0, {}), ("NovoGrad", 1, {}),
    ("SGDW", 2, {"iterations": 3, "replicas": 2}), ("Lion", 1, {"iterations": 3})])
def test_poptorch_run_has_the_bits_of_python(kind, steps, settings, tmp_path):
    net, _, model = wrapped(zoo.ALL[kind], **settings)
    samples = 16 * settings.get("iterations", 1) * settings.get("replicas", 1)
    data = batches(6, samples)
    for batch in data[:steps]:
        model(*batch)
    path = model.compileAndExport(str(tmp_path / "net.poptorch"), *data[0])
    losses = trained_without_python(path, tmp_path, data[steps:])
    assert losses == [model(*batch)[1].flatten().tolist() for batch in data[steps:]]
    weights = safetensors.torch.load_file(tmp_path / "w.safetensors")
    for name, value in net.state_dict().items():
        assert torch.equal(weights[name], value), name


def test_poptorch_run_continues_from_a_state(tmp_path):
    _, _, model = wrapped(zoo.Lion)
    data, state = batches(4, 16), tmp_path / "state.safetensors"
    path = model.compileAndExport(str(tmp_path / "net.poptorch"), *data[0])
    first = trained_without_python(path, tmp_path, data[:2], "--out-state", state)
    weights = (tmp_path / "w.safetensors").rename(tmp_path / "half.safetensors")
    second = trained_without_python(path, tmp_path, data[2:], "--weights", weights,
                                    "--state", state)
    assert first + second == [model(*batch)[1].flatten().tolist() for batch in data]


@pytest.mark.parametrize("make, settings, text", [
    (zoo.Yogi, {}, r"step() of Yogi changes state.scale.step from 1 to 2 in Python"),
    (zoo.MADGRAD, {}, "step() of MADGRAD changes state.k from tensor([1]) to tensor([2]) in"),
    (zoo.SGDW, {}, "step() of SGDW computes a later update by other calls of torch than the next"),
    (zoo.lookahead, {}, "step() of Lookahead changes counter from 1 to 2 in Python"),
    (zoo.Lion, {"on_host": True}, "step() of Lion runs on the host")])
def test_poptorch_run_names_what_python_computes(make, settings, text, tmp_path):
    _, _, model = wrapped(make, **settings)
    path = model.compileAndExport(str(tmp_path / "net.poptorch"), *batches(1)[0])
    words = run("train", path, "--data", tmp_path / "x", tmp_path / "y", "--steps", 1,
                "--out", tmp_path / "w", status=1)
    assert f"runs in Python only: {text}" in words and "poptorch.load()" in words
