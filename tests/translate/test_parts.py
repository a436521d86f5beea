"""Each op of a translated program names the part of the step that it belongs to."""

import re

import pytest
import torch

import poptorch
from tests.helpers import quiet_options
from tests.networks.zoo import NETWORKS, build

PARTS = ["forward", "backward", "update"]
LINE = re.compile(r"^  (?:(?P<results>%.*?) = )?(?P<op>\w+)(?P<operands>(?: [%_][^ ]*)*)"
                  r"(?P<rest>.*)$")


def parts_of(text):
    """``(op, part, parts of the operands that an op makes, line)`` of each op of a program."""
    found, made = [], {}
    for line in text.splitlines():
        if line.startswith("graph "):
            made = {}
        op = LINE.match(line)
        if op is None or op["op"] in ("output", "strategy", "tensor_location"):
            continue
        part = re.search(r'\bpart="(\w+)"', op["rest"])
        operands = re.findall(r"%[^ ,]+", op["operands"])
        found.append((op["op"], part and part[1], [made.get(name) for name in operands], line))
        if operands and op["op"] != "loop":
            made.update(dict.fromkeys((op["results"] or "").split(", "), part[1]))
    return found


def check(text):
    for op, part, read, line in parts_of(text):
        if part is None:  # of a loop over several parts
            assert op == "loop" and re.search("body=@(iteration|micro)", line), line
            continue
        latest = max((PARTS.index(other) for other in read if other), default=0)
        assert PARTS.index(part) >= latest, line


def translated(module, inputs, make_optimizer, **settings):
    model = poptorch.trainingModel(module, quiet_options(**settings),
                                   make_optimizer(list(module.parameters())))
    model.compile(*inputs)
    return model.ir("translate")


@pytest.mark.sampled
@pytest.mark.parametrize("name", NETWORKS)
def test_no_part_reads_what_a_later_one_makes(name, seed):
    network = build(name, seed)
    inputs, = network.batches(1, seed)
    check(translated(network.module.train(), inputs, network.make_optimizer))


class Net(torch.nn.Module):
    """Random numbers, statistics, and a loop with gradients."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)

    def forward(self, x):
        y = torch.dropout(self.norm(self.fc(x)), 0.5, self.training)
        y, = poptorch.for_loop(2, lambda y: [torch.tanh(self.fc(y))], [y])
        return y, poptorch.identity_loss(y.square(), "mean")


OPTIMIZERS = {
    "velocities": lambda parameters: poptorch.optim.SGD(
        parameters, lr=0.1, momentum=0.5, use_combined_accum=True, loss_scaling=2.0),
    "clipped": lambda parameters: poptorch.optim.AdamW(parameters, max_grad_norm=1.0),
    "formula": torch.optim.Adadelta,
}


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_parts(optimizer, accumulation):
    """With what the options put around forward."""
    settings = {"broadcastBuffers": False, "replicationFactor": 2,
                "Training__gradientAccumulation": accumulation}
    text = translated(Net(), [torch.ones(4 * accumulation, 4)], OPTIMIZERS[optimizer], **settings)
    check(text)
    parts = {}
    for op, part, _, line in parts_of(text):
        path = re.search(r'path="([^"]*)"', line)
        parts.setdefault(f"{op} {path[1]}" if op == "assign" else op, set()).add(part)
    assert parts["all_reduce"] == {"backward"}
    assert parts["assign norm.running_mean"] == {"forward"}
    assert parts["assign fc.weight"] == parts["assign rng"] == parts["rng_advance"] == {"update"}
    assert parts["stream_out"] == {"forward"}
    assert parts["loop"] == {None, "forward", "backward"}
    if accumulation > 1:
        assert parts["input"] >= {"backward"} and parts["accumulate"] == {"backward"}


def test_the_update_counts_itself():
    text = translated(Net(), [torch.ones(4, 4)], torch.optim.Adam)
    counts = [part for op, part, _, line in parts_of(text)
              if op == "add" and ".step" in line]
    assert counts == ["update"]
