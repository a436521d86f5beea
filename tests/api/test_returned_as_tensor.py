"""What a call returns does in every function of torch and of Python what a plain tensor does.

The functions are not listed here: they are those that torch and Python have. Each is called with
arguments that it may or may not take, on a plain tensor and on a result with the same values, and
must give the same value, of the same class, or the same error.
"""

import copy
import inspect
import math
import operator
import re
import warnings

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

SUBJECTS = {
    "matrix": torch.tensor([[1.5, -2.0], [0.25, 3.0]]),
    "number": torch.tensor(1.5),
    "indices": torch.tensor([1, 0], dtype=torch.int32),
}
# What is put in the place of the arguments behind the subject; "itself" is the subject once more.
ARGUMENTS = [(), (0,), (1, 0), ("itself",), ("itself", "itself"), (".2f",)]

# Their differences are meant, and tested by themselves: the class and what is said about it, the
# error of backward(), and detach(), which gives what it got. Torch's own "index" does not return
# when it is given numbers, and values that were never written cannot be compared.
NOT_COMPARED = {"__class__", "__doc__", "__module__", "__dir__", "__torch_function__", "backward",
                "detach", "module_load", "index", "empty_like", "lstsq"}

_ADDRESS = re.compile(r"0x[0-9a-f]+|\b\d{9,}\b")


@pytest.fixture(scope="module")
def kind():
    """The class of what a call returns."""
    kinds = {type(poptorch.inferenceModel(torch.nn.Identity(), quiet_options())(value))
             for value in SUBJECTS.values()}
    assert len(kinds) == 1 and torch.Tensor not in kinds
    return kinds.pop()


def _result(value, kind):
    result = value.clone()
    result.__class__ = kind  # as a call does it
    return result


def _described(value, subject, depth=0):
    """What can be compared of a value that ``subject`` led to."""
    if value is subject:
        return "itself"
    if isinstance(value, torch.Tensor):
        dense = value if value.layout is torch.strided else value.to_dense()
        if dense.is_quantized or dense.is_meta:
            dense = torch.zeros(0)
        return (type(value), value.dtype, value.shape, value.layout, value.requires_grad,
                value.is_leaf, repr(dense.detach().resolve_conj().tolist()), sorted(vars(value)))
    if isinstance(value, (tuple, list)) and depth < 3:
        return type(value), [_described(item, subject, depth + 1) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return type(value).__name__, _ADDRESS.sub("", repr(value))


def outcome(function, subject, arguments):
    """What a call of ``function`` leads to, and what becomes of its subject."""
    given = [subject if isinstance(a, str) and a == "itself" else copy.copy(a) for a in arguments]
    torch.default_generator.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _described(function(subject, *given), subject)
    except Exception as error:  # its text may name the class
        found = type(error)
    return found, _described(subject, None)[1:]


def check_like_tensor(functions, kind):
    """Calls all of ``functions``, by name, on results and on plain tensors."""
    values, different = 0, []
    for name, function in functions.items():
        if name.rpartition(".")[2] in NOT_COMPARED:
            continue
        for label, value in SUBJECTS.items():
            for arguments in ARGUMENTS:
                plain = outcome(function, value.clone(), arguments)
                ours = outcome(function, _result(value, kind), arguments)
                if ours != plain:
                    different.append((name, label, arguments, ours, plain))
                values += isinstance(plain[0], (tuple, str))
    assert not different
    assert values >= len(functions)  # and not only errors


def _methods():
    def of(name):
        def call(subject, *arguments):
            found = getattr(subject, name)
            return found(*arguments) if callable(found) else found
        return call
    return {name: of(name) for name in dir(torch.Tensor)}


def _functions():
    spaces = {"torch": torch, "functional": torch.nn.functional, "linalg": torch.linalg,
              "fft": torch.fft, "special": torch.special}
    known = {id(f) for fs in torch.overrides.get_overridable_functions().values() for f in fs}
    return {f"{space}.{name}": f for space, module in spaces.items()
            for name, f in sorted(vars(module).items())
            if id(f) in known and not name.startswith("_")}


def _operators():
    return {name: f for name, f in sorted(vars(operator).items())
            if callable(f) and not name.startswith("__") and not inspect.isclass(f)}


@pytest.mark.parametrize("functions", [
    _methods, _operators, pytest.param(_functions, marks=pytest.mark.slow)])
def test_like_tensor(functions, kind):
    check_like_tensor(functions(), kind)


def test_what_is_compared_makes_a_difference(kind):
    """A class that is not transparent is found out."""
    class Opaque(torch.Tensor):
        __torch_function__ = kind.__torch_function__

    for name in ("__format__", "__reduce_ex__"):
        with pytest.raises(AssertionError, match=name):
            check_like_tensor({name: _methods()[name]}, Opaque)
