"""Ordinary networks have no opaque op; how many ops they have of each name is golden."""

from pathlib import Path

import pytest

import poptorch
from tests.helpers import check_golden
from tests.networks import harness
from tests.networks.zoo import build

ORDINARY = ["digits_convnet", "resnet", "bert_encoder", "gpt_decoder", "lstm_tagger", "unet"]
# Those with dropout a second time with it on, so that its ops are counted too.
CASES = [(name, False) for name in ORDINARY] + [
    (name, True) for name in ORDINARY if name not in ("resnet", "unet")
]


def _report(name, is_random):
    network = build(name, 0)
    if is_random:
        network = build(name, 0, **network.random)
    optimizer = network.make_optimizer(list(network.module.parameters()))
    model = poptorch.trainingModel(network.module, harness.options_for(network), optimizer)
    model.compile(*network.batches(1, 0)[0])
    return model.op_report()


def _text(report):
    lines = []
    for phase in sorted(report):
        lines.append(f"{phase}:")
        lines += [f"  {op} {count}" for op, count in sorted(report[phase].items())]
    return "\n".join(lines) + "\n"


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "is_random"), CASES)
def test_nothing_is_opaque(name, is_random, update):
    report = _report(name, is_random)
    opaque = [f"{phase}: {op}" for phase in report for op in report[phase] if "aten" in op]
    assert not opaque
    stem = name + ("_random" if is_random else "")
    check_golden(Path(__file__).parent / "op_report" / f"{stem}.txt", _text(report), update)
