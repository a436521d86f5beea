"""The three exception classes."""

import copy
import pickle

import pytest
import torch

import poptorch
from poptorch.errors import also
from tests.helpers import quiet_options


@pytest.mark.parametrize("kind", [poptorch.Error, poptorch.RecoverableError,
                                  poptorch.UnrecoverableError])
def test_classes_and_attributes(kind):
    error = kind("what happened", type="kind", location="net.py:3")
    assert isinstance(error, poptorch.Error) and isinstance(error, RuntimeError)
    again = pickle.loads(pickle.dumps(error))
    for one in (error, again):
        assert (str(one), one.message, one.type, one.location) == (
            "what happened", "what happened", "kind", "net.py:3")
    assert isinstance(kind().message, str) and isinstance(kind().location, str)


def test_recovery_action():
    for action in ("IPU_RESET", "LINK_RESET", "PARTITION_RESET", "FULL_RESET"):
        error = poptorch.RecoverableError("x", recovery_action=action)
        assert pickle.loads(pickle.dumps(error)).recovery_action == action
    assert poptorch.RecoverableError().recovery_action == "FULL_RESET"
    assert not hasattr(poptorch.UnrecoverableError(), "recovery_action")
    with pytest.raises(ValueError, match="one of IPU_RESET, .*, got 'REBOOT'"):
        poptorch.RecoverableError(recovery_action="REBOOT")


def test_errors_of_the_core_are_poptorch_errors():
    with pytest.raises(poptorch.Error) as caught:
        poptorch._C.parse("graph {")
    assert type(caught.value) is poptorch.Error and caught.value.message == str(caught.value)


class Strange(Exception):
    """Neither made nor copied by its text alone."""

    def __init__(self, function, *, more):
        super().__init__("strange")
        self.function, self.more = function, more

    def __str__(self):
        return f"strange {self.function}"


KINDS = [KeyError, IndexError, TypeError, NotImplementedError, UnicodeDecodeError, OSError,
         AttributeError, ImportError, StopIteration, ZeroDivisionError, torch.linalg.LinAlgError,
         Strange, poptorch.UnrecoverableError]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_another_class_as_well(kind):
    error = also(kind, "[x] words", location="net.py:3", details={"more": 1})
    assert type(error) is type(also(kind, "others"))
    for one in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert isinstance(one, poptorch.Error) and isinstance(one, kind)
        assert (str(one), one.message, one.location, one.args) == (
            "[x] words", "[x] words", "net.py:3", ("[x] words",))
        assert type(one) is type(error) and type(one).__name__ == kind.__name__
    assert error.more == 1
    for caught in (kind, poptorch.Error, RuntimeError):
        with pytest.raises(caught) as raised:
            raise error
        assert raised.value is error


@pytest.mark.parametrize("kind", [RuntimeError, Exception, poptorch.Error, ExceptionGroup])
def test_errors_of_a_class_that_needs_no_other(kind):
    assert type(also(kind, "words")) is poptorch.Error


def test_the_place_of_an_error_of_the_core():
    error = poptorch.Error('[add] words\n  at net.py:3, module "fc", step run')
    assert error.location == 'net.py:3, module "fc"'
    assert poptorch.Error("[add] words").location == ""


@pytest.mark.parametrize("forward, words", [
    # The first is refused by the device only, the last one by PyTorch too.
    (lambda x: x.to(torch.float8_e5m2), "aten._to_copy(int64[3], dtype=torch.float8_e5m2)"),
    (lambda x: x.long() & x.float().long().double(), "Tensor.__and__(int64[3], float64[3])"),
])
def test_messages_name_the_dtypes_of_the_program(forward, words):
    module = torch.nn.Module()
    module.forward = forward
    with pytest.raises(poptorch.Error) as raised:
        poptorch.inferenceModel(module, quiet_options())(torch.arange(3))
    assert words in str(raised.value) and "i32" not in str(raised.value)
    assert raised.value.location == f"{__file__}:{forward.__code__.co_firstlineno}"


def test_a_later_call_is_told_the_dtype_of_the_first():
    module = torch.nn.Module()
    module.forward = lambda x: x * 2
    model = poptorch.inferenceModel(module, quiet_options())
    model(torch.arange(3))
    with pytest.raises(poptorch.Error, match="expected torch.int32 but got torch.float32. .* its "
                                             "first call, torch.int64 here, which is torch.int32 "
                                             "on the device. Set Options"):
        model(torch.ones(3))


@pytest.mark.parametrize("as_buffer, words", [
    (True, "[translate] buffer 'scale': torch.float8_e5m2"),
    (False, "[translate] a tensor: torch.float8_e5m2")])
def test_a_kept_tensor_of_no_type_of_the_device(as_buffer, words):
    module, scale = torch.nn.Module(), torch.ones(3).to(torch.float8_e5m2)
    module.register_buffer("scale", scale) if as_buffer else setattr(module, "scale", scale)
    module.forward = lambda x: module.scale.float() * x
    with pytest.raises(poptorch.Error) as raised:
        poptorch.inferenceModel(module, quiet_options())(torch.ones(3))
    assert words in str(raised.value)
    assert raised.value.location == f"{__file__}:{module.forward.__code__.co_firstlineno}"
