"""The algorithm that computes an op is in the planned text, and is chosen again from it."""

import re

import torch

import poptorch
from poptorch import _C
from tests import helpers

TEXT = """graph main {
  %x = stream_in {stream="x"} : f32[2,16,12,12]
  %w = stream_in {stream="w"} : f32[16,16,3,3]
  %y = convolution %x, %w, _ {GEOMETRY} : f32[2,16,12,12]
  %z = relu %y : f32[2,16,12,12]
  stream_out %z {stream="z"}
  output
}
""".replace("GEOMETRY", "dilation=[1, 1], groups=1, output_padding=[0, 0], padding=[1, 1], "
                        "stride=[1, 1], transposed=false")


def algorithms(text):
    return re.findall(r' = (\w+) .*algorithm="([^"]*)"', text)


def test_the_planned_text_has_names_and_is_read_back():
    text = _C.compile(_C.parse(TEXT)).ir("plan")
    assert [op for op, _ in algorithms(text)] == ["convolution"]
    assert _C.parse(text).text() == text


def test_a_planned_text_is_given_the_algorithms_of_the_machine_that_reads_it(monkeypatch):
    monkeypatch.setenv("POPTORCH_ALGORITHM", "conv:onednn")
    text = _C.compile(_C.parse(TEXT)).ir("plan")
    assert algorithms(text) == [("convolution", "onednn")]
    for other in ('algorithm="of another machine"', "algorithm=3", 'algorithm="x y" '):
        changed = text.replace('algorithm="onednn"', other.strip())
        assert _C.assemble_text(changed).ir("plan") == text
    monkeypatch.delenv("POPTORCH_ALGORITHM")
    chosen = _C.assemble_text(text).op_report(True)["forward"]
    assert chosen == _C.compile(_C.parse(TEXT)).op_report(True)["forward"]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(16, 16, 3), torch.nn.Conv2d(16, 16, 3)

    def forward(self, x):
        y = self.second(torch.relu(self.first(x)))
        return y, poptorch.identity_loss(y * y, "mean")


def test_reports_and_profiles(monkeypatch):
    monkeypatch.setenv("POPTORCH_ALGORITHM", "conv:im2col,conv:winograd,conv:onednn")
    model = poptorch.trainingModel(Net(), helpers.quiet_options())
    model.compile(torch.randn(2, 16, 9, 9))
    names = model.op_report(algorithms=True)
    assert names["backward"]["convolution_backward [dw=im2col dx=winograd]"] == 1
    assert names["backward"]["convolution_backward [dw=onednn]"] == 1  # of mixed layouts
    assert names["forward"]["convolution [winograd]"] == 1
    assert names["forward"]["relu"] == model.op_report()["forward"]["relu"] == 1
    executable = model._executable
    executable.set_profiling(True)
    model(torch.randn(2, 16, 9, 9))
    rows = {(row["op"], row["algorithm"]) for row in executable.profile()}
    assert ("convolution", "winograd") in rows and ("relu", "") in rows
    report = model.memory_report()
    assert 0 < report["scratch [winograd]"] <= report["arena"]
