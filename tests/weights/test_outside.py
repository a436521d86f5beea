"""What a program has from outside of the module, and a later change of it."""

import os
import shutil
import sys
from types import ModuleType, SimpleNamespace

import numpy
import pytest
import torch
from torch import nn

import poptorch
from poptorch._capture import capture
from tests.helpers import quiet_options

SCALE, TABLE, SPACE, ARRAY = 2.0, {"a": [2.0]}, SimpleNamespace(scale=2.0), numpy.full(1, 2.0)
PLAIN = torch.full((2,), 2.0)
X = torch.ones(2)


class OfClass:
    scale = 2.0


class Configuration:
    only = None

    def __init__(self):
        self.scale, self.inner = 2.0, SimpleNamespace(scale=2.0)

    @classmethod
    def get(cls):
        cls.only = cls.only or cls()
        return cls.only


class WithNames(dict):
    def __getattr__(self, name):
        return self[name]


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def around():
    scale = 2.0

    def change(value):
        nonlocal scale
        scale = value

    return lambda x: x * scale, change


def sets(name):
    return lambda value: globals().update({name: value})


FUNCTION, CHANGE = around()
OBJECT, OBJECTS, NAMES, DEFAULT = Configuration(), [Configuration()], WithNames(scale=2.0), [2.0]
FILE = ModuleType("file_with_a_scale")
FILE.__file__, FILE.scale = __file__, 2.0
sys.modules[FILE.__name__] = FILE


def times(held, x):
    return x * held.scale


def getter():
    return OBJECT


def imported(x):
    from file_with_a_scale import scale as factor  # what is tested
    return x * factor


def imported_whole(x):
    import file_with_a_scale as file  # what is tested
    return x * file.scale


def sets_of(held):
    return lambda value: setattr(held, "scale", value)


CHANGES = {
    "global": (lambda x: x * SCALE, sets("SCALE"), "SCALE"),
    "container": (lambda x: x * TABLE["a"][0], lambda value: TABLE.update(a=[value]),
                  "TABLE['a'][0]"),
    "namespace": (lambda x: x * SPACE.scale, lambda value: setattr(SPACE, "scale", value),
                  "SPACE.scale"),
    "class": (lambda x: x * OfClass.scale, lambda value: setattr(OfClass, "scale", value),
              "OfClass.scale"),
    "variable of a function": (FUNCTION, CHANGE, "scale"),
    "object that is passed on": (lambda x: times(OBJECT, x), sets_of(OBJECT), "OBJECT.scale"),
    "object of a getter": (lambda x: x * getter().scale, sets_of(OBJECT), "OBJECT.scale"),
    "object in a list": (lambda x: x * OBJECTS[0].scale, sets_of(OBJECTS[0]), "OBJECTS[0].scale"),
    "object in an object": (lambda x: times(getattr(OBJECT, "inner"), x),  # noqa: B009
                            sets_of(OBJECT.inner), "OBJECT.inner.scale"),
    "object of a class": (lambda x: x * Configuration.get().scale, sets_of(Configuration.get()),
                          "Configuration.only.scale"),
    "dictionary with names": (lambda x: x * NAMES.scale, lambda value: NAMES.update(scale=value),
                              "NAMES['scale']"),
    "imported inside": (imported, sets_of(FILE), "file_with_a_scale.scale"),
    "file that is imported inside": (imported_whole, sets_of(FILE), "file_with_a_scale.scale"),
    "default": (lambda x, held=DEFAULT: x * held[0],
                lambda value: DEFAULT.__setitem__(0, value), "the default of held of <lambda>[0]"),
}


def reason(model) -> str:
    """Why the last program was compiled."""
    return model.programs()[-1].reason


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_compiles_again(name):
    function, change, text = CHANGES[name]
    model = poptorch.inferenceModel(Net(function), quiet_options())
    assert model(X)[0] == model(X)[0] == 2.0
    change(2.0)  # an equal value is none
    model(X)
    assert len(model.programs()) == 1
    change(3.0)
    try:
        assert model(X)[0] == model(X)[0] == 3.0
        assert reason(model).startswith(f"{text} changed from 2.0 to 3.0")
    finally:
        change(2.0)
    assert model(X)[0] == 2.0 and len(model.programs()) == 2


def test_functions_and_objects_that_are_exchanged(monkeypatch):
    model = poptorch.inferenceModel(Net(lambda x: times(OBJECT, x)), quiet_options())
    assert model(X)[0] == model(X)[0] == 2.0
    with monkeypatch.context() as context:
        context.setitem(globals(), "times", lambda held, x: x)
        assert model(X)[0] == 1.0 and reason(model).startswith("times changed from <function times")
    other = Configuration()
    other.scale = 3.0
    monkeypatch.setitem(globals(), "OBJECT", other)
    assert model(X)[0] == 3.0 and len(model.programs()) == 3


def test_a_value_that_is_perhaps_not_read_is_given_up_at_the_limit(monkeypatch, capsys):
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    options = quiet_options().recompilation(limit=2)
    model = poptorch.inferenceModel(
        Net(lambda x: x * SCALE if x.shape[0] == 3 else x), options)  # noqa: B023
    for number in range(5):
        globals()["SCALE"] = float(number)
        assert torch.equal(model(X), X)
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("[call]") == 1 and (
        "[call] SCALE changed from 1.0 to 2.0, test_outside.py:" in told) and (
        "The model has been compiled 2 times, so poptorch no longer watches this value, which "
        "forward may not read at all. If it does, pass it as a tensor, or raise the limit with "
        "Options.recompilation(limit=...).") in told


def test_variables_of_the_environment_that_others_read():
    """Python's own modules, and as bytes, which subprocesses do."""
    def of_paths(x):
        return x * len(shutil.which("true") or "") + len(os.environb.get(b"PATH", b""))

    assert capture(Net(of_paths), (X,), training=False).outer == []


def test_variables_of_the_environment(monkeypatch):
    def scaled(x):
        return x * float(os.environ["SCALE"]) * float(os.getenv("MORE", "1"))

    kind = vars(type(os.environ)).copy()
    monkeypatch.setenv("SCALE", "2.0")
    monkeypatch.delenv("MORE", raising=False)
    model = poptorch.inferenceModel(Net(scaled), quiet_options())
    assert model(X)[0] == model(X)[0] == 2.0 and vars(type(os.environ)) == kind
    monkeypatch.setenv("UNREAD", "1")
    model(X)
    assert len(model.programs()) == 1
    monkeypatch.setenv("SCALE", "3.0")
    assert model(X)[0] == 3.0 and reason(model) == "os.environ['SCALE'] changed from '2.0' to '3.0'"
    monkeypatch.setenv("MORE", "2")
    assert model(X)[0] == 6.0 and reason(model) == "os.environ['MORE'] changed from None to '2'"


class Settings:
    scale, unread, calls = 2.0, 0, 0


class WithSettings(nn.Module):
    def __init__(self, settings, read):
        super().__init__()
        self.settings, self.read = settings, read

    def forward(self, x, more=None):
        found = self.read(self.settings if more is None else more["of"])
        found.calls += 1
        return x * found.scale


@pytest.mark.parametrize("settings, read, path", [
    (Settings, lambda held: held, "settings"), ([Settings], lambda held: held[0], "settings[0]"),
    (None, lambda held: held, "arguments[0][1]['of']")])
def test_a_class_that_is_held_as_a_value(settings, read, path, monkeypatch):
    monkeypatch.setattr(Settings, "scale", 2.0)
    model = poptorch.inferenceModel(WithSettings(settings, read), quiet_options())
    arguments = (X,) if settings else (X, {"of": Settings})
    model(*arguments), model(*arguments)
    Settings.unread, Settings.calls = 1, 7
    model(*arguments)
    assert len(model.programs()) == 1
    Settings.scale = 3.0
    assert model(*arguments)[0] == 3.0
    assert reason(model).startswith(f"{path}.scale changed from 2.0 to 3.0")


def test_arrays():
    model = poptorch.inferenceModel(Net(lambda x: x * ARRAY[0]), quiet_options())
    model(X)
    ARRAY[0] = 3.0
    assert model(X)[0] == 3.0 and "ARRAY changed from array([2.]) to" in reason(model)
    ARRAY[0] = 2.0


def test_what_is_not_read_may_change():
    model = poptorch.inferenceModel(Net(lambda x: x * SPACE.scale), quiet_options())
    model(X)
    SPACE.more, OfClass.more = 1, 1
    model(X)
    del SPACE.more, OfClass.more
    model(X)
    assert len(model.programs()) == 1


def test_what_the_hook_of_a_parameter_reads():
    class Trained(nn.Linear):
        def forward(self, x):
            return poptorch.identity_loss(super().forward(x).sum(), "none")

    net = Trained(2, 1)
    net.weight.register_hook(lambda gradient: gradient * SPACE.scale)
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.5))
    model(X)
    before = net.weight.detach().clone()
    SPACE.scale = 3.0
    model(X)
    SPACE.scale = 2.0
    torch.testing.assert_close(net.weight, before - 1.5)
    assert reason(model).startswith("SPACE.scale changed from 2.0 to 3.0")


# -- tensors -----------------------------------------------------------------------------------


class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask, self.array = torch.ones(2), numpy.ones(2, "float32")
        self.items, self.of_array = [torch.ones(2)], torch.from_numpy(self.array)

    def forward(self, x):
        return x * self.mask * self.items[0] * self.of_array * PLAIN + torch.tensor([0.0, 1.0])


TENSORS = {
    "attribute": (lambda net: net.mask.mul_(2), "mask"),
    "in a list": (lambda net: net.items[0].fill_(2), "items[0]"),
    "of NumPy": (lambda net: net.array.fill(2), "of_array"),
    "global": (lambda net: PLAIN.add_(1), "a tensor of the sizes [2]"),
    "resized": (lambda net: net.mask.resize_(1).fill_(2), "mask"),
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("training", [False, True])
def test_plain_tensors_that_are_changed_in_place(name, training):
    change, text = TENSORS[name]
    net = Held()
    if training:
        net = nn.Sequential(nn.Linear(2, 2), net, Marked())
        model, text = poptorch.trainingModel(net, quiet_options()), text.replace("mask", "1.mask")
        text = text.replace("items", "1.items").replace("of_array", "1.of_array")
    else:
        model = poptorch.inferenceModel(net, quiet_options())
    before = PLAIN.clone()
    model(X[None]), model(X[None])
    change(net[1] if training else net)
    try:
        for _ in range(2):
            y = model(X[None])
            if not training:
                assert torch.equal(y, net(X[None]))
        text = text if name == "global" else f"self.{text}"
        assert reason(model) == f"the values of {text} changed, which are compiled in as a constant"
        assert len(model.programs()) == 2
    finally:
        PLAIN.copy_(before)


class Marked(nn.Module):
    def forward(self, x):
        return poptorch.identity_loss(x, "mean")


def test_plain_tensors_of_inference_mode():
    with torch.inference_mode():
        net = Net(lambda x: x * mask)
        mask = torch.ones(2)
    model = poptorch.inferenceModel(net, quiet_options())
    assert torch.equal(model(X), X) and torch.equal(model(X), X)
    with torch.inference_mode():
        mask.mul_(2)
        assert torch.equal(model(X), X * 2) and torch.equal(model(X), X * 2)


def test_equal_values_may_be_written():
    net = Held()
    model = poptorch.inferenceModel(net, quiet_options())
    y = model(X)
    for _ in range(2):
        net.mask.copy_(torch.ones(2)), PLAIN.mul_(1), net.array.fill(1)
        assert torch.equal(model(X), y)
    assert len(model.programs()) == 1
    net.mask.zero_()
    assert torch.equal(model(X), net(X))
    net.mask.fill_(1)
    assert torch.equal(model(X), y) and len(model.programs()) == 2


def test_a_tensor_that_forward_itself_changes():
    def forward(x):
        held.add_(1)
        return x + held

    held = torch.zeros(2)
    model = poptorch.inferenceModel(Net(forward), quiet_options())
    for _ in range(3):
        assert model(X)[0] == 2.0


KEPT, LISTED = {"before": 1}, [SimpleNamespace(seen=[])]


def keeping(*, fails=False):
    around = []

    def forward(x):
        y = x * 2
        KEPT["x"] = y
        LISTED[0].seen.append({"y": y})
        LISTED.append(y)
        around.append(y)
        if fails:
            raise ValueError("mine")
        return y

    return forward, around


def test_tensors_in_containers_outside_are_put_back_with_a_warning(capsys):
    function, around = keeping()
    model = poptorch.inferenceModel(Net(function), quiet_options())
    assert model(X)[0] == 2.0
    assert KEPT == {"before": 1} and LISTED == [SimpleNamespace(seen=[])] and around == []
    told = " ".join(capsys.readouterr().err.split())
    for name in ("KEPT", "LISTED", "around"):
        assert (f"[capture] forward keeps a tensor in {name}, but its values are on the device: "
                "afterwards it is as it was before. Return the tensor; for a state that lasts, use "
                "register_buffer and copy_().") in told
    try:
        function(X)  # in eager it keeps them
        assert model(X)[0] == 2.0 and capsys.readouterr().err == ""
    finally:
        KEPT.pop("x"), LISTED[0].seen.clear(), LISTED.pop()


def test_containers_outside_are_as_before_also_after_an_error(capsys):
    function, around = keeping(fails=True)
    with pytest.raises(ValueError, match="mine"):
        poptorch.inferenceModel(Net(function), quiet_options())(X)
    assert KEPT == {"before": 1} and LISTED == [SimpleNamespace(seen=[])] and around == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("hook", [
    lambda kept: lambda module, args, out: kept.__setitem__("x", out),
    lambda kept: lambda module, args, out: kept.update(x=[out])])
def test_tensors_that_a_hook_keeps(hook, capsys):
    net, kept = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), {}
    net[0].register_forward_hook(hook(kept))
    poptorch.inferenceModel(net, quiet_options())(X)
    assert kept == {} and "forward keeps a tensor in kept, but" in capsys.readouterr().err


class Keeper:
    last = None

    def __call__(self, gradient):
        self.last = [gradient]


LAST, KEEPER = None, Keeper()


def test_names_outside_are_as_before(capsys):
    last = None

    def function(x):
        global LAST
        nonlocal last
        LAST, KEEPER.last, Keeper.other = x * 2, x * 3, x * 4
        last = (LAST,)
        return x * 2

    net, hook = nn.Linear(2, 2), Keeper()
    net.weight.register_hook(hook)
    net.forward = lambda x: poptorch.identity_loss(function(x * net.weight.sum()).sum(), "none")
    model = poptorch.trainingModel(net, quiet_options().maxRepeatLogs(None))
    model(X)
    assert LAST is last is KEEPER.last is None and not hasattr(Keeper, "other")
    assert hook.last[0].is_meta  # a container that forward makes stays, without data
    told = " ".join(capsys.readouterr().err.split())
    for name in ("LAST", "last", "KEEPER.last", "Keeper.other", "the hook of weight.last"):
        assert f"[capture] forward keeps a tensor in {name}, but its values are" in told
