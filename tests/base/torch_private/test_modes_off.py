"""Operations that no mode and no transformation of the caller's sees or changes."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from poptorch._base.torch_private.modes_off import is_plain, is_plain_for, plain_torch
from poptorch.errors import Error

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")
X = torch.ones(3)


class Trial:
    """Called inside something: what is active before, within and after."""

    def __init__(self):
        self.found = None

    def __call__(self, x):
        before = is_plain()
        with plain_torch():
            made = torch.zeros(2)
            made[0] = 1.0
            within = is_plain()
        self.found = before, within, is_plain(), type(made), made.device.type
        self.values = made
        return x * 2


def in_mode(mode):
    def run(trial):
        with mode():
            trial(X)
    return run


ACTIVE = {
    "nothing": lambda trial: trial(X),
    "trace": lambda trial: torch.jit.trace(lambda x: trial(x), X, check_trace=False),
    "make_fx": lambda trial: make_fx(lambda x: trial(x))(X),
    "vmap": lambda trial: vmap(trial)(X),
    "grad": lambda trial: grad(lambda x: trial(x).sum())(X),
    "nested": lambda trial: vmap(grad(trial))(X),
    "fake": in_mode(lambda: FakeTensorMode(allow_non_fake_inputs=True)),
    "device": in_mode(lambda: torch.device("meta")),
}


@pytest.mark.parametrize("name", ACTIVE)
def test_nothing_is_active_within(name):
    trial = Trial()
    ACTIVE[name](trial)
    is_free = name == "nothing"
    assert trial.found == (is_free, True, is_free, torch.Tensor, "cpu")
    assert trial.values.tolist() == [1.0, 0.0]
    assert is_plain()


def test_a_trace_goes_on_afterwards():
    graph = make_fx(lambda x: Trial()(x))(X)
    assert [node.op for node in graph.graph.nodes] == ["placeholder", "call_function", "output"]
    traced = torch.jit.trace(lambda x: Trial()(x), X, check_trace=False)
    torch.testing.assert_close(traced(X * 3), X * 6)


def test_errors_leave_everything_as_it_was():
    def fail(x):
        with plain_torch():
            raise KeyError("within")

    for name in ("trace", "vmap"):
        with pytest.raises(KeyError, match="within"):
            ACTIVE[name](fail)
        assert is_plain()


def test_what_records_is_named():
    assert is_plain_for("here")
    with torch.device("meta"):
        assert not is_plain_for("here")
    with FakeTensorMode(), pytest.raises(Error, match=r"\[here\] .*within a FakeTensorMode"):
        is_plain_for("here")
