"""Which hyper-parameters may change while a compiled model is trained."""

import copy
import functools
import pickle

import pytest
import torch

import poptorch
from tests.optim.loops import Net, options, train


def compiled(optimizer_of):
    net = Net()
    optimizer = optimizer_of(net.parameters())
    model = poptorch.trainingModel(net, options(), optimizer)
    model(*batch())
    return optimizer, model


def batch():
    return torch.randn(4, 6), torch.randn(4, 3)


KINDS = {
    "SGD": ({"momentum": 0.9}, ["lr", "momentum"], ["dampening", "weight_decay", "loss_scaling",
                                                    "velocity_scaling", "max_grad_norm"]),
    "Adam": ({"betas": (0.8, 0.9), "loss_scaling": 2.0}, ["lr", "betas", "loss_scaling"],
             ["eps", "weight_decay", "max_grad_norm"]),
    "AdamW": ({"lr": 0.1, "eps": 1e-6, "max_grad_norm": 1.0}, ["lr", "eps", "max_grad_norm"],
              ["betas", "weight_decay", "loss_scaling", "bias_correction"]),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_is_passed_is_variable(name):
    settings, variable, constant = KINDS[name]
    marks = getattr(poptorch.optim, name)(Net().parameters(), **{"lr": None, **settings}) \
        .variable_attrs
    assert isinstance(marks, poptorch.optim.VariableAttributes)
    assert not any(map(marks.isConstant, variable)) and all(map(marks.isConstant, constant))


def test_marks():
    marks = poptorch.optim.VariableAttributes(["lr"], ["lr", "eps"])
    marks.markAsVariable("eps")
    assert not marks.isConstant("eps")
    marks.markAsConstant("eps")
    assert marks.isConstant("eps") and not marks.isConstant("lr")


@pytest.mark.parametrize("method", ["isConstant", "markAsConstant", "markAsVariable"])
def test_an_attribute_that_is_not_there(method):
    marks = poptorch.optim.SGD(Net().parameters(), lr=0.1).variable_attrs
    words = rf"\[VariableAttributes.{method}\] the optimizer has no attribute 'alpha'. Its .* lr,"
    with pytest.raises(ValueError, match=words):
        getattr(marks, method)("alpha")
    with pytest.raises(ValueError, match="no attribute 'alpha'. Its attributes are: lr."):
        poptorch.optim.VariableAttributes(["alpha"], ["lr"])


@pytest.mark.parametrize("make, name, value, old", [
    (functools.partial(poptorch.optim.SGD, lr=0.1), "weight_decay", 0.5, "0.0"),
    (functools.partial(poptorch.optim.Adam, lr=0.1), "betas", (0.5, 0.9), r"\(0.9, 0.999\)"),
    (functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9), "weight_decay", 0.5, "0.0"),
    (functools.partial(torch.optim.Adam, lr=0.1), "eps", 0.5, "1e-08"),
])
def test_a_constant_of_a_group(make, name, value, old):
    """At setOptimizer, and at the next call without one; it may come back."""
    optimizer, model = compiled(make)
    before, group = optimizer.param_groups[0][name], optimizer.param_groups[0]
    group[name] = value
    words = rf"\[setOptimizer\] {name}={old} of parameter group 0 is a constant of the compiled"
    for use in (lambda: model.setOptimizer(optimizer), lambda: model(*batch())):
        with pytest.raises(ValueError, match=words):
            use()
    group[name] = before
    model(*batch())
    group[name] = value
    model.destroy()
    model(*batch())


@pytest.mark.parametrize("name, value", [("loss_scaling", 2.0), ("max_grad_norm", 1.0)])
def test_a_constant_of_all_groups(name, value):
    optimizer, model = compiled(functools.partial(poptorch.optim.Adam, lr=0.1))
    setattr(optimizer, name, value)
    with pytest.raises(ValueError, match=f"{name}=.* is a constant of the compiled model, got"):
        model.setOptimizer(optimizer)


def test_what_torch_has_not_at_its_default_is_variable():
    def change(step, ours, theirs, model):
        for optimizer in (ours, theirs):
            optimizer.param_groups[0]["weight_decay"] = 0.1 * (step + 1)
            optimizer.param_groups[0]["momentum"] = 0.9 - 0.1 * step

    make = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1)
    assert train(make, make, before_step=change)[-1] < 1e-5


def test_what_was_marked():
    def change(step, ours, theirs, model):
        for optimizer in (ours, theirs):
            optimizer.param_groups[0]["weight_decay"] = 0.1 * step

    def make(params):
        optimizer = poptorch.optim.SGD(params, lr=0.1, momentum=0.9)
        optimizer.variable_attrs.markAsVariable("weight_decay")
        return optimizer

    reference = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    assert train(make, reference, before_step=change)[-1] < 1e-5


def test_marked_as_constant():
    optimizer, model = compiled(functools.partial(poptorch.optim.SGD, lr=0.1, momentum=0.9))
    net = Net()
    other = poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    other.variable_attrs.markAsConstant("momentum")
    model = poptorch.trainingModel(net, options(), other)
    model(*batch())
    other.param_groups[0].update(lr=0.5, momentum=0.5)
    with pytest.raises(ValueError, match="momentum=0.9 of parameter group 0 is a constant"):
        model.setOptimizer(other)


def test_a_file_knows_the_constants(tmp_path):
    net = Net()
    make = functools.partial(poptorch.optim.SGD, [*net.parameters()], lr=0.1)
    model = poptorch.trainingModel(net, options(), make())
    model(*batch())
    path = model.save(tmp_path / "net.poptorch")
    model.destroy()
    loaded = poptorch.trainingModel(net, options(), make(weight_decay=0.5))
    with pytest.raises(poptorch.Error, match="weight_decay=0.0 of parameter group 0 is a constant"):
        loaded.loadExecutable(path)


def test_copies_have_them(tmp_path):
    optimizer = poptorch.optim.SGD(Net().parameters(), lr=0.1, momentum=0.9, loss_scaling=4.0)
    for other in (copy.copy(optimizer), copy.deepcopy(optimizer),
                  pickle.loads(pickle.dumps(optimizer))):
        assert other.loss_scaling == 4.0 and not other.variable_attrs.isConstant("momentum")
        assert other.variable_attrs.isConstant("dampening")


@pytest.mark.parametrize("package", [poptorch.optim, torch.optim])
def test_an_equal_optimizer_sends_nothing(package):
    """A default SGD of PyTorch and one of poptorch.optim are the same to the device."""
    net = Net()
    model = poptorch.trainingModel(net, options(), poptorch.optim.SGD(net.parameters(), lr=1.0))
    model(*batch())
    before = model._programs.current
    model.setOptimizer(package.SGD(net.parameters(), lr=1.0))
    model(*batch())
    assert model._programs.current is before
