"""inferenceModel of a function: arguments, results, other shapes, errors."""

import functools

import pytest
import torch

import poptorch
from tests.helpers import quiet_options


def scaled(x, y=None, *, factor=2.0):
    z = x * factor if y is None else x * factor + y
    return z, {"sum": z.sum(), "nothing": None}


def test_arguments_by_name_and_nested_results():
    model = poptorch.inferenceModel(scaled, quiet_options())
    x, y = torch.randn(2, 3), torch.randn(3)
    z, others = model(x, y=y, factor=3.0)
    torch.testing.assert_close(z, x * 3 + y)
    torch.testing.assert_close(others["sum"], z.sum())
    assert others["nothing"] is None and not z.requires_grad


def test_defaults():
    model = poptorch.inferenceModel(scaled, quiet_options())
    x = torch.randn(2, 3)
    torch.testing.assert_close(model(x)[0], x * 2)


def test_other_shapes_and_values_compile_again():
    model = poptorch.inferenceModel(scaled, quiet_options().recompilation(shapes=True))
    for rows, factor in ((2, 1.0), (3, 1.0), (3, 4.0), (2, 1.0)):
        x = torch.randn(rows)
        torch.testing.assert_close(model(x, factor=factor)[0], x * factor)
    assert len(model.programs()) == 3


def test_other_shapes_without_the_option():
    model = poptorch.inferenceModel(lambda x: x + 1, quiet_options())
    model(torch.ones(2))
    with pytest.raises(poptorch.Error, match=r"x: .*\[2\].*\[3\]"):
        model(torch.ones(3))


def test_a_function_reads_tensors_around_it():
    weight = torch.randn(3, 2)
    model = poptorch.inferenceModel(lambda x: x @ weight, quiet_options())
    x = torch.randn(4, 3)
    torch.testing.assert_close(model(x), x @ weight)


def test_errors_name_the_line():
    model = poptorch.inferenceModel(lambda x: x @ x, quiet_options())
    with pytest.raises(poptorch.Error, match="test_inference_function.py:"):
        model(torch.ones(2, 3))


class Scale:
    def scaled(self, x):
        return x * 2


@pytest.mark.parametrize("thing", [functools.partial(scaled, factor=2.0), Scale().scaled])
def test_partial_functions_and_methods(thing):
    x = torch.randn(2, 3)
    found = poptorch.inferenceModel(thing, quiet_options())(x)
    torch.testing.assert_close(found[0] if isinstance(found, tuple) else found, x * 2)
    assert poptorch.analyze(thing, x).counts["native"] > 0


def test_functions_of_torch():
    x = torch.randn(2, 3)
    torch.testing.assert_close(poptorch.inferenceModel(torch.sin, quiet_options())(x), x.sin())


def test_wrong_arguments():
    model = poptorch.inferenceModel(scaled, quiet_options())
    with pytest.raises(poptorch.Error, match="Mandatory parameter x missing: forward takes"):
        model()


@pytest.mark.parametrize("thing", [3, None, "f"])
def test_no_function(thing):
    with pytest.raises(TypeError, match="model must be a torch.nn.Module"):
        poptorch.inferenceModel(thing)
