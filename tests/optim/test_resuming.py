"""Loading an optimizer's state: training goes on, and what else happens to it on the way."""

import copy
import gc
import math

import pytest
import torch

import poptorch
from tests.helpers import quiet_options, run_python
from tests.optim.common import KINDS, Net, assert_same, batch, options, training, written

LOOPS = {"plain": {}, "accumulation": {"accumulation": 2},
         "replicas": {"replicationFactor": 2, "deviceIterations": 2},
         "both": {"replicationFactor": 2, "accumulation": 2}}


@pytest.mark.sampled
@pytest.mark.parametrize("loops", LOOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_bit_for_bit(kind, loops):
    optimizer, model = training(kind, opts=options(**LOOPS[loops]))
    for _ in range(2):
        model(*batch(16))
    optimizer.param_groups[0]["lr"] *= 0.5
    saved = written((model.state_dict(), optimizer.state_dict()))
    net = Net()
    net.load_state_dict(saved[0])
    again, resumed = training(kind, net, options(**LOOPS[loops]))
    again.load_state_dict(saved[1])
    assert again.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    for _ in range(3):
        data = batch(16)
        assert all(torch.equal(a, b) for a, b in zip(model(*data), resumed(*data)))
    assert_same(model.state_dict(), resumed.state_dict())
    assert_same(optimizer.state_dict()["ipu_state"], again.state_dict()["ipu_state"])


def test_the_weights_of_these_tests_lie_in_another_order():
    _, model = training("adam")
    model(*batch())
    states = [line for line in model.ir().splitlines() if 'layout="channels_last"' in line
              and "= state" in line]
    assert any('path="conv.weight"' in line for line in states)
    assert any("exp_avg.conv.weight" in line for line in states)


IN_A_PROCESS = """
import torch, poptorch
from tests.optim.common import training
weights, state, data = torch.load({path!r})
optimizer, model = training("amsgrad")
model.load_state_dict(weights)
optimizer.load_state_dict(state)
results = [model(*pair) for pair in data]
torch.save((results, model.state_dict(), optimizer.state_dict()["ipu_state"]), {result!r})
"""


@pytest.mark.sampled
def test_training_goes_on_in_a_fresh_process(tmp_path):
    optimizer, model = training("amsgrad")
    for _ in range(3):
        model(*batch())
    data = [batch() for _ in range(3)]
    torch.save((model.state_dict(), optimizer.state_dict(), data), tmp_path / "saved.pt")
    run_python(IN_A_PROCESS.format(path=str(tmp_path / "saved.pt"),
                                   result=str(tmp_path / "result.pt")))
    results, weights, state = torch.load(tmp_path / "result.pt")
    for pair, theirs in zip(data, results):
        assert all(torch.equal(a, b) for a, b in zip(model(*pair), theirs))
    assert_same(model.state_dict(), weights)
    assert_same(optimizer.state_dict()["ipu_state"], state)


def filled(optimizer, value):
    """The state of an optimizer with other numbers in each tensor but the counters."""
    state = optimizer.state_dict()
    state["ipu_state"] = {name: torch.full_like(old, value) for name, old
                          in state["ipu_state"].items() if not name.startswith("Step")}
    return state


def still(optimizer):
    """Lets updates change no state and no weight."""
    for group in optimizer.param_groups:
        group.update(lr=0.0, momentum=1.0, dampening=1.0, weight_decay=0.0)


def test_missing_states_stay():
    optimizer, model = training("momentum")
    model(*batch())
    still(optimizer)
    before = optimizer.state_dict()["ipu_state"]
    state = filled(optimizer, 7.0)
    del state["ipu_state"]["Accl1___fc.weight"]
    optimizer.load_state_dict(state)
    expected = {**before, **state["ipu_state"]}
    assert_same(optimizer.state_dict()["ipu_state"], expected)  # as it will be
    model(*batch())
    found = optimizer.state_dict()["ipu_state"]
    counters = {name: value + 1 for name, value in before.items() if name.startswith("Step")}
    assert_same(found, {**expected, **counters})


@pytest.mark.parametrize("when", ["before wrapping", "before compiling", "after compiling"])
def test_it_waits_for_the_next_run(when):
    source, model = training("momentum")
    model(*batch())
    still(source)
    state = filled(source, 3.0)
    net = Net()
    optimizer = KINDS["momentum"](net.parameters())
    if when == "before wrapping":
        optimizer.load_state_dict(state)
        assert_same(optimizer.state_dict()["ipu_param"], state["ipu_param"])
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    if when == "after compiling":
        model.compile(*batch())
    if when != "before wrapping":
        optimizer.load_state_dict(state)
    assert optimizer.state_dict()["ipu_state"]["Accl1___fc.bias"].tolist() == [3.0, 3.0]
    model(*batch())  # the first update takes the gradient for the momentum, whatever that was
    model(*batch())
    optimizer.load_state_dict(state)
    model(*batch())
    assert optimizer.state_dict()["ipu_state"]["Accl1___fc.bias"].tolist() == [3.0, 3.0]
    assert optimizer.param_groups[0]["lr"] == 0.0


def test_it_survives_what_executors_do():
    optimizer, model = training("momentum")
    model(*batch())
    still(optimizer)
    kept = optimizer.state_dict()["ipu_state"]

    def assert_kept(runs):
        now = optimizer.state_dict()["ipu_state"]
        counted = {name: value + runs * name.startswith("Step") for name, value in kept.items()}
        assert_same(now, counted)

    model.destroy()
    assert_kept(0)
    model(*batch())  # compiles again
    assert_kept(1)
    optimizer = KINDS["momentum"](model.model.parameters())
    still(optimizer)
    model.setOptimizer(optimizer)
    assert_kept(1)
    model(*batch())
    assert_kept(2)
    net = model.model
    model.destroy()
    model = poptorch.trainingModel(net, quiet_options(), optimizer)  # another executor
    assert_kept(2)
    model(*batch())
    assert_kept(3)
    del model
    net.destroy()
    gc.collect()  # destroy() was not called on the executor
    assert_kept(3)


def test_what_waits_survives_a_new_optimizer():
    source, model = training("momentum")
    model(*batch())
    still(source)
    optimizer, other = training("momentum")
    optimizer.load_state_dict(filled(source, 5.0))
    replaced = KINDS["momentum"](other.model.parameters())
    still(replaced)
    other.setOptimizer(replaced)
    assert replaced.state_dict()["ipu_state"]["Accl1___fc.bias"].tolist() == [5.0, 5.0]
    other.compile(*batch())
    other.destroy()
    assert replaced.state_dict()["ipu_state"]["Accl1___fc.bias"].tolist() == [5.0, 5.0]


def test_weights_come_to_the_host_first(monkeypatch):
    optimizer, model = training("momentum")
    model(*batch())
    copies = []
    monkeypatch.setattr(model, "copyWeightsToHost", lambda copy=model.copyWeightsToHost: (
        copies.append(1), copy()))
    model.setOptimizer(optimizer)
    model(*batch())
    assert not copies
    optimizer.load_state_dict(optimizer.state_dict())
    assert not copies
    model(*batch())
    assert len(copies) == 1
    model(*batch())
    assert len(copies) == 1


def test_the_state_of_a_cpu_optimizer():
    optimizer, model = training("adam")
    cpu = torch.optim.Adam(model.model.parameters(), lr=0.5)
    words = "^Only IPU optimizer states can be loaded onto the IPU."
    with pytest.raises(RuntimeError, match=words):
        optimizer.load_state_dict(cpu.state_dict())
    optimizer.load_state_dict({"ipu_state": None, "ipu_param": None, **cpu.state_dict()})
    assert optimizer.param_groups[0]["lr"] == 0.5
    model(*batch())


@pytest.mark.parametrize("is_compiled", [False, True], ids=["before", "after"])
def test_going_on_from_the_cpu(is_compiled):
    net, eager = Net().double(), Net().double()
    reference = torch.optim.Adam(eager.parameters(), lr=0.01)

    def eager_step(data):
        reference.zero_grad()
        eager(*data)[1].backward()
        reference.step()

    for _ in range(3):
        eager_step(batch(dtype=torch.float64))
    net.load_state_dict(eager.state_dict())
    with poptorch.testing.wide():
        optimizer, model = training("adam", net)
        if is_compiled:
            model.compile(*batch(dtype=torch.float64))
        state = {"ipu_state": None, "ipu_param": None, **reference.state_dict()}
        optimizer.load_state_dict(state)
        data = batch(dtype=torch.float64)
        model(*data)
        eager_step(data)
        for ours, theirs in zip(net.parameters(), eager.parameters()):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_states_that_do_not_fit(tmp_path):
    optimizer, model = training("momentum")
    model(*batch())
    state = optimizer.state_dict()
    values = state["ipu_state"]

    def load(**changed):
        names = {name.replace("__fc", "___fc."): value for name, value in changed.items()}
        optimizer.load_state_dict({**state, "ipu_state": {**values, **names}})

    load(Accl1__fcweight=torch.ones(5, 2))
    words = r"Accl1___fc.weight has the shape \(5, 2\), the model needs \(2, 5\)"
    with pytest.raises(poptorch.Error, match=words):
        model(*batch())
    load(Accl1__fcweight=values["Accl1___fc.weight"], Step__fcbias=torch.tensor(9.0))
    with pytest.raises(poptorch.Error, match="Step___.* is 1 and Step___fc.bias is 9, but the "):
        model.save(tmp_path / "net.poptorch")
    model(*batch())  # compiles again: two counters
    now = optimizer.state_dict()["ipu_state"]
    assert now["Step___fc.bias"] == 10 and now["Step___fc.weight"] == 2
    with pytest.raises(TypeError, match="ipu_state must be a dictionary of tensors or None"):
        optimizer.load_state_dict({**state, "ipu_state": {"Accl1___fc.bias": 1.0}})
    with pytest.raises(ValueError, match="parameter group"):
        optimizer.load_state_dict({**state, "param_groups": []})
    optimizer.load_state_dict(state)  # what was wrong is replaced
    model(*batch())


def test_states_of_other_parameters_are_ignored(capsys):
    optimizer, model = training("momentum")
    state = optimizer.state_dict()
    state |= {"ipu_state": {"Accl1___head.weight": torch.ones(2)}, "ipu_param": {}}
    optimizer.load_state_dict(state)
    model(*batch())
    assert "no state of the name Accl1___head.weight: ignored" in capsys.readouterr().err
    assert "Accl1___head.weight" not in optimizer.state_dict()["ipu_state"]


def test_half_and_double_states_become_those_of_the_device():
    optimizer, model = training("momentum")
    model(*batch())
    still(optimizer)
    for dtype in (torch.float16, torch.float64):
        state = optimizer.state_dict()
        state["ipu_state"] = {name: value.to(dtype) for name, value
                              in filled(optimizer, 0.5)["ipu_state"].items()}
        optimizer.load_state_dict(state)
        model(*batch())
        value = optimizer.state_dict()["ipu_state"]["Accl1___fc.bias"]
        assert value.dtype is torch.float32 and value.tolist() == [0.5, 0.5]


class Grouped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor([[2.0], [3.0]]))

    def forward(self, x):
        return poptorch.identity_loss((x * self.factor).square(), "mean")


@pytest.mark.parametrize("mode", poptorch.VariableRetrievalMode)
def test_weights_of_groups_of_replicas(mode):
    def wrapped():
        net = Grouped()
        optimizer = poptorch.optim.SGD(net.parameters(), lr=0.125, momentum=0.5)
        model = poptorch.trainingModel(net, quiet_options(replicationFactor=4), optimizer)
        model.factor.replicaGrouping(poptorch.CommGroupType.Consecutive, 2, mode)
        return optimizer, model

    optimizer, model = wrapped()
    x = torch.arange(4.0)[:, None]
    for _ in range(2):
        model(x)
    state = optimizer.state_dict()["ipu_state"]["Accl1___factor"]
    entries = 2 if mode is poptorch.VariableRetrievalMode.OnePerGroup else 4
    assert state.shape == (entries, 1) and not torch.equal(state[0], state[-1])
    again, resumed = wrapped()
    resumed.model.factor.data = model.state_dict()["factor"].clone()
    again.load_state_dict(written(optimizer.state_dict()))
    for _ in range(2):
        assert torch.equal(model(x), resumed(x))
    assert_same(model.state_dict(), resumed.state_dict())


# -- together with other things -----------------------------------------------------------------


def test_files_hold_what_was_loaded(tmp_path):
    optimizer, model = training("momentum")
    model(*batch())
    still(optimizer)
    optimizer.load_state_dict(filled(optimizer, 2.0))
    again = poptorch.load(model.save(tmp_path / "net.poptorch"))
    loaded = again._optimizer.optimizer
    assert isinstance(loaded, poptorch.optim.SGD) and loaded.max_grad_norm == math.inf
    assert_same(loaded.state_dict()["ipu_state"], optimizer.state_dict()["ipu_state"])
    again.destroy()  # without a run
    assert loaded.state_dict()["ipu_state"]["Accl1___fc.bias"].tolist() == [2.0, 2.0]


def test_what_was_loaded_is_laid_over_that_of_a_file(tmp_path):
    optimizer, model = training("momentum")
    model(*batch())
    path = model.save(tmp_path / "net.poptorch", export_model=False)
    own = {"Accl1___fc.bias": torch.tensor([4.0, 5.0])}
    other, wrapped = training("momentum", Net())
    other.load_state_dict({**other.state_dict(), "ipu_state": own, "ipu_param": {}})
    wrapped.loadExecutable(path)
    assert_same(other.state_dict()["ipu_state"], {**optimizer.state_dict()["ipu_state"], **own})


def test_copies():
    optimizer, model = training("momentum")
    optimizer.loss_scaling = 1
    model(*batch())
    shallow = copy.copy(optimizer)
    assert shallow.loss_scaling == 1 and shallow.velocity_accum_type is torch.float32
    assert_same(shallow.state_dict()["ipu_state"], optimizer.state_dict()["ipu_state"])
    model.setOptimizer(shallow)
    model(*batch())
    assert shallow.state_dict()["ipu_state"]["Step___fc.bias"] == 2
    deep = written(copy.deepcopy(optimizer), weights_only=False)
    assert deep.max_grad_norm == math.inf
    for name in ("ipu_state", "ipu_param"):
        assert_same(deep.state_dict()[name], optimizer.state_dict()[name])
