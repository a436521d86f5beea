"""The state of an optimizer in PyTorch's layout: current whenever it is read, whatever happens
to the executor or the optimizer."""

import collections
import copy
import gc
import pickle
import weakref

import pytest
import torch

import poptorch
from poptorch._optimizer.device_states import DeviceStates
from tests.helpers import quiet_options
from tests.optim.common import KINDS, Net, batch, written

PACKAGES = {"poptorch": poptorch.optim, "torch": torch.optim}
DTYPE = torch.float64


def make(package, kind, parameters):
    """An optimizer of a package, with the settings of tests/optim/common.py."""
    optimizer = KINDS[kind](parameters)
    if package == "poptorch":
        return optimizer
    settings = dict(optimizer.defaults)
    for name in ("decoupled_weight_decay", "use_tf_variant"):
        settings.pop(name, None)
    return getattr(torch.optim, type(optimizer).__name__)(optimizer.param_groups[0]["params"],
                                                          **settings)


def data():
    return batch(dtype=DTYPE)


class Pair:
    """A net and its optimizer on the device, and the same in eager mode."""

    def __init__(self, package, kind, net=None):
        self.net = (net or Net()).double()
        self.eager = copy.deepcopy(self.net)
        self.optimizer = make(package, kind, self.net.parameters())
        self.reference = make("torch", kind, self.eager.parameters())
        self.model = None
        self.wrap()

    def wrap(self, options=None):
        self.model = poptorch.trainingModel(self.net, options or quiet_options(), self.optimizer)

    def train(self, steps=1):
        for _ in range(steps):
            x = data()
            self.model(*x)
            cpu_step(self.eager, self.reference, x)

    def cpu_step(self):
        x = data()
        cpu_step(self.net, self.optimizer, x)
        cpu_step(self.eager, self.reference, x)
        self.model.copyWeightsToDevice()

    def check(self):
        for (name, ours), theirs in zip(self.net.named_parameters(), self.eager.parameters()):
            torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-9, atol=1e-12,
                                       msg=name)
        check_states(self.optimizer, self.reference)


def cpu_step(net, optimizer, x):
    optimizer.zero_grad()
    net(*x)[1].backward()
    optimizer.step()
    optimizer.zero_grad()


def check_states(optimizer, reference):
    """Compares what state_dict() and the attribute show with the state of an eager optimizer."""
    expected = reference.state_dict()["state"]
    found = optimizer.state_dict()["state"]
    assert found.keys() == expected.keys()
    ours = [p for group in optimizer.param_groups for p in group["params"]]
    for number, entry in expected.items():
        assert list(found[number]) == list(entry)
        for key, value in entry.items():
            seen = found[number][key]
            assert seen.dtype is value.dtype, key
            torch.testing.assert_close(seen, value, rtol=1e-9, atol=1e-12, msg=key)
            assert torch.equal(optimizer.state[ours[number]][key], seen)


@pytest.fixture(autouse=True)
def wide():
    with poptorch.testing.wide():
        yield


both = pytest.mark.parametrize("package", PACKAGES)
kinds = pytest.mark.parametrize("kind", ["sgd", "momentum", "amsgrad", "adamw", "rmsprop"])


@both
@kinds
def test_the_state_shown_is_that_of_eager_training(package, kind):
    pair = Pair(package, kind)
    pair.check()
    for steps in (1, 2):
        pair.train(steps)
        pair.check()


@both
@kinds
def test_it_survives_destroy_and_a_new_wrapper(package, kind):
    pair = Pair(package, kind)
    pair.train(2)
    pair.model.destroy()
    pair.check()
    pair.train()  # compiles again
    pair.check()
    pair.train()
    pair.model.destroy()
    pair.wrap()
    pair.train()
    pair.check()


@both
@kinds
def test_it_survives_a_step_on_the_cpu(package, kind):
    pair = Pair(package, kind)
    pair.train(2)
    pair.cpu_step()
    pair.check()
    pair.train(2)
    pair.check()


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda both: pickle.loads(pickle.dumps(both)),
          "torch.save": lambda both: written(both, weights_only=False)}


@both
@pytest.mark.parametrize(("kind", "how"), [("sgd", "deepcopy"), ("momentum", "pickle"),
                                           ("amsgrad", "torch.save"), ("adamw", "deepcopy")])
def test_it_survives_copies(package, kind, how):
    pair = Pair(package, kind)
    pair.train(2)
    net, optimizer = COPIES[how]((pair.net, pair.optimizer))
    assert type(optimizer.state) is collections.defaultdict
    check_states(optimizer, pair.reference)
    pair.net, pair.optimizer = net, optimizer
    pair.wrap()
    pair.train()
    pair.check()


@both
def test_state_dicts_are_read_by_torch(package):
    pair = Pair(package, "adam")
    pair.train(2)
    state = written(pair.optimizer.state_dict(), weights_only=True)
    other = torch.optim.Adam(copy.deepcopy(pair.net).parameters(), lr=0.5)
    other.load_state_dict({key: state[key] for key in ("state", "param_groups")})
    check_states(other, pair.reference)


@kinds
def test_torch_state_that_is_loaded_is_taken_up(kind):
    """By a compiled model: as a whole, like eager."""
    pair = Pair("torch", kind)
    pair.train()
    kept = copy.deepcopy((pair.optimizer.state_dict(), pair.reference.state_dict()))
    pair.train(2)
    for optimizer, state in zip((pair.optimizer, pair.reference), kept):
        optimizer.load_state_dict(state)
    pair.check()
    pair.train(2)
    pair.check()
    fresh = make("torch", kind, Net().parameters()).state_dict()
    for optimizer in (pair.optimizer, pair.reference):
        optimizer.load_state_dict(fresh)
    pair.train()
    pair.check()


@both
def test_what_the_host_writes_is_taken_up(package):
    pair = Pair(package, "adam")
    pair.train(2)
    for optimizer, net in ((pair.optimizer, pair.net), (pair.reference, pair.eager)):
        weight = net.fc.weight
        optimizer.state[weight]["exp_avg"].mul_(0.5)
        optimizer.state[weight]["exp_avg_sq"].numpy()[:] *= 2  # no version counter sees this one
        del optimizer.state[net.fc.bias]
        optimizer.state[net.conv.bias] = {
            key: value.clone() * 3 for key, value in optimizer.state[net.conv.bias].items()}
        optimizer.state[net.conv.bias]["step"].fill_(9)
    pair.train()
    pair.check()
    for optimizer in (pair.optimizer, pair.reference):
        optimizer.state = collections.defaultdict(dict)  # a common way to begin again
    pair.train()
    pair.check()
    for optimizer in (pair.optimizer, pair.reference):
        optimizer.state.clear()
    pair.train()
    pair.check()


def test_it_is_read_once_after_a_run_and_copied_by_none(monkeypatch):
    reads, read = [], DeviceStates.read
    monkeypatch.setattr(DeviceStates, "read", lambda self: reads.append(1) or read(self))
    writes, write = [], DeviceStates.write
    monkeypatch.setattr(DeviceStates, "write",
                        lambda self, *given: writes.append(1) or write(self, *given))
    pair = Pair("torch", "momentum")
    pair.train(3)
    assert not reads and len(writes) == 1
    schedule = torch.optim.lr_scheduler.StepLR(pair.optimizer, 1)
    pair.optimizer.zero_grad()
    pair.optimizer.step()  # without gradients
    schedule.step()
    pair.model.setOptimizer(pair.optimizer)
    pair.reference.param_groups[0]["lr"] = pair.optimizer.param_groups[0]["lr"]
    pair.train()
    assert not reads and len(writes) == 1
    for _ in range(2):
        pair.check()
        assert len(reads) == 1
    pair.train(2)
    assert len(reads) == 1 and len(writes) == 2


def test_a_snapshot_stays_and_a_late_write_to_it_is_told(capsys):
    pair = Pair("torch", "momentum")
    pair.train()
    held = pair.optimizer.state[pair.net.fc.weight]
    before = held["momentum_buffer"].clone()
    pair.train()
    assert torch.equal(held["momentum_buffer"], before)
    assert not torch.equal(pair.optimizer.state[pair.net.fc.weight]["momentum_buffer"], before)
    assert "outdated" not in capsys.readouterr().err
    held = pair.optimizer.state[pair.net.fc.weight]
    pair.train()
    held["momentum_buffer"].zero_()
    pair.check()
    assert capsys.readouterr().err.count("outdated state of fc.weight") == 1


def test_the_mapping_is_a_defaultdict_for_whoever_looks():
    pair = Pair("torch", "adam")
    pair.train()
    states = pair.optimizer.state
    assert isinstance(states, collections.defaultdict) and states.default_factory is dict
    assert repr(states).startswith("defaultdict(<class 'dict'>, {")
    assert type(copy.copy(states)) is collections.defaultdict
    assert type(pickle.loads(pickle.dumps(states))) is collections.defaultdict
    weight = pair.net.fc.weight
    for look in (lambda: states[weight]["step"], lambda: states.get(weight)["step"],
                 lambda: dict(states)[weight]["step"], lambda: {**states}[weight]["step"],
                 lambda: list(states.values())[0]["step"], lambda: states.copy()[weight]["step"],
                 lambda: copy.copy(states)[weight]["step"],
                 lambda: (states | {})[weight]["step"],
                 lambda: next(iter(states.items()))[1]["step"]):
        pair.train()
        assert look() == pair.reference.state[pair.eager.fc.weight]["step"]
    other = torch.nn.Parameter(torch.ones(2))
    assert states[other] == {} and other in states and len(states) == 5
    assert states.pop(other) == {} and bool(states)


def test_an_executor_that_is_forgotten_leaves_the_state():
    pair = Pair("torch", "adam")
    pair.train(2)
    net = pair.net
    pair.model = None
    net.destroy()
    pair.check()
    pair.wrap()
    pair.train()
    pair.check()


def test_half_precision():
    with poptorch.testing.wide():
        net = Net().to(torch.bfloat16)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.5)
        x, target = batch(dtype=torch.bfloat16)
        poptorch.trainingModel(net, quiet_options(), optimizer)(x, target)
        entry = optimizer.state[net.fc.weight]
        assert entry["exp_avg"].dtype is torch.bfloat16 and entry["step"].dtype is torch.float32


class Around(torch.nn.Module):
    """A module around another module, which two executors share."""

    def __init__(self, core, factor):
        super().__init__()
        self.core, self.factor = core, factor
        self.own = torch.nn.Parameter(torch.ones((), dtype=DTYPE))

    def forward(self, x):
        return poptorch.identity_loss((self.core(x) * self.factor * self.own).square(), "mean")


@both
def test_two_executors_train_the_same_parameters(package):
    """Each starts from the state that the other left; with lr=0, as only that is looked at here."""
    core = torch.nn.Linear(3, 3).double()
    parts = torch.nn.ModuleList([Around(core, 1.0), Around(core, 2.0)])
    eager = copy.deepcopy(parts)
    optimizer = make(package, "adam", parts.parameters())
    reference = make("torch", "adam", eager.parameters())
    for one in (optimizer, reference):
        one.param_groups[0]["lr"] = 0.0
    models = [poptorch.trainingModel(part, quiet_options(), optimizer) for part in parts]
    for which in (0, 0, 1, 0, 1, 1):
        x = torch.randn(4, 3, dtype=DTYPE)
        models[which](x)
        reference.zero_grad()
        eager[which](x).backward()
        reference.step()
    check_states(optimizer, reference)
    for model in models:
        model.destroy()
    check_states(optimizer, reference)


@both
def test_copies_of_an_executor_have_it(package):
    pair = Pair(package, "adam")
    pair.train(2)
    for again in (copy.deepcopy(pair.model), pickle.loads(pickle.dumps(pair.model))):
        optimizer, reference = again._optimizer.optimizer, copy.deepcopy(pair.reference)
        check_states(optimizer, reference)
        eager, x = copy.deepcopy(pair.eager), data()
        new = make("torch", "adam", eager.parameters())
        new.load_state_dict(reference.state_dict())
        again(*x)
        cpu_step(eager, new, x)
        check_states(optimizer, new)


@both
def test_files_have_it(package, tmp_path):
    pair = Pair(package, "adam")
    pair.train(2)
    path = pair.model.save(tmp_path / "net.poptorch")
    again = poptorch.load(path)
    check_states(again._optimizer.optimizer, pair.reference)
    pair.net, pair.optimizer = again.model, again._optimizer.optimizer
    pair.model = again
    pair.train()
    pair.check()


@both
def test_a_file_holds_the_state_once(package, tmp_path):
    pair = Pair(package, "adam")
    pair.train()
    first = (tmp_path / "first.poptorch", tmp_path / "second.poptorch")
    pair.model.save(first[0])
    pair.check()  # the host has it, too, from here on
    pair.model.save(first[1])
    sizes = [path.stat().st_size for path in first]
    assert abs(sizes[0] - sizes[1]) < 100


def test_destroy_frees_the_program():
    pair = Pair("torch", "adam")
    pair.train()
    device = weakref.ref(pair.optimizer.state.running)
    pair.model.destroy()
    gc.collect()
    assert device() is None
    pair.check()


@both
def test_two_executors_share_a_part(package):
    """As above, with its weights: everything is that of eager training."""
    core = torch.nn.Linear(3, 3).double()
    parts = torch.nn.ModuleList([Around(core, 1.0), Around(core, 2.0)])
    eager = copy.deepcopy(parts)
    optimizer = make(package, "adam", parts.parameters())
    reference = make("torch", "adam", eager.parameters())
    models = [poptorch.trainingModel(part, quiet_options(), optimizer) for part in parts]
    for which in (0, 0, 1, 0, 1, 1):
        x = torch.randn(4, 3, dtype=DTYPE)
        models[which](x)
        reference.zero_grad()
        eager[which](x).backward()
        reference.step()
    for ours, theirs in zip(parts.parameters(), eager.parameters()):
        torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-9, atol=1e-12)
    check_states(optimizer, reference)
