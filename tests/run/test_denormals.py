"""Numbers below the smallest normal one count as 0 while a program runs, on all threads."""

import pytest
import torch

from poptorch import Error
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


def test_unknown_switch(monkeypatch):
    monkeypatch.setenv("POPTORCH_OFF", "flush_denormal")
    with pytest.raises(Error, match='"flush_denormal", which turns nothing off. The names are: '
                                    ".*flush_denormals.*simplify"):
        Driver(SCALE)
