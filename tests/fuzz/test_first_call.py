"""Arguments that no program takes, at the first call: refused by name, with what to do."""

import itertools
import warnings

import numpy
import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.fuzz.judge import attempt, budget
from tests.helpers import quiet_options


class Unsure:
    """Cannot be measured or compared."""

    def __len__(self):
        raise KeyError("no length")

    def __eq__(self, other):
        raise KeyError("no comparison")

    __hash__ = None


def strange():
    """Kinds of argument, and a word of what the message must say; None: it is a constant."""
    items, table = [torch.ones(2)], {}
    items.append(items)
    table["again"] = [table]
    return {
        "meta": (torch.empty(2, device="meta"), "on meta"),
        "sparse": (torch.eye(2).to_sparse(), "torch.sparse_coo"),
        "csr": (torch.eye(2).to_sparse_csr(), "torch.sparse_csr"),
        "nested": (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "nested"),
        "quantized": (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8), "quint8"),
        "complex": (torch.ones(2, dtype=torch.complex64), None),
        "float8": (torch.ones(2).to(torch.float8_e5m2), "float8_e5m2"),
        "numpy": (numpy.ones(2), "numpy"),
        "list in itself": (items, "holds itself"),
        "dict in itself": (table, "holds itself"),
        "generator": (itertools.count(), "not a supported container"),
        "set": ({1, 2}, None), "bytes": (b"\0\xff", None),
        "range": (range(3), None), "NaN": (float("nan"), None), "unsure": (Unsure(), None),
        "class": (torch.nn.Linear, None), "long": (2**200, None),
        "scalar": (numpy.float32(1), None),
        "parameter": (torch.nn.Parameter(torch.ones(2)), None), "empty": (torch.ones(0), None),
    }


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch calls some kinds of tensor new, others old
    STRANGE = strange()
WRAPPERS = {"plain": lambda x: x, "list": lambda x: [x], "dict": lambda x: {"inner": x},
            "deep": lambda x: ({"a": [x]},)}


class First(torch.nn.Module):
    """Uses its first argument and lets the other be."""

    def forward(self, x, strange=None):
        return x + 1


@budget(90)
@given(st.sampled_from(sorted(STRANGE)), st.sampled_from(sorted(WRAPPERS)), st.booleans())
def test_strange_arguments(kind, wrapper, by_name):
    value, word = STRANGE[kind]
    value = WRAPPERS[wrapper](value)
    model = poptorch.inferenceModel(First(), quiet_options())
    x = torch.ones(2)
    args, kwargs = ((x,), {"strange": value}) if by_name else ((x, value), {})
    result, error = attempt(model, *args, **kwargs)
    if word is None:
        assert error is None and torch.equal(result, x + 1), error
        attempt(model, *args, **kwargs)  # the same, or another: told apart without an accident
        return
    assert isinstance(error, poptorch.Error), f"{kind}: {error}"
    assert word in str(error) and "strange" in str(error), error
    assert not model.isCompiled() and torch.equal(model(x), x + 1)
