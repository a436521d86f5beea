"""The three exception classes."""

import pickle

import pytest

import poptorch


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
