"""``make libraries`` judges models; here it is judged itself, without the libraries."""

import re
from unittest import mock

import pytest
import torch
from torch import nn

import poptorch
from tests.libraries import catalogue, models, page
from tests.libraries.__main__ import judged, main, measured, outcome
from tests.networks.zoo.base import Network, WithLoss, integers, normal, sgd


class Biased(nn.Module):
    """A result that poptorch gets other than eager does."""

    def forward(self, x):
        return x + 1e-3 if poptorch.isRunningOnIpu() else x


class Decided(nn.Module):
    """A value decides what is computed."""

    def forward(self, x):
        return x if x.sum() > 0 else -x


def network(*layers):
    module = WithLoss(nn.Sequential(nn.Linear(4, 3), *layers), nn.CrossEntropyLoss())
    return Network(module, lambda g: (normal(g, 2, 4), integers(g, 3, 2)), sgd())


def test_what_is_as_in_eager(seed):
    assert outcome(lambda: network(nn.BatchNorm1d(3), nn.ReLU()), seed) == ("passes", "")
    assert judged("passes", "") == ""
    assert "was to be refused" in judged("passes", "", "needs the value")


def test_a_difference_is_told(seed):
    result, reason = outcome(lambda: network(Biased()), seed)
    assert result == "differs" and "tensors differ" in judged(result, reason)


def test_a_refusal_is_told_unless_it_is_expected(seed):
    result, reason = outcome(lambda: network(Decided()), seed)
    assert result == "refused" and judged(result, reason, "needs the value") == ""
    for expected in (None, "complex"):
        assert "needs the value" in judged(result, reason, expected)


def test_another_exception_is_a_failure(seed):
    class Wrong(nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    assert outcome(lambda: network(Wrong()), seed) == ("fails", "KeyError: 'mine'")


def test_what_is_measured(seed):
    row = measured(network, seed)
    assert row["eager_ms"] > 0 and row["ours_ms"] > 0 and row["opaque"] == 0


def test_the_page_and_its_rows():
    rows = {"GCN": {"result": "passes", "reason": "", "eager_ms": 3.0, "ours_ms": 0.5,
                    "opaque": 0.25},
            "Swin": {"result": "refused", "reason": "[a] x | y\n  at net.py:3"}}
    text = page.text(rows)
    assert "1 of 2 small models" in text and "training steps, in ms" in text
    assert "| GCN | passes | 25% | 3.00 | 0.50 | 6.0 |  |" in text
    assert "| Swin | refused |  |  |  |  | [a] x / y |" in text
    untimed = page.text({"GCN": {"result": "passes", "reason": "", "opaque": 0.25}})
    assert "| GCN | passes | 25% |  |" in untimed and " ms" not in untimed
    committed = page.PAGE.read_text()
    names = re.findall(r"^\| ([\w ]+) \| (?:passes|refused|differs|fails) \|", committed, re.M)
    assert set(names) <= set(catalogue.MODELS) and len(catalogue.MODELS) >= 100


def test_models_have_labels_last_and_a_configuration():
    for model in models.MODELS.values():
        assert list(model.inputs)[-1] == "labels" and model.configuration.endswith("Config")
        made = {name: make(torch.Generator()) for name, make in model.inputs.items()}
        assert {len(x) for x in made.values()} == {2}
    assert catalogue.REFUSED.keys() <= catalogue.MODELS.keys()


def test_the_exit_status_and_the_summary(capsys):
    wrong = {"LlamaForCausalLM": ("differs", "another")}
    with mock.patch("tests.libraries.__main__.outcome", lambda build, *_: wrong.get(
            build.__self__.name, ("passes", ""))), \
            mock.patch("tests.libraries.__main__.REFUSED", {}):
        with mock.patch("sys.argv", ["libraries", "Llama", "Bert"]):
            assert main() == 1
        with mock.patch("sys.argv", ["libraries", "GPT"]):
            assert main() == 0
    out = capsys.readouterr().out
    assert "LlamaForCausalLM: another" in out and "1 not as in eager" in out
    with mock.patch("sys.argv", ["libraries", "Nothing"]), pytest.raises(SystemExit, match="Bert"):
        main()
