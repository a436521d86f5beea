"""Variables that choose how to compute hold for a program, not for the process."""

import functools
import json

import pytest

from poptorch import _C
from poptorch.errors import Error
from tests.helpers import run_python

ALL_OFF = ",".join(name for name, _ in _C.switches())
SETTINGS = [
    {},
    {"POPTORCH_OFF": ALL_OFF},
    {"POPTORCH_ISA": "base"},
    {"POPTORCH_GEMM": "loops"},
    {"POPTORCH_ALGORITHM": "conv:onednn"},
    {"POPTORCH_GEMM": "library", "POPTORCH_OFF": "bf16x3_gemm,small_gemm,split_k"},
]
CHILD = """
import hashlib, json, os, sys
import torch
import poptorch
from tests.helpers import quiet_options

torch.manual_seed(0)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(700, 90)
        self.sixteen = torch.nn.Linear(300, 70).bfloat16()
        self.conv = torch.nn.Conv2d(32, 32, 3, padding=1)
        self.lstm = torch.nn.LSTM(16, 32)

    def forward(self, x):
        image = x[:, :512].reshape(-1, 32, 4, 4).repeat(1, 1, 4, 4)
        steps = x[:, :640].reshape(40, -1, 16)
        small = x[:8, :40] @ x[:8, :40].T
        return (self.linear(x), self.sixteen(x[:, :300].bfloat16()).float(), self.conv(image),
                self.lstm(steps)[0], small)

net, x = Net().eval(), torch.randn(64, 700)
names = "POPTORCH_OFF", "POPTORCH_ALGORITHM", "POPTORCH_ISA", "POPTORCH_GEMM"

def use(settings):
    for name in names:
        os.environ.pop(name, None)
    os.environ.update(settings)

def bits(model):
    return [hashlib.sha256(y.numpy().tobytes()).hexdigest() for y in model(x)]

found, models = [], []
for settings in json.loads(sys.argv[1]):
    use(settings)
    models.append(poptorch.inferenceModel(net, quiet_options()))
    found.append(bits(models[-1]))
for i, model in enumerate(models):
    use({"POPTORCH_OFF": "fold", "POPTORCH_ISA": "base"} if i == 0 else {})
    assert bits(model) == found[i], i
print(json.dumps(found))
"""


def found_in_a_process(settings):
    """What programs compiled one after the other with these settings compute, as hashes."""
    code = CHILD.replace("sys.argv[1]", repr(json.dumps(settings)))
    return json.loads(run_python(code, OMP_NUM_THREADS="2").splitlines()[-1])


@functools.cache
def found_together():
    return found_in_a_process(SETTINGS)


@pytest.mark.sampled
@pytest.mark.parametrize("number", range(1, len(SETTINGS)))
def test_programs_of_one_process_have_their_own_settings(number):
    together = found_together()
    assert len({json.dumps(one) for one in together}) > 2
    assert found_in_a_process([SETTINGS[number]]) == [together[number]]


@pytest.mark.parametrize(("name", "value", "words"), [
    ("POPTORCH_ISA", "mmx", '[POPTORCH_ISA] "mmx" is no instruction set'),
    ("POPTORCH_ALGORITHM", "conv:fft", '[POPTORCH_ALGORITHM] "conv:fft" is no algorithm'),
    ("POPTORCH_ALGORITHM", "winograd", '[POPTORCH_ALGORITHM] "winograd" is no algorithm'),
    ("POPTORCH_ALGORITHM", "dft:winograd", '[POPTORCH_ALGORITHM] "dft:winograd" is no'),
    ("POPTORCH_GEMM", "gpu", '[POPTORCH_GEMM] matrix products by "gpu"'),
    ("POPTORCH_OFF", "cse,folds", '[compile] POPTORCH_OFF names "folds"')])
def test_wrong_words_are_refused_by_each_compilation(monkeypatch, name, value, words):
    text = 'graph main {\n  %x = stream_in {stream="x"} : f32[2]\n  stream_out %x {stream="y"}\n' \
           '  output\n}\n'
    planned = _C.compile(_C.parse(text)).ir("plan")
    monkeypatch.setenv(name, value)
    for compiled in (lambda: _C.compile(_C.parse(text)), lambda: _C.assemble_text(planned)):
        with pytest.raises(Error) as error:
            compiled()
        assert str(error.value).startswith(words)
    monkeypatch.delenv(name)
    _C.compile(_C.parse(text))


def test_the_error_for_an_unknown_algorithm_lists_the_names(monkeypatch):
    monkeypatch.setenv("POPTORCH_ALGORITHM", "conv:winograd,conv:fft")
    with pytest.raises(Error) as error:
        _C.compile(_C.parse("graph main {\n  output\n}\n"))
    assert all(f"{family}:{name}" in str(error.value) for family, name, _ in _C.algorithms())
    assert ("conv", "winograd") in {row[:2] for row in _C.algorithms()}
