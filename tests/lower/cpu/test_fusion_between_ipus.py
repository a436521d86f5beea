"""No op is computed together with one of another IPU: each runs where its block says."""

import collections
import re

import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.fuzz.judge import budget
from tests.helpers import quiet_options

CHANNELS, IPUS = 16, 3
# What passes join with the op before it, and what they join it to.
NAMES = ["add", "batch_norm", "convolution", "hardswish", "mul", "relu", "silu", "tanh"]
MODULES = {"convolution": lambda: torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
           "batch_norm": lambda: torch.nn.BatchNorm2d(CHANNELS)}
# An op that makes images.
LINE = re.compile(r"^  (?:%.* = )?(\w+) (.*?) \{(.*)\} : \w+\[2,", re.M)


class Layers(torch.nn.Module):
    """Layers of images, each in a block of its own on the IPU that ``rows`` gives."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows
        self.layers = torch.nn.ModuleList(
            MODULES.get(name, torch.nn.Identity)() for name, _ in rows)

    def forward(self, x):
        first = x
        for number, ((name, ipu), layer) in enumerate(zip(self.rows, self.layers)):
            poptorch.Block.start(str(number), ipu_id=ipu)
            if name in ("add", "mul"):
                x = getattr(torch, name)(x, first)
            elif name in MODULES:
                x = layer(x)
            elif name == "tanh":
                x = torch.tanh(x)
            else:
                x = getattr(torch.nn.functional, name)(x)
        return x, poptorch.identity_loss(x.float(), "mean")


def parts_of(op, operands, attrs):
    """The names of the ops that an op of a lowered program computes."""
    if op == "fused":
        return re.findall(r'\["(\w+)"', attrs)
    added = {"batch_norm": operands[5:6], "packed_convolution": operands[3:4]}.get(op, [])
    names = [op.removeprefix("packed_").removesuffix("_inference")]
    names += ["add" for operand in added if operand != "_"]
    activation = re.search(r'\bactivation="(\w+)"', attrs)
    if activation and activation[1] != "none":
        names.append(activation[1])
    return [*names, "relu"] if "relu=true" in attrs else names


def forward_ops(text):
    """How many ops of each name the forward pass has on each IPU, those within others too."""
    found = collections.Counter()
    for op, operands, attrs in LINE.findall(text):
        if 'part="forward"' in attrs:
            ipu = re.search(r"\bipu=(\d+)", attrs)[1]
            found.update((name, ipu) for name in parts_of(op, operands.split(", "), attrs)
                         if name in NAMES)
    return found


LAYERS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, IPUS - 1)),
                  min_size=2, max_size=8)


@budget(20)
@given(LAYERS, st.sampled_from([torch.float32, torch.bfloat16, torch.float16]), st.booleans())
def test_no_op_moves_to_another_ipu(rows, dtype, is_training):
    options = quiet_options(setExecutionStrategy=poptorch.ShardedExecution(),
                            autoRoundNumIPUs=True)
    net = Layers(rows).to(dtype)
    model = poptorch.trainingModel(net, options) if is_training else \
        poptorch.inferenceModel(net.eval(), options)
    model.compile(torch.ones(2, CHANNELS, 8, 8, dtype=dtype))
    placed = forward_ops(model.ir("place"))
    assert not placed - collections.Counter((name, str(ipu)) for name, ipu in rows)
    assert forward_ops(model.ir("lower")) == placed
    model.destroy()


def test_what_is_joined_on_one_ipu():
    """The names within an op are found: on one IPU these are one op, on two they are not."""
    found = []
    for ipus in ((0, 0, 0), (0, 1, 1), (0, 1, 0)):
        options = quiet_options(setExecutionStrategy=poptorch.ShardedExecution())
        rows = list(zip(("convolution", "add", "relu"), ipus))
        model = poptorch.inferenceModel(Layers(rows).eval(), options)
        model.compile(torch.ones(2, CHANNELS, 8, 8))
        text = model.ir("lower")
        found.append(("packed_convolution" in text, 'activation="relu"' in text))
        assert forward_ops(text) == forward_ops(model.ir("place")) == collections.Counter(
            (name, str(ipu)) for name, ipu in rows)
    assert found == [(True, True), (True, False), (True, False)]
