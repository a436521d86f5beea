"""The index of what is done with a call of torch."""

import re

import pytest
import torch

import poptorch.__main__ as tool
from poptorch._base.torch_private import tracing as private
from poptorch._capture.functions import (
    attention,
    ctc,
    index,
    layers,
    mixed_precision,
    others,
    recurrent,
)
from poptorch._capture.record import input_layouts
from poptorch._translate import call_routes
from poptorch.errors import Error
from tests.helpers import ROOT

aten = torch.ops.aten


def steps(overload):
    return {step.step: step.what for step in call_routes.steps_of(overload)}


def test_a_step_for_each_kind():
    assert steps(aten.detach.default) == {
        "record": "gives another name to the same values: no node"}
    assert steps(aten.linear.default) == {"record": "decomposed by PyTorch (a composite operation)"}
    assert steps(aten.addcmul.default) == {"record": "decomposed"}
    assert "written back" in steps(aten.addcmul_.default)["record"]
    assert steps(aten.nonzero.default)["record"].startswith("refused")
    assert steps(aten.as_strided.default) == {"record": "handled while it is recorded"}
    assert steps(aten.leaky_relu_.default) == {
        "record": "recorded", "functionalize": "becomes aten.leaky_relu.default",
        "translate": "the op leaky_relu"}
    assert steps(aten.permute.default)["functionalize"].startswith("a view; a write to it changes")
    assert steps(aten.cholesky_inverse.default)["translate"].startswith("opaque")
    assert "random generator" in steps(aten.rand.default)["record"]


def test_every_operation_of_aten_has_its_steps():
    count = 0
    for name in dir(aten):
        packet = getattr(aten, name)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            for overload in private.overloads_of(packet):
                count += 1
                assert call_routes.steps_of(overload), overload
    assert count > 1000


def test_the_places_are_those_of_the_code():
    places = [step.where for overload in (aten.addcmul.default, aten.add.Tensor, aten.select.int,
                                          aten.as_strided.default)
              for step in call_routes.steps_of(overload) if step.where]
    assert len(places) >= 4
    for place in places:
        file, line, function = re.fullmatch(r"(.*):(\d+) (.*)", place).groups()
        code = (ROOT / file).read_text().splitlines()[int(line) - 1:]
        assert function == "<lambda>" or any(f"def {function}" in text for text in code[:4]), place


def test_no_function_has_two_handlers():
    tables = [attention, ctc, index, input_layouts, layers, mixed_precision, others, recurrent]
    entered = [function for table in tables for function in table.HANDLERS]
    assert len(entered) == len(set(entered))


def test_the_command(capsys):
    assert tool.main(["how", "dropout"]) == 0
    text = capsys.readouterr().out
    assert "torch.nn.functional.dropout\n  function: handled while forward runs" in text
    assert "aten.dropout.default" in text
    assert tool.main(["how", "no_such_thing"]) == 1
    assert "'no_such_thing' is not known: it is neither a function" in capsys.readouterr().err
    with pytest.raises(Error, match="nor an operation of ATen"):
        call_routes.described("aten.add.NoSuchOverload")


@pytest.mark.parametrize(("name", "first", "among"), [
    ("softmax", "softmax: supported", "aten.softmax.int"),
    ("torch.nn.functional.gelu", "gelu: supported", "aten.gelu.default"),
    ("aten.add.Tensor", "aten.add.Tensor: supported", "aten.add.Tensor"),
    ("dropout", "dropout: supported", "torch.nn.functional.dropout"),
    ("nn.Conv2d", "torch.nn.Conv2d: poptorch traces its forward", "conv2d: supported"),
    ("LSTM", "torch.nn.LSTM: poptorch traces its forward", "lstm: supported"),
    ("BatchNorm2d", "torch.nn.BatchNorm2d: poptorch traces its forward", "batch_norm: supported"),
    ("CrossEntropyLoss", "torch.nn.CrossEntropyLoss: poptorch", "cross_entropy_loss: supported"),
    ("Transformer", "torch.nn.Transformer: poptorch traces its forward", ""),
    ("interpolate", "interpolate: poptorch traces torch's function", ""),
    ("eigvals", "linalg_eigvals: supported", "linalg_eigvals"),
    ("torch.fft.fft", "fft_fft: supported", "aten.fft_fft.default"),
    ("unique_dim", "unique_dim: not supported: the shape of the result depends on values", ""),
    ("eigvalsh", "linalg_eigvalsh: supported", ""),
])
def test_functions_and_layers(name, first, among, capsys):
    assert tool.main(["how", name]) == 0
    text = capsys.readouterr().out
    assert text.startswith(first) and among in text, text


@pytest.mark.parametrize(("name", "near"), [("softmaxx", "softmax"), ("Conv2", "Conv2d"),
                                            ("nn.LSTN", "LSTM")])
def test_names_that_are_not_known(name, near, capsys):
    assert tool.main(["how", name]) == 1
    err = capsys.readouterr().err
    assert f"{name!r} is not known" in err and "Did you mean" in err and near in err
