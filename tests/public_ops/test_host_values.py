"""CPU: what goes into a function of the host and comes out: structures, types, layouts."""

import pytest
import torch

import poptorch
from tests.helpers import quiet_options


def test_values_and_types():
    class Ranks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.ranks = poptorch.CPU(self.find, "ranks")

        def find(self, parts):
            x = parts["x"].numpy()
            assert str(x.dtype) == "float64" and parts["i"].dtype is torch.int64
            order = torch.from_numpy(x.argsort())
            return {"order": order, "top": (torch.from_numpy(x).max(), None), "i": parts["i"] + 1}

        def forward(self, x, i):
            return self.ranks({"x": x.double(), "i": i})

    model = poptorch.inferenceModel(Ranks(), quiet_options())
    found = model(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([7]))
    assert found["order"].tolist() == [1, 2, 0] and found["i"].tolist() == [8]
    assert found["top"][0].item() == 3 and found["top"][1] is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.bool, torch.uint8])
def test_other_dtypes(dtype):
    class Twice(torch.nn.Module):
        def forward(self, x):
            return poptorch.CPU(lambda x: torch.stack([x, x]), "twice")(x)

    x = torch.randn(5).to(dtype) if dtype.is_floating_point else torch.tensor([1, 0, 1]).to(dtype)
    found = poptorch.inferenceModel(Twice(), quiet_options())(x)
    assert found.dtype is dtype and torch.equal(found, torch.stack([x, x]))


@pytest.mark.parametrize("asks", [False, True])
def test_results_lie_in_memory_as_in_eager(asks):
    """`as_strided` and `reshape` go by it."""
    def doubled(x):
        return x * (2 if asks and x.sum().item() > 1e9 else 3)

    class Strided(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.host = poptorch.CPU(doubled, "doubled")

        def forward(self, x):
            y = self.host(x.t() + 1)
            return y.as_strided((3, 2), (1, 3), 1), self.host(x[:, ::2]).reshape(-1)

    x = torch.randn(3, 4)
    model = poptorch.inferenceModel(Strided(), quiet_options())
    torch.testing.assert_close(model(x), Strided()(x))


def test_results_that_int32_cannot_hold():
    class Net(torch.nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.op = poptorch.CPU(lambda x: x.long() * factor, "scaled")

        def forward(self, x):
            return self.op(x)

    fits = poptorch.inferenceModel(Net(2**30), quiet_options())(torch.ones(2))
    assert fits.tolist() == [2**30] * 2
    with pytest.raises(poptorch.Error, match=r"result 0 of scaled.*2147483648.* does not fit into"):
        poptorch.inferenceModel(Net(2**31), quiet_options())(torch.ones(2))
