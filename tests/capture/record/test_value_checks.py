"""Operations that only check values: a program raises as eager does, or a warning tells of it."""

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


def test_assertions_are_left_out_with_a_warning(capsys):
    def forward(x):
        torch._assert_async((x > 0).all())
        return x + 1

    assert torch.equal(wrapped(forward)(torch.zeros(2)), torch.ones(2))
    told = " ".join(capsys.readouterr().err.split())
    assert "[_assert_async] the check is not part of the program" in told
    assert f"at {__file__}:" in told
