"""Numbers below the smallest normal one count as 0 while a program runs, on all threads."""

import pytest
import torch

from poptorch import Error
from tests.helpers import run_python
from tests.run.drive import Driver

TINY = 1e-39
LARGE = 1 << 17  # elements: enough for several threads

SCALE = f"""
graph main {{
  %x = stream_in {{stream="x"}} : f32[{LARGE}]
  %ours = add %x, %x : f32[{LARGE}]
  %opaque = aten %x {{args=["%0"], overload="aten::neg"}} : f32[{LARGE}]
  stream_out %ours {{stream="ours"}}
  stream_out %opaque {{stream="opaque"}}
  output
}}
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_they_are_flushed(threads):
    driver = Driver(SCALE, threads=threads)
    out = driver(x=torch.full([1, LARGE], TINY))
    assert not out["ours"].any()
    # The calling program's own mode is as it was, on its threads too.
    assert (torch.full([LARGE], TINY) * 2).all()


def test_it_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("POPTORCH_OFF", "flush_denormals")
    out = Driver(SCALE, threads=2)(x=torch.full([1, LARGE], TINY))
    assert out["ours"].all() and out["opaque"].all()


@torch.library.custom_op("poptorch_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    """Code of the user's, in a library of operators."""
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


INNER = []  # a program that `through_inner` runs


@torch.library.custom_op("poptorch_tests::through_inner", mutates_args=())
def through_inner(x: torch.Tensor) -> torch.Tensor:
    """User code that runs a program inside the run of another program."""
    return INNER[-1](x=x[None])["ours"][0].clone()


@through_inner.register_fake
def _(x):
    return torch.empty_like(x)


USERS = """
graph main {{
  %x = stream_in {{stream="x"}} : f32[{n}]
  %users = aten %x {{args=["%0"], overload="poptorch_tests::{op}"}} : f32[{n}]
  %ours = add %x, %x : f32[{n}]
  stream_out %users {{stream="users"}}
  stream_out %ours {{stream="ours"}}
  output
}}
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_code_of_the_user_computes_with_them(threads):
    driver = Driver(USERS.format(n=LARGE, op="twice"), threads=threads)
    out = driver(x=torch.full([1, LARGE], TINY))
    assert out["users"].all()
    assert not out["ours"].any()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_program_within_a_run_has_its_own_mode(threads, monkeypatch):
    outer = Driver(USERS.format(n=LARGE, op="through_inner"), threads=threads)
    monkeypatch.setenv("POPTORCH_OFF", "flush_denormals")
    INNER.append(Driver(SCALE, threads=threads))
    out = outer(x=torch.full([1, LARGE], TINY))
    assert out["users"].all()
    assert not out["ours"].any()
    monkeypatch.undo()
    INNER.append(Driver(SCALE, threads=threads))
    assert not outer(x=torch.full([1, LARGE], TINY))["users"].any()


# In a process of its own: which threads the pool has, and who started them, is part of it.
POOL = """
import torch

import poptorch


class Net(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def called(function, x, threads):
    torch.set_num_threads(threads)
    options = poptorch.Options().showCompilationProgressBar(False)
    poptorch.inferenceModel(Net(function), options)(x)


def flushed(threads):
    torch.set_num_threads(threads)
    torch.ones(1 << 20).div_(0)  # ends the process if the processor traps it
    return int((torch.full([1 << 20], 1e-40) * 0.5 == 0).sum())

"""


@pytest.mark.sampled
def test_threads_that_a_program_starts_do_not_flush_afterwards():
    run = "called(lambda x: (x * 2).softmax(-1), torch.ones(1000, 1000), {0}); print(flushed({0}))"
    for threads in (2, 4):
        assert run_python(POOL + run.format(threads)).split() == ["0"]


@pytest.mark.sampled
def test_threads_that_a_library_starts_have_a_mode():
    """Its regions may have fewer threads, so that some end, and others begin afterwards."""
    run = """
solve = lambda x: torch.linalg.solve(x.mT, x[..., :2])
for threads in (1, 2, 3, 2, 4, 1, 3):
    called(solve, torch.randn(129, 17, 17) + 9 * torch.eye(17), threads)
    print(flushed(threads), flushed(5 - threads))
"""
    assert set(run_python(POOL + run).split()) == {"0"}


def test_unknown_switch(monkeypatch):
    monkeypatch.setenv("POPTORCH_OFF", "flush_denormal")
    with pytest.raises(Error, match='"flush_denormal", which turns nothing off. The names are: '
                                    ".*flush_denormals.*simplify"):
        Driver(SCALE)
