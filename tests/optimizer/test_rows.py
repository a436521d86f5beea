"""Rows of optimizer kinds: one more is added by its row alone; those there fit the ops."""

import copy

import pytest
import torch

import poptorch
from poptorch import _C
from poptorch._optimizer import rows
from poptorch._optimizer.settings import groups_of
from poptorch._optimizer.spec import Hyper, OptimizerSpec, Setting, StateTensor
from tests.helpers import quiet_options
from tests.optim.common import Net, batch
from tests.optimizer.test_live_states import check_states, cpu_step


class HeavyBall(torch.optim.Optimizer):
    """An optimizer of a program's own, with names of its own."""

    def __init__(self, params, rate, friction=0.75, maximize=False):
        super().__init__(params, {"rate": rate, "friction": friction, "maximize": maximize})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                gradient = -p.grad if group["maximize"] else p.grad
                if "speed" in self.state[p]:
                    self.state[p]["speed"].mul_(group["friction"]).add_(gradient)
                else:
                    self.state[p]["speed"] = gradient.clone()
                p.sub_(self.state[p]["speed"] * group["rate"])


def heavy_ball(x):
    speed = x.friction * x.speed + x.grad
    return {"param": x.param - x.rate * speed, "speed": speed}


SPEC = OptimizerSpec(
    cls=HeavyBall, formula=heavy_ball,
    hyper=(Hyper("rate", "rate"), Hyper("friction", "friction")),
    flags=("maximize",), states=(StateTensor("speed", "Speed"),),
    settings=(Setting("rate", ("rate",)), Setting("loss", ("friction",), is_complement=True)),
    counts=False, doc="A heavy ball.")


@pytest.fixture(autouse=True)
def one_more(monkeypatch):
    monkeypatch.setitem(rows.ROWS, HeavyBall, SPEC)
    with poptorch.testing.wide():
        yield


class Ours(poptorch.optim.Optimizer, HeavyBall):
    """With what poptorch.optim adds."""


def data():
    return batch(dtype=torch.float64)


@pytest.mark.parametrize("cls", [HeavyBall, Ours])
def test_a_row_is_enough(cls, tmp_path, capsys):
    net = Net().double()
    eager = copy.deepcopy(net)
    optimizer, reference = cls(net.parameters(), 0.5), HeavyBall(eager.parameters(), 0.5)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    for rate in (0.5, 0.25):
        optimizer.param_groups[0]["rate"] = reference.param_groups[0]["rate"] = rate
        x = data()
        model(*x)
        cpu_step(eager, reference, x)
    check_states(optimizer, reference)
    path = model.save(tmp_path / "net.poptorch")
    other = copy.deepcopy(net)
    again = cls(other.parameters(), 0.25)
    loaded = poptorch.trainingModel(other, quiet_options(), again)
    loaded.loadExecutable(path)
    check_states(again, reference)
    x = data()
    model(*x), loaded(*x)
    cpu_step(eager, reference, x)
    check_states(again, reference)
    check_states(optimizer, reference)
    with pytest.raises(ValueError, match="maximize=False of parameter group 0 is already compiled, "
                                         "got True"):
        model.setOptimizer(cls(net.parameters(), 0.25, maximize=True))
    assert "subclass" not in capsys.readouterr().err


def test_what_ours_shows_of_it():
    net = Net()
    optimizer = Ours(net.parameters(), 0.5)
    poptorch.trainingModel(net, quiet_options(), optimizer)(*batch())
    state = optimizer.state_dict()
    assert torch.equal(state["ipu_state"]["Speed___fc.bias"],
                       optimizer.state[net.fc.bias]["speed"])
    assert state["ipu_state"]["Step___fc.bias"] == 1
    assert state["ipu_param"]["rate___specific___fc.bias"] == 0.5
    assert state["ipu_param"]["loss___specific___fc.bias"] == 0.25


with_an_op = pytest.mark.parametrize(
    "spec", [spec for spec in rows.ROWS.values() if spec.op], ids=lambda spec: spec.name)
every = pytest.mark.parametrize("spec", rows.ROWS.values(), ids=lambda spec: spec.name)


@with_an_op
def test_rows_fit_their_ops(spec):
    row = next(row for row in _C.op_table() if row["name"] == spec.op)
    operands = [name.rstrip("?*") for name in row["operands"]]
    states = [state.key for state in spec.states]
    assert operands == ["param", "grad", *states, "step", "hyper", "grad_scale", "skip"]
    assert [name.rstrip("?*") for name in row["results"]] == ["param", *states]
    assert {name for name, *_ in row["attrs"]} == set(spec.flags)


# Keys that groups of plain optimizers need not have.
OPTIONAL = {"decoupled_weight_decay", "use_tf_variant"}


@every
def test_rows_fit_their_optimizers(spec):
    assert (spec.op or spec.formula) and spec.doc.endswith(".")
    group, = groups_of(spec.cls([torch.nn.Parameter(torch.ones(1, 1))], lr=0.1))
    assert len(spec.hyper_values(group)) == len(spec.hyper)
    assert set(spec.flags) - OPTIONAL <= group.keys()
    names = {hyper.name for hyper in spec.hyper}
    assert all(set(setting.hyper) <= names for setting in spec.settings)


class NoStep(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})


@pytest.mark.parametrize("cls, words", [
    (torch.optim.LBFGS, "LBFGS has no update on the device. It computes the loss several times"),
    (torch.optim.SparseAdam, "SparseAdam has no update on the device. It takes sparse gradients"),
    (NoStep, r"NoStep has no update on the device. It has no step\(\). Write one"),
])
def test_an_optimizer_without_a_row_is_refused(cls, words):
    net = torch.nn.Linear(3, 3, bias=False)
    with pytest.raises(poptorch.Error, match=rf"\[optimizer\] {words}.*SGD, Adam, .*HeavyBall"):
        poptorch.trainingModel(net, quiet_options(), cls(net.parameters()))


@pytest.mark.parametrize("name", ["SGD", "RMSprop", "NAdam"])
def test_gradients_through_an_update_are_refused(name):
    net = Net()
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.1, differentiable=True)
    words = f"differentiable=True of parameter group 0 of {name}: the update on the device has no"
    with pytest.raises(poptorch.Error, match=words):
        poptorch.trainingModel(net, quiet_options(), optimizer)
    optimizer.param_groups[0]["differentiable"] = False
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    optimizer.param_groups[0]["differentiable"] = True
    with pytest.raises(poptorch.Error, match=words):
        model.compile(*batch())


@pytest.mark.parametrize("name, settings", [
    ("Adam", {"fused": True}), ("RMSprop", {"foreach": True}), ("RAdam", {"capturable": True})])
def test_what_is_for_the_cpu_is_told_for_debugging(name, settings, caplog):
    net = Net()
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.1, **settings)
    with caplog.at_level("DEBUG", logger="poptorch::python"):
        model = poptorch.trainingModel(net, quiet_options(), optimizer)
        model.setOptimizer(optimizer)
    words = f"{next(iter(settings))}=True of {name} is for step() on the CPU or a GPU"
    told = [record for record in caplog.records if words in record.getMessage()]
    assert [record.levelname for record in told] == ["DEBUG"]
