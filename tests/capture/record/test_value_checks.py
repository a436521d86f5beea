"""Operations that only check values: a program raises as eager does."""

import pytest
import torch

import poptorch
from poptorch import Error
from tests.capture.common import Function
from tests.helpers import quiet_options

INDEFINITE = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
SINGULAR = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
GOOD = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
CASES = {
    "cholesky": (torch.linalg.cholesky, INDEFINITE),
    "inv": (torch.linalg.inv, SINGULAR),
    "inverse": (torch.inverse, SINGULAR),
    "solve": (lambda x: torch.linalg.solve(x, x[..., :1]), SINGULAR),
    "lu_factor": (torch.linalg.lu_factor, SINGULAR),
    "matrix_power": (lambda x: torch.linalg.matrix_power(x, -2), SINGULAR),
    "ldl_factor": (torch.linalg.ldl_factor, torch.zeros(2, 2)),
    "tensorinv": (lambda x: torch.linalg.tensorinv(x, 1), SINGULAR),
}


def wrapped(function):
    return poptorch.inferenceModel(Function(lambda m, *args: function(*args)), quiet_options())


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", CASES)
def test_matrices_that_an_operation_refuses(name, batch):
    function, bad = CASES[name]
    if name == "tensorinv" and batch:
        return
    good, bad = (x.expand(*batch, 2, 2).clone() for x in (GOOD, bad))
    with pytest.raises(RuntimeError):
        function(bad)
    model, expected = wrapped(function), function(good)
    for _ in range(2):
        with pytest.raises(Error, match=r"^\[aten::\w+_ex\] PyTorch refused the call on "):
            model(bad)
        torch.testing.assert_close(model(good), expected)


@pytest.mark.parametrize("function", [torch.linalg.inv_ex, torch.linalg.cholesky_ex,
                                      lambda x: torch.linalg.inv_ex(x, check_errors=False)])
def test_what_does_not_check(function):
    torch.testing.assert_close(wrapped(function)(SINGULAR), function(SINGULAR))


def test_a_branch_that_is_not_taken():
    model = wrapped(lambda x: poptorch.cond(x[0, 0] > 1, torch.linalg.inv, [x], torch.neg, [x])[0])
    assert torch.equal(model(SINGULAR), -SINGULAR)
    torch.testing.assert_close(model(GOOD), torch.linalg.inv(GOOD))


@pytest.mark.parametrize("results", (lambda x: x + 1, lambda x: [x.sum(), x], lambda x: (x, 3)))
def test_assertions(results):
    def forward(x):
        torch._assert_async((x > 0).all())
        return results(x)

    model = wrapped(forward)
    with pytest.raises(Error, match=rf"(?s)an asserted value is false.*at {__file__}:\d"):
        model(torch.zeros(2))
    torch.testing.assert_close(model(torch.ones(2)), results(torch.ones(2)))
    model.destroy()
