"""Handlers of operators take their arguments by the names that the operator has."""

import inspect

import pytest
import torch

from poptorch._capture.functions.mode import HANDLERS

OPERATORS = {key: handler for key, handler in HANDLERS.items()
             if isinstance(key, torch._ops.OpOverload)}


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_arguments_by_name(operator):
    names = [argument.name for argument in operator._schema.arguments]
    inspect.signature(OPERATORS[operator]).bind("capture", operator, **dict.fromkeys(names))
