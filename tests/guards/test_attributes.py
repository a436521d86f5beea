"""What forward keeps in objects, and makes of modules: nothing without data stays there."""

from collections import OrderedDict, deque
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function
from tests.helpers import quiet_options


class Cache:
    """Of keys and values, as programs that decode keep them."""

    def __init__(self):
        self.key, self.seen, self.table = None, [1], {"a": 1}
        self.queue, self.order = deque([1], maxlen=2), OrderedDict(a=1)
        self.kinds, self.space, self.count = {1}, SimpleNamespace(x=1), 0


def fill(cache, x):
    y = x * 2
    cache.key, cache.new = y, [y]
    cache.count += 1
    cache.seen.append(y)
    cache.table["b"] = {"c": y}
    cache.queue.append(y)
    cache.order["b"] = y
    cache.kinds.add(y)
    cache.space.x = y
    return y


def check_as_before(cache):
    assert cache.key is None and not hasattr(cache, "new") and cache.count == 1
    assert cache.seen == [1] and cache.table == {"a": 1} and list(cache.queue) == [1]
    assert cache.order == {"a": 1} and cache.kinds == {1} and cache.space == SimpleNamespace(x=1)


def test_tensors_in_objects_are_put_back_with_a_warning(capsys):
    module = Function(lambda m, x: fill(m.caches[0], x))
    module.caches = [Cache()]
    model = poptorch.inferenceModel(module, quiet_options())
    for _ in range(2):
        assert torch.equal(model(torch.ones(2)), torch.full((2,), 2.0))
    (new,) = vars(module.caches[0]).pop("new")  # forward did not read it
    assert new.is_meta and new.shape == (2,)
    check_as_before(module.caches[0])
    told = " ".join(capsys.readouterr().err.split())
    assert ("forward keeps a tensor in caches[0].new, but its values are on the device: afterwards "
            "it holds tensors without data (device meta). Return the tensor;") in told
    for name in ("key", "seen", "table", "queue", "order", "kinds", "space"):
        assert (f"forward keeps a tensor in caches[0].{name}, but its values are on the device: "
                "afterwards it is as it was before. Return the tensor; for a state that lasts, use "
                "register_buffer and copy_().") in told
    assert "caches[0].count" not in told


class Manager:
    """Of hooks that keep what layers give."""

    def __init__(self):
        self.found = self.nested = self.read = None

    def __call__(self, layer, args, result):
        self.found[type(layer).__name__] = result

    def start(self, x):
        self.found = OrderedDict()
        self.nested = [(x * 2, None), {"y": x.int(), "z": [1]}]
        self.read = [x] if self.read is None else [*self.read, x]


def test_containers_that_programs_fill_with_results(capsys):
    manager, layers = Manager(), nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    for layer in layers:
        layer.register_forward_hook(manager)

    def forward(m, x):
        manager.start(x)
        return m.layers(x), *manager.found.values(), *manager.nested[1].values()

    module, x = Function(forward), torch.randn(4, 3)
    module.layers = layers
    model = poptorch.inferenceModel(module, quiet_options())
    results = model(x)
    assert type(manager.found) is OrderedDict and list(manager.found) == ["Linear", "Tanh"]
    (doubled, nothing), table = manager.nested
    assert nothing is None and list(table) == ["y", "z"] and table["z"] == [1]
    for tensor, expected in ((doubled, x), (table["y"], x.int()),
                             (manager.found["Tanh"], x[:, :2])):
        assert type(tensor) is torch.Tensor and tensor.is_meta
        assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape)
    assert manager.read is None  # the next call would compute with it
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("afterwards it holds tensors without data") == 2
    assert ("keeps a tensor in manager.read, but its values are on the device: afterwards it is "
            "as it was before") in told
    for name, tensor in zip(manager.found, results[1:]):
        manager.found[name] = tensor
    torch.testing.assert_close(manager.found["Tanh"], layers(x))
    filled = manager.found
    assert torch.equal(model(x)[0], results[0])  # nothing is compiled again
    assert manager.found is filled and len(model.programs()) == 1


def test_objects_are_as_before_also_after_an_error(capsys):
    def forward(m, x):
        fill(m.cache, x)
        raise ValueError("mine")

    module = Function(forward)
    module.cache = Cache()
    with pytest.raises(ValueError, match="mine"):
        capture(module, (torch.ones(2),), training=False)
    check_as_before(module.cache)
    assert capsys.readouterr().err == ""


def test_a_namespace_of_the_module(capsys):
    module = Function(lambda m, x: setattr(m.space, "x", x * 2) or x)
    module.space = SimpleNamespace(x=None)
    capture(module, (torch.ones(2),), training=False)
    assert module.space.x is None
    assert "forward keeps a tensor in space" in capsys.readouterr().err


def makes_a_buffer(m, x):
    if not hasattr(m, "late"):
        m.register_buffer("late", torch.zeros(2))
    return x + m.late.add_(1)


def makes_a_parameter(m, x):
    m.late = nn.Parameter(torch.ones(2))
    return x * m.late


def makes_a_layer(m, x):
    m.late = nn.Sequential(nn.ReLU(), nn.Linear(2, 2))
    return m.late(x)


@pytest.mark.parametrize("forward", [makes_a_buffer, makes_a_parameter, makes_a_layer])
def test_state_that_forward_makes(forward, capsys):
    module = nn.Sequential(Function(forward))
    capture(module, (torch.ones(2),), training=False)
    assert not hasattr(module[0], "late")
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("[capture]") == 1
    assert ("forward makes 0.late, a parameter, a buffer or a module with these: the program "
            "recreates it in each call and keeps nothing of it. Create it in __init__, or call the "
            "module once on the CPU before it is compiled.") in told
    if forward is not makes_a_buffer:
        line = forward.__code__.co_firstlineno + 1
        assert f'at {__file__}:{line}, module "0"' in told


class Slots:
    __slots__ = ("key", "seen")

    def __init__(self, key=None):
        self.key, self.seen = key, []


def test_tensors_in_slots_are_put_back(capsys):
    def forward(m, x):
        m.cache.key = x * 2
        m.cache.seen.append(m.cache.key)
        return m.cache.seen[0]

    module = Function(forward)
    module.cache = Slots()
    capture(module, (torch.ones(2),), training=False)
    assert module.cache.key is None and module.cache.seen == []
    assert "forward keeps a tensor in cache, but" in capsys.readouterr().err


@pytest.mark.parametrize("make", [Slots, lambda y: [Slots(y)], lambda y: SimpleNamespace(of=y),
                                  lambda y: vars(cache := Cache()).update(key={"a": y}) or cache])
def test_objects_with_tensors_that_forward_makes(make, capsys):
    def forward(m, x):
        m.made = make(x * 2)
        return x

    module = Function(forward)
    capture(module, (torch.ones(2),), training=False)
    assert not hasattr(module, "made")
    assert "forward keeps a tensor in made, but" in capsys.readouterr().err


def test_layers_without_state_may_be_made(capsys):
    def forward(m, x):
        m.late = nn.Sequential(nn.ReLU(), m.layer)
        return m.late(x)

    module = Function(forward)
    module.layer = nn.Linear(2, 2)
    capture(module, (torch.ones(2),), training=False)
    assert capsys.readouterr().err == ""
    assert module.late[1] is module.layer and type(module.layer.weight) is nn.Parameter
    assert torch.equal(module(torch.ones(2)), module.layer(torch.ones(2).relu()))
