"""The two lists of passes: what stands before place is for any target, what comes after for one."""

import re

import pytest
import torch

import poptorch
from poptorch import _C
from tests.helpers import ROOT, quiet_options
from tests.networks.zoo import NETWORKS, build

LOWERED = {row["name"] for row in _C.op_table() if row["lowered"]}


@pytest.mark.parametrize("folder", ["rewrite", "place"])
def test_what_precedes_lowering_names_no_kernel(folder):
    for path in (ROOT / "csrc" / folder).glob("*"):
        text = path.read_text()
        if path.name != "fold.cpp":  # it computes with the kernels, whatever they are
            header = r'#include "ops/(kernel|layout|evaluate|families/fused)\.h"'
            assert not re.search(header, text), path
        named = set(re.findall(r"ir::op::(\w+)", text)) & LOWERED
        assert not named, (path, named)


def test_every_pass_is_in_its_pipeline():
    names = [name for name, _ in _C.passes()]
    rewrite, lower = set(_C.pipeline("rewrite")), set(_C.pipeline("lower"))
    assert set(names) == rewrite | lower and len(names) == len(set(names))
    assert names.index("views") > max(names.index(name) for name in rewrite)
    assert _C.pipeline() == _C.pipeline("rewrite") + _C.pipeline("lower")
    with pytest.raises(poptorch.Error, match='"place" has no passes.*rewrite and lower'):
        _C.pipeline("place")


def ops_of(text):
    return set(re.findall(r"^  (?:[^=\n]* = )?(\w+)\b", text, flags=re.MULTILINE))


@pytest.mark.sampled
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("training", [True, False])
def test_only_lowering_makes_lowered_ops(name, training, seed):
    network = build(name, seed)
    batch = network.batches(1, seed)[0]
    model = poptorch.trainingModel(network.module, quiet_options()) if training else \
        poptorch.inferenceModel(network.module.eval(), quiet_options())
    model.compile(*batch)
    for step in ("translate", "rewrite", "place"):
        assert not ops_of(model.ir(step)) & LOWERED, step
    assert ops_of(model.ir("lower")) & LOWERED


def test_the_limit_counts_both_lists(monkeypatch):
    rewrite = len(_C.pipeline("rewrite"))
    place = rewrite + _C.pipeline("lower").index("views")
    x = torch.randn(3, 4)
    for limit, has_views in ((0, False), (rewrite, False), (place, False), (place + 1, True)):
        monkeypatch.setenv("POPTORCH_PASS_LIMIT", str(limit))
        model = poptorch.inferenceModel(torch.nn.Linear(4, 2), quiet_options())
        model(x)
        assert ("view" in ops_of(model.ir("lower"))) is has_views, limit
        assert "view" not in ops_of(model.ir("place"))
