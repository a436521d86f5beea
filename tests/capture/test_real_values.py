"""What forward reads of tensors that have data: of plain attributes, constants, arrays of NumPy."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function, check_inference, check_training
from tests.helpers import quiet_options

X = torch.ones(4, dtype=torch.float64)


def plain(function, **attributes):
    """A module with plain attributes."""
    module = Function(function)
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor, torch.from_numpy],
                         ids=lambda make: make.__name__)
def test_an_array_is_taken_when_it_is_used(make):
    def forward(m, x):
        array = np.zeros(4)
        first = x + make(array)
        if make is torch.tensor:
            array[:] = 5
            return first, x + make(array)
        return first, array.fill(5)

    check_inference(Function(forward), X)


def test_an_array_behind_an_attribute_that_forward_writes():
    array = np.zeros(4)

    def once(m, x):
        array[:] = 1
        y = x + m.table
        array[:] = 3
        return y

    model = poptorch.inferenceModel(plain(once, table=torch.from_numpy(array)), quiet_options())
    assert torch.equal(model(torch.ones(4)), torch.full((4,), 2.0))
    twice = plain(lambda m, x: (once(m, x), x + m.table), table=torch.from_numpy(array))
    with pytest.raises(poptorch.Error, match=r"forward writes to a NumPy array .*"
                                             r"torch.tensor\(array\)"):
        capture(twice, (X,), training=False)


READS = {
    "numpy": lambda m, x: x * torch.tensor(m.t.numpy() * 2),
    "asarray": lambda m, x: x * float(np.asarray(m.t)[1]),
    "dlpack": lambda m, x: x * float(np.from_dlpack(m.t)[1]),
    "tolist": lambda m, x: x * m.t.tolist()[2],
}


@pytest.mark.parametrize("name", READS)
def test_values_of_a_plain_tensor(name):
    def changed(m, x):
        m.t.view(2, 2).add_(1)
        return READS[name](m, x)

    table = torch.arange(4.0, dtype=torch.float64) + 5
    check_inference(plain(READS[name], t=table), X)
    with pytest.raises(poptorch.Error, match="needs the value of a tensor"):
        capture(plain(changed, t=table), (X,), training=False)


def read_after_a_view(m, x):
    m.t.view(1).add_(1)
    return x * float(m.t)


def read_in_a_body(m, x):
    m.t.view(1).add_(1)
    return poptorch.for_loop(2, lambda y: (y * float(m.t),), [x])[0]


def read_by_a_closure(m, x):
    m.buffer.view(1).add_(1)
    return x * float(m.of_closure())


@pytest.mark.parametrize("forward", [read_after_a_view, read_in_a_body, read_by_a_closure])
def test_a_value_that_forward_has_changed_is_not_known(forward):
    module = Function(forward, buffers={"buffer": torch.ones(())})
    module.t, held = torch.ones(()), [module]
    module.of_closure = lambda: held[0].buffer
    with pytest.raises(poptorch.Error, match="needs the value of a tensor"):
        capture(module, (X,), training=False)


def test_a_value_that_is_not_changed_is_known_in_a_body():
    model = poptorch.inferenceModel(plain(lambda m, x: poptorch.for_loop(
        2, lambda y: (y * float(m.t),), [x])[0], t=torch.tensor(3.0)), quiet_options())
    assert torch.equal(model(torch.ones(4)), torch.full((4,), 9.0))


def test_a_value_that_forward_goes_on_without():
    def forward(m, x):
        try:
            return x * x.sum().item()
        except RuntimeError:
            return x

    with pytest.raises(poptorch.Error, match="needs the value of a tensor") as raised:
        capture(Function(forward), (X,), training=False)
    assert raised.value.location == f"{__file__}:{forward.__code__.co_firstlineno + 2}"


@pytest.mark.parametrize("view", [torch.Tensor.detach, lambda t: t.data],
                         ids=["detach", "data"])
def test_a_constant_that_is_changed_without_gradient(view):
    def forward(m, x):
        constant = torch.tensor(1.0)
        view(constant).add_(3)
        return x * constant.item(), x * constant

    check_inference(Function(forward), X)


COPIES = {
    "buffer": lambda m: m.buffer,
    "parameter": lambda m: m.p,
    "result": lambda m: (m.buffer * 1),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_deep_copy_has_memory_of_its_own(name):
    def forward(m, x):
        tensor = COPIES[name](m)
        old = copy.deepcopy(tensor)
        with torch.no_grad():
            tensor.add_(1)
        return x * old, x * tensor

    check_inference(Function(forward, {"p": X.clone()}, {"buffer": X.clone()}), X)


def test_a_deep_copy_of_a_layer():
    def forward(m, x):
        layer = copy.deepcopy(m.layer)
        with torch.no_grad():
            m.layer.weight.zero_()
        return (layer(x) * m.p).sum(), (layer(x) * m.p).sum()

    module = Function(forward, {"p": X.clone()})
    module.layer = nn.Linear(4, 4).double()
    check_inference(module, X)


def test_a_deep_copy_keeps_attributes_and_gets_no_gradient_of_the_parameter():
    def forward(m, x):
        m.buffer.tag = ["kept"]
        made = copy.deepcopy(m.buffer)
        assert made.tag == ["kept"] and made.tag is not m.buffer.tag
        other = copy.deepcopy(m.p)
        assert other.requires_grad
        loss = poptorch.identity_loss((x * m.p * other * made).sum(), "sum")
        return x, loss

    check_training(Function(forward, {"p": X * 2}, {"buffer": X * 3}), X)


def test_the_address_of_a_tensor():
    with pytest.raises(poptorch.Error, match=r"the address of a tensor .*data_ptr.*use `is`"):
        capture(Function(lambda m, x: x * (x.data_ptr() != 0)), (X,), training=False)
