"""Settings that change what ops cost. Each test fails if its setting is ignored."""

import pytest
import torch
from torch import nn

import poptorch
from poptorch import _C, MultiConv, MultiConvPlanType
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


class Small(nn.Module):
    """Two small convolutions, the results of which are live at the same time."""

    def __init__(self, multi=None):
        super().__init__()
        self.one, self.two = (nn.Conv2d(2, 4, 1, bias=False) for _ in range(2))
        self.multi = multi

    def forward(self, x):
        if self.multi is None:
            return self.one(x) + self.two(x)
        with self.multi:
            return self.one(x) + self.two(x)


def fullest_tile(module, options=None):
    """Bytes of the fullest tile, without gaps."""
    options = options or quiet_options()
    model = poptorch.inferenceModel(module, options)
    model.compile(torch.zeros(1, 2, 3, 3))
    rows = _C.tile_memory(model.ir("place"), target_of(options), settings_of(options))
    return rows[0]["peak_without_gaps"]


def test_dithering_lowers_the_fullest_tile():
    options = quiet_options()
    options.Training.setConvolutionDithering(True)
    assert fullest_tile(Small(), options) < fullest_tile(Small())


def test_dithering_of_a_multi_convolution():
    plain, dithered = (fullest_tile(Small(MultiConv().enableConvDithering(value)))
                       for value in (False, True))
    assert dithered < plain


def test_partials_of_a_multi_convolution():
    serial = MultiConvPlanType.Serial
    found = [[c["cycles"] for c in together(MultiConv().planType(serial).partialsTypes(types))
              if c["op"] in ("convolution", "float16_partials_matmul")]
             for types in (torch.float32, [torch.float16, torch.float32], torch.float16)]
    wide, one, half = found
    assert one[0] < wide[0] and one[1] == wide[1]
    assert half[0] == one[0] and half[1] < wide[1]


@pytest.mark.parametrize("layer", [
    nn.Conv2d(64, 32, 3, padding=1, stride=2, bias=False),
    nn.Conv1d(16, 32, 5, groups=2, bias=False),
    nn.ConvTranspose2d(32, 64, 2, stride=2, bias=False)])
def test_half_partials_of_convolutions(layer):
    """The program has products, for the sake of the numbers; the costs are those of convolutions,
    with partial sums of 2 bytes."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer.half()

        def forward(self, x):
            y = self.layer(torch.relu(x))
            return y, poptorch.identity_loss(y.float(), "mean")

    x = torch.zeros(4, layer.in_channels, *[28] * len(layer.kernel_size)).half()
    costs, memory = [], []
    for partials in (torch.float32, torch.float16):
        options = quiet_options()
        options.Precision.setPartialsType(partials)
        net = Net()
        model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.1))
        model.compile(x)
        text, settings = model.ir("place"), {**settings_of(options), "half_partials": True}
        costs.append(_C.op_costs(text, "gc200", settings))
        memory.append(_C.tile_memory(text, "gc200", settings)[0]["categories"])
    whole, parts = costs
    forward = [cycles(whole, "convolution"), next(
        c["cycles"] for c in parts if c["op"] == "float16_partials_matmul")]
    assert forward[1] == pytest.approx(forward[0])
    # The gradients are one op, or one product each.
    assert cycles(parts, "float16_partials_matmul") == pytest.approx(
        cycles(whole, "convolution", "convolution_backward"), rel=0.2)
    assert cycles(parts, "cat", "constant_pad_nd", "slice_backward", "contiguous") == 0
    assert memory[1]["activations"] <= 1.1 * memory[0]["activations"]
