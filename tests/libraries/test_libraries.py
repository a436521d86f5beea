"""``make libraries`` judges models; here it is judged itself, without the library."""

from unittest import mock

import pytest
import torch
from torch import nn

import poptorch
from tests.libraries.__main__ import judged, main
from tests.libraries.models import MODELS, REFUSED
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
    assert judged(lambda: network(nn.BatchNorm1d(3), nn.ReLU()), seed) == ""


def test_a_difference_is_told(seed):
    assert "tensors differ" in judged(lambda: network(Biased()), seed)


def test_a_refusal_is_told_unless_it_is_expected(seed):
    assert judged(lambda: network(Decided()), seed, "needs the value") == ""
    for expected in (None, "complex"):
        assert "needs the value" in judged(lambda: network(Decided()), seed, expected)
    assert "was to be refused" in judged(network, seed, "needs the value")


def test_models_have_labels_last_and_a_configuration():
    for model in MODELS.values():
        assert list(model.inputs)[-1] == "labels" and model.configuration.endswith("Config")
        made = {name: make(torch.Generator()) for name, make in model.inputs.items()}
        assert {len(x) for x in made.values()} == {2}
    assert REFUSED.keys() <= MODELS.keys()


def test_the_exit_status_and_the_summary(capsys):
    wrong = {"LlamaForCausalLM": "another"}
    with mock.patch("tests.libraries.__main__.judged", lambda build, *_: wrong.get(
            build.__self__.name, "")):
        with mock.patch("sys.argv", ["libraries", "Llama", "Bert"]):
            assert main() == 1
        with mock.patch("sys.argv", ["libraries", "GPT"]):
            assert main() == 0
    out = capsys.readouterr().out
    assert "LlamaForCausalLM: another" in out and "1 not as in eager" in out
    with mock.patch("sys.argv", ["libraries", "Nothing"]), pytest.raises(SystemExit, match="Bert"):
        main()
