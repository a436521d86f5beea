"""The state of the device in Optimizer.state_dict(): names, values, when it is read."""

import inspect

import pytest
import torch

import poptorch
from poptorch._optimizer.device_states import DeviceStates
from tests.helpers import quiet_options
from tests.optim.common import KINDS, Net, assert_same, batch, training

STATES = {"sgd": {}, "momentum": {"Accl1": "momentum_buffer"},
          "adam": {"Accl1": "exp_avg", "Accl2": "exp_avg_sq", "Step": "step"},
          "amsgrad": {"Accl1": "exp_avg", "Accl2": "exp_avg_sq", "Step": "step",
                      "MaxAccl2": "max_exp_avg_sq"}}
STATES["adamw"] = STATES["lamb"] = STATES["adam"]
STATES["tf"] = {"Accl1": "square_avg", "Step": "step"}
STATES["rmsprop"] = {**STATES["tf"], "Accl2": "grad_avg", "Accl3": "momentum_buffer"}
REFERENCES = {"sgd": torch.optim.SGD, "momentum": torch.optim.SGD, "adam": torch.optim.Adam,
              "amsgrad": torch.optim.Adam, "adamw": torch.optim.AdamW,
              "rmsprop": torch.optim.RMSprop, "tf": poptorch.optim.RMSprop,
              "lamb": poptorch.optim.LAMB}


def test_entries_are_always_there():
    optimizer, model = training("adam")
    assert {name: optimizer.state_dict()[name] for name in ("ipu_state", "ipu_param")} \
        == {"ipu_state": None, "ipu_param": None}
    model.compile(*batch())
    state = optimizer.state_dict()
    assert state.keys() == {"state", "param_groups", "ipu_state", "ipu_param"}
    assert all(not value.any() for value in state["ipu_state"].values())


def test_a_state_that_begins_at_one():
    net = Net()
    optimizer = poptorch.optim.RMSprop(net.parameters(), lr=0.01, alpha=1.0,  # keeps what it is
                                       use_tf_variant=True)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model.compile(*batch())
    for _ in range(2):
        state = optimizer.state_dict()["ipu_state"]
        assert state["Accl1___fc.weight"].equal(torch.ones(2, 5))
        model(*batch())
    state["Accl1___fc.weight"].zero_()
    state["Step___fc.weight"].zero_()
    optimizer.load_state_dict(optimizer.state_dict() | {"ipu_state": state})
    model(*batch())
    state = optimizer.state_dict()["ipu_state"]
    assert not state["Accl1___fc.weight"].any() and state["Accl1___fc.bias"].all()


def test_an_optimizer_of_torch_shows_none():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
    poptorch.trainingModel(net, quiet_options(), optimizer)(*batch())
    assert optimizer.state_dict().keys() == {"state", "param_groups"}


def test_a_program_for_elsewhere_shows_none():
    optimizer, model = training("adam", opts=quiet_options().useOfflineIpuTarget())
    model.compile(*batch())
    state = optimizer.state_dict()
    assert state["ipu_state"] is None and state["ipu_param"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_names_and_shapes(kind):
    optimizer, model = training(kind)
    model(*batch())
    state = optimizer.state_dict()["ipu_state"]
    trained = {name: p for name, p in model.model.named_parameters() if p.requires_grad}
    names = {*STATES[kind], *(["Step"] if STATES[kind] else [])}
    assert state.keys() == {f"{name}___{path}" for name in names for path in trained}
    for name, value in state.items():
        what, path = name.split("___")
        assert value.shape == (() if what == "Step" else trained[path].shape)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_torch(kind):
    net, eager = Net().double(), Net().double()
    eager.load_state_dict(net.state_dict())
    settings = dict(KINDS[kind](eager.parameters()).defaults)
    for name in ("decoupled_weight_decay", "use_tf_variant", "maximize", "capturable"):
        if name not in inspect.signature(REFERENCES[kind]).parameters:
            settings.pop(name, None)
    reference = REFERENCES[kind](eager.parameters(), **settings)
    with poptorch.testing.wide():
        optimizer, model = training(kind, net)
        for _ in range(3):
            data = batch(dtype=torch.float64)
            model(*data)
            reference.zero_grad()
            eager(*data)[1].backward()
            reference.step()
        state = optimizer.state_dict()["ipu_state"]
    for path, parameter in eager.named_parameters():
        for name, key in STATES[kind].items() if parameter.requires_grad else ():
            expected = reference.state[parameter][key].double()
            torch.testing.assert_close(state[f"{name}___{path}"].double(), expected, rtol=1e-9,
                                       atol=1e-12)


def test_numbers_of_the_updates():
    net = Net()
    groups = [{"params": net.conv.parameters(), "lr": 0.5}, {"params": net.fc.parameters()}]
    optimizer = poptorch.optim.SGD(groups, lr=0.25, weight_decay=0.5, momentum=0.75,
                                   dampening=0.125)
    poptorch.trainingModel(net, quiet_options(), optimizer)(*batch())
    found = optimizer.state_dict()["ipu_param"]
    expected = {"lossScaling_FLOAT": 1.0}
    for path, lr in (("conv", 0.5), ("fc", 0.25)):
        for name in ("weight", "bias"):
            end = f"___specific___{path}.{name}"
            expected |= {f"scaledLearningRate0{end}": lr, f"scaledMomentum0{end}": 0.75,
                         f"weightDecayScaleFactor0{end}": 1 - lr * 0.5,
                         f"dampeningScaleFactor0{end}": 0.875}
    assert {name: value.item() for name, value in found.items()} == expected
    optimizer.param_groups[0]["lr"] = 1.0
    found = optimizer.state_dict()["ipu_param"]
    assert found["scaledLearningRate0___specific___conv.bias"] == 1.0


def test_numbers_of_adam():
    optimizer, model = training("adam")
    model(*batch())
    found = optimizer.state_dict()["ipu_param"]
    assert {name.partition("___")[0]: round(value.item(), 7) for name, value in found.items()} \
        == {"learningRate": 0.01, "weightDecay": 0.0, "beta1": 0.8, "beta2": 0.95, "eps": 1e-6,
            "lossScaling_FLOAT": 1.0}
    assert "learningRate___specific___fc.weight" in found


def test_it_is_read_once_after_a_run(monkeypatch):
    reads, read = [], DeviceStates.read
    monkeypatch.setattr(DeviceStates, "read", lambda self: reads.append(1) or read(self))
    optimizer, model = training("momentum")
    for runs in (1, 2):
        for _ in range(runs):
            model(*batch())
        assert len(reads) == runs - 1
        first = optimizer.state_dict()["ipu_state"]
        assert_same(first, optimizer.state_dict()["ipu_state"])
        assert len(reads) == runs
    model.destroy()
    assert_same(first, optimizer.state_dict()["ipu_state"])
    assert len(reads) == 2


def test_anchors():
    names = ["Accl1___conv.weight", "Step___fc.bias", "UpdatedVar___conv.weight",
             "scaledLearningRate0___specific___conv.weight", "lossScaling_FLOAT",
             "weightDecayScaleFactor0___specific___fc.bias", "Gradient___conv.weight",
             "scaledMomentum0___specific___fc.bias", "dampeningScaleFactor0___specific___fc.bias"]
    opts = quiet_options()
    for name in names:
        opts.anchorTensor(name, name)
    optimizer, model = training("momentum", opts=opts)
    for lr in (0.1, 0.03):
        optimizer.param_groups[0]["lr"] = lr
        model(*batch())
        assert set(names) <= set(model.getTensorNames())
        state = optimizer.state_dict()
        known = {**state["ipu_state"], **state["ipu_param"],
                 "UpdatedVar___conv.weight": model.state_dict()["conv.weight"]}
        for name in names:
            if name in known:
                assert torch.equal(model.getAnchoredTensor(name), known[name]), name
        assert model.getAnchoredTensor("Gradient___conv.weight").any()


ANCHORED = {
    "adam": ["learningRate___specific___fc.bias", "beta2___specific___fc.bias", "Accl2___fc.bias"],
    "rmsprop": ["alpha___specific___fc.bias", "Accl1___fc.bias", "Accl3___conv.weight"],
    "lamb": ["weightDecay___specific___fc.bias", "Accl1___conv.weight", "Step___fc.bias"],
}


@pytest.mark.parametrize("kind", ANCHORED)
def test_names_of_other_kinds_can_be_anchored(kind):
    opts = quiet_options()
    names = ANCHORED[kind]
    for name in names:
        opts.anchorTensor(name, name)
    optimizer, model = training(kind, opts=opts)
    model(*batch())
    state = optimizer.state_dict()
    for name in names:
        expected = {**state["ipu_state"], **state["ipu_param"]}[name]
        assert torch.equal(model.getAnchoredTensor(name), expected)
