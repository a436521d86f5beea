"""Losses of classes: the first invalid target is named; rows that do not count."""

import re

import numpy as np
import pytest

from poptorch import _C
from poptorch.errors import Error

ROWS, CLASSES = 40_000, 3


def operands(op, scores, targets):
    """Operands of the row: the gradient, the sum of weights and the sums where they belong."""
    one = np.ones((), "f4")
    if op == "nll_loss_backward":
        return [one, scores, targets, None, one]
    if op == "cross_entropy_backward":
        return [one, scores, targets, None, one, np.zeros((ROWS, 2), "f4")]
    return [scores, targets, None]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("op", ["nll_loss", "nll_loss_backward", "cross_entropy",
                                "cross_entropy_backward"])
def test_the_first_bad_target_is_named(op, threads):
    draw = np.random.default_rng()
    targets = draw.integers(0, CLASSES, ROWS).astype("i4")
    first = int(draw.integers(0, ROWS // 2))
    bad = [first, *draw.integers(first, ROWS, 20)]
    targets[bad] = CLASSES + np.arange(len(bad))
    scores = draw.standard_normal((ROWS, CLASSES)).astype("f4")
    words = (f"[{op}] target {targets[first]} at flat index {first} is not a class: "
             f"there are {CLASSES}")
    with pytest.raises(Error, match=re.escape(words)):
        _C.evaluate(op, operands(op, scores, targets), threads=threads)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_gradient_of_an_ignored_row_is_nan_where_it_has_no_probabilities(dtype):
    scores = np.zeros((4, 3), dtype)
    scores[0], scores[1, 1], scores[2, 0] = -np.inf, np.nan, -np.inf
    one, targets = np.ones((), dtype), np.array([-100, -100, -100, 1], "i4")
    sums = _C.evaluate("cross_entropy", [scores, targets, None])[2]
    gradient, = _C.evaluate("cross_entropy_backward", [one, scores, targets, None, one, sums])
    assert np.isnan(gradient[:2]).all()
    assert (gradient[2] == 0).all()
    np.testing.assert_allclose(gradient[3], [1 / 3, -2 / 3, 1 / 3], rtol=1e-6)
