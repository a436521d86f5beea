"""One more decomposition: a function and its decorator are enough."""

import pytest
import torch

import poptorch
from poptorch._capture import capture
from poptorch._capture.decompose.table import DECOMPOSITIONS, ELEMENTWISE, decomposes, elementwise
from poptorch._translate.call_routes import steps_of
from tests.capture.common import Function, nodes
from tests.capture.decompose.decomposition_cases import Numbers
from tests.capture.decompose.test_decompositions import DTYPES, check
from tests.helpers import quiet_options

aten = torch.ops.aten
OVERLOAD = aten.heaviside.default


def heaviside(x, values):
    if x.dtype is torch.bool:
        return NotImplemented
    return torch.where(x == 0, values, (x > 0).to(x.dtype))


@pytest.fixture(params=[decomposes, elementwise])
def added(request):
    assert [step.what for step in steps_of(OVERLOAD)][0] == "recorded"
    request.param(OVERLOAD)(heaviside)
    yield
    del DECOMPOSITIONS[OVERLOAD]
    ELEMENTWISE.discard(OVERLOAD)


def captured_by(forward, *inputs):
    return [node.target for node in nodes(capture(Function(lambda _, *x: forward(*x)), inputs,
                                                 training=False))]


def test_it_computes_what_the_operation_does(added):
    for dtype in DTYPES:
        for special in (False, True):
            numbers = Numbers(dtype, special)
            for sizes in (((4, 9), (9,)), ((), (3,)), ((0, 3), (3,))):
                assert check(OVERLOAD, [numbers(*s) for s in sizes], {})


def test_nothing_of_the_operation_is_left(added):
    x, values = torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([0.5, 0.25, 0.5])
    in_place = captured_by(lambda x, v: x.clone().heaviside_(v), x, values)
    for found in (captured_by(torch.heaviside, x, values), in_place):
        assert aten.where.self in found and OVERLOAD not in found
    assert OVERLOAD in captured_by(torch.heaviside, x > 0, values > 0)  # NotImplemented
    model = poptorch.inferenceModel(Function(lambda _, x, v: x.clone().heaviside_(v)),
                                    quiet_options())
    assert model(x, values).tolist() == [0.0, 0.25, 1.0]


def test_how_shows_it(added):
    assert steps_of(OVERLOAD)[0].what == "decomposed"
    assert steps_of(aten.heaviside_.default)[0].what.startswith("its functional form is decomposed")
