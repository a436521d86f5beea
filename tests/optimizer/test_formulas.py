"""Formulas of optimizers: one region for each parameter, in place, captured once, in all types."""

import re

import pytest
import torch

import poptorch
from poptorch._optimizer import captured_formula, rows
from poptorch._optimizer.spec import Hyper, OptimizerSpec, StateTensor
from tests.helpers import quiet_options, relative_error
from tests.optim.test_recorded import KINDS, OURS, Recorded, begin, recorded

ELEMENTWISE = [kind for kind, (name, _) in KINDS.items()
               if name not in ("SGD", "Adam", "AdamW", "LAMB", "Adafactor")]


def compiled(kind):
    net, optimizer, _ = begin(kind)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model.compile(*recorded(net, 1))
    return model.ir().splitlines()


def updates(lines, sizes):
    """The ops of the update that compute a result of these sizes."""
    return [line for line in lines if 'part="update"' in line and f"f32[{sizes}]" in line
            and " = state " not in line]


def copies(lines):
    """The states with dimensions whose new value is made elsewhere, and then copied."""
    made = {}
    for line in lines:
        names, _, rest = line.strip().partition(" = ")
        address = re.search(r"addr=\[?([\d, ]+)", rest)
        if rest and address:
            made |= dict(zip(names.split(", "), address[1].split(", ")))
    found = []
    for line in lines:
        assign = re.match(r'\s*assign (%\S+) \{addr=(\d+).*path="([^"]+)"', line)
        has_dims = not re.search(r"number$|\.(eta|mu|mu_product)\.", assign[3] if assign else "")
        if assign and has_dims and made[assign[1]] != assign[2]:
            found.append(assign[3])
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_one_pass_over_memory(kind):
    lines = compiled(kind)
    for sizes in ("7,5", "3,2,3,3"):
        assert [line.count(" = fused ") for line in updates(lines, sizes)] == [1]
    assert copies(lines) == []


@pytest.mark.parametrize("kind", ["lamb", "adafactor"])
def test_states_are_updated_in_place(kind):
    assert copies(compiled(kind)) == []


@pytest.mark.parametrize("kind", ["nadam_all", "lamb", "adafactor"])
def test_a_formula_is_captured_once_for_many_parameters(kind, monkeypatch):
    captures, capture = [], captured_formula.capture_formula
    monkeypatch.setattr(captured_formula, "capture_formula",
                        lambda module, args: captures.append(args) or capture(module, args))
    net = torch.nn.Module()
    net.parts = torch.nn.ParameterList(torch.ones(3 + n, 2) for n in range(20))
    net.forward = lambda x: poptorch.identity_loss(sum((p * x).sum() for p in net.parts), "none")
    name, settings = KINDS[kind]
    optimizer = getattr(poptorch.optim, name, getattr(torch.optim, name, None))(
        net.parameters(), **settings)
    poptorch.trainingModel(net, quiet_options(), optimizer).compile(torch.ones(1, 2))
    assert len(captures) == 1


@pytest.mark.parametrize("kind", ["rmsprop_all", "nadam", "lamb", "adafactor", "rprop"])
def test_another_learning_rate_compiles_nothing(kind, monkeypatch):
    net, optimizer, _ = begin(kind)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model(*recorded(net, 1))
    monkeypatch.setattr(poptorch._C, "compile", None)
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    model(*recorded(net, 1))


class Modes(torch.overrides.TorchFunctionMode):
    """A mode of the user's, which the formula is none of the business of."""

    seen: list = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


def test_modes_of_the_user_see_no_formula():
    net, optimizer, _ = begin("nadam")
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    with Modes() as mode:
        model(*recorded(net, 1))
    assert not {"lerp_", "addcdiv_", "ne"} & set(mode.seen)


def test_the_numbers_of_an_update_are_float64():
    net = Recorded()
    optimizer = torch.optim.RAdam(net.parameters(), lr=0.1, betas=(0.5, 1 - 1e-9))
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    gradients = [torch.ones(1, *p.shape) for p in net.parameters()]
    for _ in range(2):
        model(*gradients)
    found = optimizer.state[net.matrix]["exp_avg_sq"]
    assert relative_error(found, torch.full((7, 5), 2e-9)) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["rmsprop_all", "nadam", "asgd", "lamb", "adafactor"])
def test_narrow_parameters_are_rounded_once(kind, dtype):
    name, settings = KINDS[kind]
    cls = getattr(poptorch.optim, name, getattr(torch.optim, name, None))
    net, twin = Recorded().to(dtype), Recorded().double()
    twin.load_state_dict(net.state_dict())
    optimizer, reference = cls(net.parameters(), **settings), cls(twin.parameters(), **settings)
    if name == "Adafactor":  # whose default is that of the type
        reference.param_groups[0]["eps"] = (torch.finfo(dtype).eps, 1e-3)
    gradients = [g.to(dtype) for g in recorded(net, 1)]
    poptorch.trainingModel(net, quiet_options(), optimizer)(*gradients)
    for p, g in zip(twin.parameters(), gradients):
        p.grad = g[0].double()
    reference.step()
    for ours, exact in zip(net.parameters(), twin.parameters()):
        assert ours.dtype is dtype
        ulp = torch.finfo(dtype).eps * exact.detach().abs()
        assert ((ours - exact).abs() <= 0.51 * ulp + 1e-6).all()
        for key, value in reference.state[exact].items():
            kept = optimizer.state[ours][key]
            is_narrow = kind not in OURS and key not in ("step", "eta", "mu", "mu_product")
            assert kept.dtype is (dtype if is_narrow else torch.float32)
            rtol = 0.51 * torch.finfo(dtype).eps if is_narrow else 1e-5
            torch.testing.assert_close(kept.double(), value.double(), rtol=rtol, atol=1e-6)


class Sums(torch.optim.Optimizer):
    """Adds up gradients, and moves a weight by the mean of all that it has."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.5})


def row_of_sums(formula, **settings):
    return OptimizerSpec(cls=Sums, formula=formula, hyper=(Hyper("lr", "lr"),), flags=(),
                         states=(StateTensor("total", "Total", initial=2.0),), settings=(),
                         counts=False, doc="Sums.", **settings)


def moved_by_the_mean(x):
    total = x.total + x.grad
    return {"param": x.param - x.lr * total.mean(), "total": total}


def test_a_row_with_a_formula_is_enough(monkeypatch):
    monkeypatch.setitem(rows.ROWS, Sums, row_of_sums(moved_by_the_mean, is_elementwise=False))
    net = Recorded()
    before = [p.detach().clone() for p in net.parameters()]
    optimizer = Sums(net.parameters())
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model(*(torch.ones(1, *p.shape) for p in net.parameters()))
    for p, old in zip(net.parameters(), before):
        torch.testing.assert_close(p.detach(), old - 1.5)
        assert torch.equal(optimizer.state[p]["total"], torch.full_like(p, 3.0))


def test_a_formula_of_other_sizes_is_refused(monkeypatch):
    def summed(x):
        return {"param": x.param.sum(), "total": x.total}

    monkeypatch.setitem(rows.ROWS, Sums, row_of_sums(summed))
    net = Recorded()
    with pytest.raises(AssertionError, match="The formula of an optimizer gives"):
        poptorch.trainingModel(net, quiet_options(), Sums(net.parameters())).compile(
            *recorded(net, 1))


def test_states_of_other_sizes_of_grouped_weights_are_refused():
    net = Recorded()
    grouped = torch.nn.Parameter(torch.zeros(2, 7, 5))
    net.matrix = grouped
    model = poptorch.trainingModel(net, quiet_options(replicationFactor=2),
                                   torch.optim.Adafactor(net.parameters()))
    model.matrix.replicaGrouping(poptorch.CommGroupType.Consecutive, 1,
                                 poptorch.VariableRetrievalMode.OnePerGroup)
    gradients = [torch.ones(2, *p.shape) for p in net.parameters()]
    gradients[0] = torch.ones(2, 7, 5)
    with pytest.raises(poptorch.Error, match="Adafactor keeps row_var of other sizes than matrix"):
        model.compile(*gradients)
