"""Settings that change what ops cost. Each test fails if its setting is ignored."""

import pytest
import torch
from torch import nn

import poptorch
from poptorch import MultiConv, MultiConvPlanType, _C
from poptorch._device.cost_settings import settings_of, target_of
from tests.device.test_costs import cost, product, unary
from tests.helpers import quiet_options



def placed(module, *inputs, options=None):
    """What the ops of a placed program cost, by the options."""
    options = options or quiet_options()
    model = poptorch.inferenceModel(module, options)
    model.compile(*inputs)
    return _C.op_costs(model.ir("place"), target_of(options), settings_of(options))


def cycles(costs, *names):
    """The cycles of the ops of these names together."""
    return sum(c["cycles"] for c in costs if c["op"] in names)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(16), nn.GroupNorm(4, 16)])
def test_stable_norms_take_longer(norm):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = norm.train()

        def forward(self, x):
            return self.norm(x)

    x = torch.randn(8, 16, 32, 32)
    plain, stable = (placed(Net(), x, options=quiet_options(enableStableNorm=is_on))
                     for is_on in (False, True))
    name = "batch_norm" if isinstance(norm, nn.BatchNorm2d) else "native_group_norm"
    assert cycles(stable, name) > cycles(plain, name) > 0
    assert [c for c in stable if c["op"] != name] == [c for c in plain if c["op"] != name]
    bytes_of = [next(c for c in costs if c["op"] == name)["temporary_bytes"]
                for costs in (plain, stable)]
    assert bytes_of[1] > bytes_of[0]


def test_io_tiles_do_not_compute():
    text = unary("gelu", 4096, 1024)
    found = [cost(text, io_tiles=tiles) for tiles in (0, 32, 192)]
    assert found[0]["cycles"] < found[1]["cycles"] <= found[2]["cycles"]
    assert found[0]["operand_bytes"] < found[1]["operand_bytes"] < found[2]["operand_bytes"]


def test_io_tiles_leave_some_for_computing():
    with pytest.raises(poptorch.Error, match=r"^\[numIOTiles\] 32 I/O tiles leave no tile to "
                                             r"compute: .* \"small\" has 4 tiles\. Use fewer"):
        cost(product(8, 8, 8), "small", io_tiles=32)


def test_replicas_that_an_op_does_not_name():
    text = unary("all_reduce", 4096, attrs='{group_size=0, op="sum", orthogonal=false} ')
    found = [cost(text, replicas=replicas)["cycles"] for replicas in (1, 2, 4, 64)]
    assert found == sorted(found) and len(set(found)) == 4
    named = unary("all_reduce", 4096, attrs='{group_size=4, op="sum", orthogonal=false} ')
    assert cost(named, replicas=64)["cycles"] == found[2]


def test_each_ipu_has_its_proportion():
    text = product(1000, 512, 20000, attrs="{ipu=1} ")
    plain = cost(text)
    assert cost(text, memory_proportion={0: 0.1}) == plain
    less = cost(text, memory_proportion={1: 0.1})
    assert less["temporary_bytes"] < plain["temporary_bytes"]
    assert less["cycles"] > plain["cycles"]


class Pair(nn.Module):
    """Two convolutions, the second of a quarter of the pixels, in a MultiConv of their own."""

    def __init__(self, multi=None):
        super().__init__()
        self.fine = nn.Conv2d(64, 64, 3, padding=1, bias=False).half()
        self.coarse = nn.Conv2d(64, 64, 3, padding=1, bias=False).half()
        self.multi = multi

    def forward(self, x, y):
        if self.multi is None:
            return self.fine(x), self.coarse(y)
        with self.multi:
            return self.fine(x), self.coarse(y)


IMAGES = torch.zeros(4, 64, 28, 28).half(), torch.zeros(4, 64, 14, 14).half()


@pytest.fixture(scope="module")
def alone():
    return cycles(placed(Pair(), *IMAGES), "convolution")


def together(multi):
    return placed(Pair(multi), *IMAGES)


def test_a_parallel_multi_convolution_is_faster(alone):
    parallel = cycles(together(MultiConv()), "convolution")
    assert 0.5 * alone < parallel < 0.9 * alone
    assert cycles(together(MultiConv().planType(MultiConvPlanType.Serial)), "convolution") == alone


def test_cycle_back_off_takes_longer_and_fewer_tiles():
    found = [together(MultiConv().cycleBackOff(share)) for share in (0.0, 0.5, 1.0)]
    times = [cycles(costs, "convolution") for costs in found]
    assert times[0] < times[1] <= times[2]


def test_reserved_tiles_are_never_faster(alone):
    found = [cycles(together(MultiConv().perConvReservedTiles(tiles)), "convolution")
             for tiles in (0, 300, 1400)]
    assert found[0] < found[1] <= found[2] == alone  # two of 1400 have no room


def test_each_convolution_of_a_group_has_its_memory():
    plain, less = together(MultiConv()), together(MultiConv().availableMemoryProportions(
        [0.6, 0.003]))
    bytes_of = [[c["temporary_bytes"] for c in costs if c["op"] == "convolution"]
                for costs in (plain, less)]
    assert bytes_of[1][1] < bytes_of[0][1]
    assert cycles(less, "convolution") > cycles(plain, "convolution")


def test_convolutions_that_need_each_other_are_not_parallel():
    class Chain(Pair):
        def forward(self, x, y):
            with MultiConv():
                return self.coarse(self.fine(x))

    class Plain(Pair):
        def forward(self, x, y):
            return self.coarse(self.fine(x))

    assert placed(Chain(), *IMAGES) == placed(Plain(), *IMAGES)


def test_set_available_memory_acts():
    class Net(nn.Module):
        def __init__(self, share):
            super().__init__()
            self.fc, self.share = nn.Linear(512, 20000, bias=False).half(), share

        def forward(self, x):
            return poptorch.set_available_memory(self.fc(x), self.share)

    x = torch.zeros(256, 512).half()
    more, less = (next(c for c in placed(Net(share), x) if c["op"] == "matmul")
                  for share in (0.6, 0.05))
    assert less["temporary_bytes"] < more["temporary_bytes"] and less["cycles"] > more["cycles"]


@pytest.mark.parametrize("mode", ["InputChannels", "ReducingDim", "OutputChannels"])
def test_a_serialized_product_takes_less_memory(mode):
    cut = getattr(poptorch.MatMulSerializationMode, mode)

    class Net(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1024, 4096).half())
            self.factor = factor

        def forward(self, x):
            return poptorch.serializedMatMul(x, self.weight, cut, self.factor)

    x = torch.zeros(1024, 1024).half()
    products = ("matmul", "addmm")
    costs = [[c for c in placed(Net(factor), x) if c["op"] in products] for factor in (1, 4)]
    assert len(costs[1]) == 4 * len(costs[0])
    assert cycles(costs[1], *products) > cycles(costs[0], *products)
    assert max(c["temporary_bytes"] for c in costs[1]) < costs[0][0]["temporary_bytes"]


def test_dithering_is_kept_for_the_memory_of_tiles():
    options = quiet_options()
    options.Training.setConvolutionDithering(True)
    assert settings_of(options)["dithering"]
