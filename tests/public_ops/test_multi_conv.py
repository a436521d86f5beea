"""Convolutions that are computed together: results, the IR, settings, errors."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import poptorch
from poptorch import MultiConv, MultiConvPlanType
from tests.capture.common import Function
from tests.helpers import quiet_options

X, Y = torch.randn(2, 3, 6, 6), torch.randn(2, 3, 4, 4)


class Net(nn.Module):
    """Two convolutions, maybe together, and one behind them."""

    def __init__(self, manager):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(3, 4, 3)
        self.end = nn.Conv2d(4, 2, 1)
        self.manager = manager

    def forward(self, x, y):
        with self.manager() as manager:
            assert manager is None or isinstance(manager, MultiConv)
            x, y = self.a(x.tanh()).relu(), self.b(y.tanh())
        x = self.end(x)
        return x, y, F.mse_loss(x, torch.zeros_like(x)) + F.mse_loss(y, torch.ones_like(y))


class Nothing:
    def __enter__(self):
        return None

    def __exit__(self, *exception):
        pass


def gradients(manager):
    net = Net(manager)

    class Marked(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, y):
            *results, loss = self.net(x, y)
            return *results, poptorch.identity_loss(loss, "none")

    model = poptorch.trainingModel(Marked(), quiet_options())
    with poptorch.testing.keep_gradients():
        results = model(X, Y)
    return results, poptorch.testing.gradients(model), model


def test_results_and_gradients_are_those_without():
    results, found, model = gradients(MultiConv)
    plain, expected, _ = gradients(Nothing)
    assert all(map(torch.equal, results, plain))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    net = Net(MultiConv)
    *eager, loss = net(X, Y)
    loss.backward()
    torch.testing.assert_close(list(results[:2]), [x.detach() for x in eager])
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(found[f"net.{name}"], parameter.grad)


def convolutions(model, step="translate"):
    return [line for line in model.ir(step).splitlines() if "convolution" in line]


@pytest.mark.parametrize("step", ["translate", "rewrite"])
def test_the_ir_has_them_in_a_group(step):
    _, _, model = gradients(MultiConv)
    lines = convolutions(model, step)
    together = [line for line in lines if "multi_conv=0" in line]
    assert all('plan_type="parallel"' in line for line in together)
    assert (len(lines), len(together)) == (6, 4)
    assert sum('part="backward"' in line for line in together) == 2


def settings():
    return (MultiConv().availableMemoryProportions((0.25, 0)).partialsTypes(
        [torch.float16, torch.float32]).enableConvDithering([True, False]).cycleBackOff(
            0.5).perConvReservedTiles(32).planType(MultiConvPlanType.Serial))


def test_settings_are_in_the_ir():
    _, _, model = gradients(settings)
    lines = [line for line in convolutions(model, "rewrite") if "multi_conv=" in line]
    assert len(lines) == 4
    for line in lines:
        is_first = 'partials_type="half"' in line
        known = ["cycle_back_off=0.5", "reserved_tiles=32", 'plan_type="serial"']
        known += ["available_memory=0.25", "dithering=true"] if is_first else [
            "available_memory=0", "dithering=false", 'partials_type="float"']
        assert all(word in line for word in known), line
    assert sum('partials_type="half"' in line for line in lines) == 2


def test_one_value_is_for_all():
    def forward(m, x):
        with MultiConv().availableMemoryProportions(0.2).partialsTypes(
                torch.float16).enableConvDithering(True):
            return F.conv2d(x, m.w) + F.conv2d(x * 2, m.w)

    model = poptorch.inferenceModel(Function(forward, {"w": torch.randn(2, 3, 3, 3)}),
                                    quiet_options())
    model(X)
    for line in convolutions(model):
        assert 'available_memory=0.2, ' in line and 'dithering=true' in line
        assert 'partials_type="half"' in line


def test_groups_have_numbers_and_may_be_entered_again():
    def forward(m, x):
        multi = MultiConv()
        with multi:
            y = F.conv2d(x, m.w)
        with multi:
            return y + F.conv2d(x, m.w)

    model = poptorch.inferenceModel(Function(forward, {"w": torch.randn(2, 3, 3, 3)}),
                                    quiet_options())
    model(X)
    assert [f"multi_conv={i}" in line for i, line in enumerate(convolutions(model))] == [True] * 2


def test_in_a_recomputation():
    def inner(x, w):
        with MultiConv():
            return F.conv2d(x, w).sin()

    def forward(m, x):
        x = checkpoint(inner, x, m.w, use_reentrant=False)
        return x, F.mse_loss(x, torch.zeros_like(x))

    model = poptorch.trainingModel(Function(forward, {"w": torch.randn(2, 3, 3, 3)}),
                                   quiet_options())
    model(X)
    assert all("multi_conv=" in line for line in convolutions(model))
    assert len(convolutions(model)) == 3


def test_a_wrapper_of_the_forward_of_an_instance():
    net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU())
    inner = net.forward

    def forward(x):
        with MultiConv():
            return inner(x)

    net.forward = forward
    model = poptorch.inferenceModel(net, quiet_options())
    torch.testing.assert_close(model(X), net(X).detach())
    assert "multi_conv=0" in convolutions(model)[0]


def _nested(m, x):
    with MultiConv(), MultiConv():
        return F.conv2d(x, m.w)


def _empty(m, x):
    with MultiConv():
        return x + 1


def _of_three(m, x):
    with MultiConv().enableConvDithering([True, False, True]):
        return F.conv2d(x, m.w) + F.conv2d(x * 2, m.w)


@pytest.mark.parametrize(("forward", "words"), [
    (_nested, "Nested poptorch.MultiConv blocks are not supported"),
    (_empty, "Unexpected end_multi_conv"),
    (_of_three, "dithering has 3 values, but there are 2 convolutions"),
])
def test_what_is_refused_in_forward(forward, words):
    model = poptorch.inferenceModel(Function(forward, {"w": torch.randn(2, 3, 3, 3)}),
                                    quiet_options())
    with pytest.raises(poptorch.Error, match=words) as error:
        model(X)
    assert "test_multi_conv.py:" in error.value.location


def test_an_error_of_forward_is_that_of_forward():
    def forward(m, x):
        with MultiConv():
            raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        poptorch.inferenceModel(Function(forward), quiet_options())(X)


@pytest.mark.parametrize(("setting", "value", "kind", "words"), [
    ("availableMemoryProportions", 1, ValueError, "less than 1, got 1"),
    ("availableMemoryProportions", [0.2, -1], ValueError, "from 0 to 1, got -1"),
    ("availableMemoryProportions", "0.2", TypeError, "number from 0 to 1, got str"),
    ("cycleBackOff", 1.5, ValueError, "from 0 to 1, got 1.5"),
    ("cycleBackOff", [0.1], TypeError, "number from 0 to 1, got list"),
    ("enableConvDithering", 1, TypeError, "expected True or False, got int 1"),
    ("enableConvDithering", [True, None], TypeError, "got NoneType None"),
    ("partialsTypes", torch.float64, ValueError, "Invalid partials types.*got torch.float64"),
    ("partialsTypes", [torch.float16, "half"], ValueError, "Invalid partials types.*got 'half'"),
    ("perConvReservedTiles", -1, ValueError, "at least 0, got -1"),
    ("perConvReservedTiles", 2.0, TypeError, "got float 2.0"),
    ("planType", 1, AssertionError, "expected a member of .*got 1. Pass MultiConvPlan"),
])
def test_settings_are_checked(setting, value, kind, words):
    with pytest.raises(kind, match=words) as error:
        getattr(MultiConv(), setting)(value)
    assert str(error.value).startswith(f"[MultiConv.{setting}] ")


def test_outside_of_poptorch_nothing_happens():
    with MultiConv().planType(MultiConvPlanType.Parallel), MultiConv():
        assert torch.equal(X + 1, 1 + X)
