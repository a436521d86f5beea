"""Options.TensorLocations: what is kept off the chip is moved by explicit ops, with its bytes."""

import random
import re

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import check_equal_bits, quiet_options

OFF_CHIP = re.compile(r'%(?:(sum\.\S+) = input|\S+ = state) {.*off_chip=true'
                      r'(?:.*path="([^"]+)")?')
MOVE = re.compile(r"(?P<op>remote_load|remote_store) %(?P<from>[\w.]+) "
                  r"{.*\bbytes=(?P<bytes>\d+)")


class Net(nn.Module):
    """Two layers and their loss: parameters of 24, 6, 12 and 2 elements."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        y = self.second(torch.relu(self.first(x)))
        return y, poptorch.identity_loss(y, "sum")


def off_chip(least=None):
    location = poptorch.TensorLocationSettings().useOnChipStorage(False)
    return location if least is None else location.minElementsForOffChip(least)


def options(strategy=None, **locations):
    opts = quiet_options(deviceIterations=2, autoRoundNumIPUs=True)
    opts.Training.gradientAccumulation(2)
    for name, location in locations.items():
        getattr(opts.TensorLocations, f"set{name}Location")(location)
    return opts if strategy is None else opts.setExecutionStrategy(strategy)


def training(opts, net=None):
    net = net or Net()
    return poptorch.trainingModel(net, opts, torch.optim.Adam(net.parameters(), lr=0.01))


def compiled(**locations):
    model = training(options(**locations))
    model.compile(torch.zeros(12, 4))
    return model


def off_chip_names(model):
    """Paths of states and names of sums in streaming memory, by the placed program."""
    return {found[1] or found[2] for found in OFF_CHIP.finditer(model.ir("place"))}


def moves(model):
    return [(found["op"], found["from"], int(found["bytes"]))
            for found in MOVE.finditer(model.ir("place"))]


WEIGHTS = {"first.weight", "first.bias", "second.weight", "second.bias"}
KINDS = {
    "Weight": WEIGHTS,
    "Optimizer": {f"optimizer.group0.{moment}.{name}" for name in WEIGHTS
                  for moment in ("exp_avg", "exp_avg_sq")},
    "Accumulator": {f"sum.{name}" for name in WEIGHTS},
    "Activation": set(),
}


def test_everything_is_on_the_chip_unless_told():
    model = compiled()
    assert off_chip_names(model) == set() and moves(model) == []
    assert model.memory_report()["transfers"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_moves(kind):
    model = compiled(**{kind: off_chip()})
    assert off_chip_names(model) == KINDS[kind]
    ops = {op for op, _, _ in moves(model)}
    assert ops == {"remote_load", "remote_store"}
    assert model.memory_report()["transfers"] > sum(size for _, _, size in moves(model))


def test_activations_of_inference_stay():
    opts = quiet_options()
    opts.TensorLocations.setActivationLocation(off_chip())
    model = poptorch.inferenceModel(Net(), opts)
    model.compile(torch.zeros(3, 4))
    assert moves(model) == []


@pytest.mark.parametrize(("least", "names"), [
    (0, WEIGHTS), (2, WEIGHTS), (3, WEIGHTS - {"second.bias"}), (24, {"first.weight"}), (25, set()),
])
def test_small_tensors_stay(least, names):
    assert off_chip_names(compiled(Weight=off_chip(least))) == names


def test_bytes_of_one_call():
    """Of each of 2 iterations: 2 micro-batches load a weight twice, the update loads and stores."""
    model = compiled(Weight=off_chip(24))
    size = 4 * 24
    assert {move[2] for move in moves(model)} == {size}
    loads = {"forward": 2, "update": 1, "store": 1}
    assert model.memory_report()["transfers"] == 2 * size * sum(loads.values())


@pytest.mark.parametrize("liveness", poptorch.Liveness)
def test_a_location_goes_before_the_strategy(liveness):
    net = Net()
    for name, layer in (("A", net.first), ("B", net.second)):
        poptorch.BeginBlock(layer, name)
    strategy = poptorch.SerialPhasedExecution(["A"], ["B"]).setTensorsLiveness(liveness)
    on_chip = poptorch.TensorLocationSettings().useOnChipStorage(True)
    model = training(options(strategy, Weight=on_chip, Optimizer=on_chip, Accumulator=on_chip,
                             Activation=on_chip), net)
    model.compile(torch.zeros(12, 4))
    assert off_chip_names(model) == set() and moves(model) == []
    model.destroy()
    plain = training(options(strategy), net)
    plain.compile(torch.zeros(12, 4))
    assert off_chip_names(plain) == set().union(*KINDS.values())


STRATEGIES = [
    None, poptorch.ShardedExecution("A", "B"),
    poptorch.PipelinedExecution(poptorch.Stage("A", "B")),
    poptorch.SerialPhasedExecution(["A"], ["B"]), poptorch.ParallelPhasedExecution(["A"], ["B"])]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_results_stay_the_same_to_the_bit(strategy):
    torch.manual_seed(seed := random.randrange(2**31))
    batches = [torch.randn(12, 4) for _ in range(3)]
    runs = []
    for locations in ({}, {kind: off_chip(random.choice([None, 0, 5])) for kind in KINDS}):
        torch.manual_seed(seed)
        net = Net()
        if strategy is not None:
            poptorch.BeginBlock(net.first, "A")
            poptorch.BeginBlock(net.second, "B")
        model = training(options(strategy, **locations), net)
        results = [model(x) for x in batches]
        runs.append({"results": results, "state": dict(model.state_dict())})
    check_equal_bits(*runs)


@pytest.mark.parametrize(("op", "words"), [
    ('{role="weights"}', r'no kind of tensors "weights". It is one of activation, parameter'),
    ('{role="parameter", storage="disk"}', r'no storage "disk". It is one of strategy, on_chip'),
    ('{load_tiles="all", role="parameter"}', r'no tiles "all". They are compute or io'),
    ('{role="parameter", store_tiles="all"}', r'no tiles "all". They are compute or io'),
])
def test_wrong_text(op, words):
    module = poptorch._C.parse(f"graph main {{\n  tensor_location {op}\n  output\n}}\n")
    with pytest.raises(poptorch.Error, match=words):
        poptorch._C.place(module)


def tiled(tiles=32, **locations):
    opts = options(**locations)
    opts.TensorLocations.numIOTiles(tiles)
    model = training(opts)
    model.compile(torch.zeros(12, 4))
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_io_tiles_load_and_store(kind):
    """Each option acts on the ops of its direction and kind, and on no others."""
    others = {other: off_chip() for other in KINDS if other != kind}
    for op, method in (("remote_load", "useIOTilesToLoad"), ("remote_store", "useIOTilesToStore")):
        location = getattr(off_chip(), method)()
        text = tiled(**others, **{kind: location}).ir("place")
        marked = [line for line in text.splitlines() if 'tiles="io"' in line]
        assert marked and all(f"= {op} " in line for line in marked)
        alone = tiled(**{kind: location}).ir("place").splitlines()
        assert len(marked) == sum(f"= {op} " in line for line in alone)
        assert all('tiles="io"' in line for line in alone if f"= {op} " in line)


@pytest.mark.parametrize("recomputation", list(poptorch.Recomputation))
def test_io_tiles_of_stashes(recomputation):
    """Recomputation makes other stashes, with the tiles of those that it replaces."""
    location = off_chip(1).useIOTilesToLoad().useIOTilesToStore()
    opts = options(poptorch.PipelinedExecution(), Activation=location)
    opts.Training.recomputation(recomputation).gradientAccumulation(3)
    opts.TensorLocations.numIOTiles(32)
    net = Net()
    poptorch.BeginBlock(net.first, "A", ipu_id=0)
    poptorch.BeginBlock(net.second, "B", ipu_id=1)
    model = training(opts, net)
    model.compile(torch.zeros(18, 4))
    edges = [edge for edge in model.schedule().edges if edge.memory == "streaming"]
    assert edges and all(edge.loads_by_io_tiles and edge.stores_by_io_tiles for edge in edges)
    assert all(0 <= edge.stored_bytes <= edge.bytes for edge in edges)


def test_weights_that_io_tiles_load_are_transfers_of_their_tasks():
    model = tiled(Weight=off_chip().useIOTilesToLoad())
    ahead = [(row.task, row.overlap, row.bytes) for row in model.schedule().transfers
             if row.memory == "streaming"]
    loaded = {"forward": 4 * (24 + 6 + 12 + 2), "backward": 4 * 12}
    assert ahead == [(task, "loop", nbytes) for task, nbytes in loaded.items()]
    transfers = tiled(Weight=off_chip()).schedule().transfers
    assert not any(row.memory == "streaming" for row in transfers)


def test_io_tiles_that_are_not_there_are_told_of_once(caplog, monkeypatch):
    monkeypatch.setattr("poptorch.options._group._said", set())
    for _ in range(2):
        assert 'tiles="io"' not in tiled(0, Weight=off_chip().useIOTilesToLoad()).ir("place")
    said = [record.getMessage() for record in caplog.records if "IO tiles" in record.getMessage()]
    assert said == ["[TensorLocationSettings.useIOTilesToLoad] it has no effect: there are no IO "
                    "tiles. Call TensorLocations.numIOTiles(32)."]


@pytest.mark.parametrize("value", [7, 30, 194, -2, True, 32.0, "32"])
def test_what_is_no_number_of_io_tiles(value):
    words = f"[TensorLocations.numIOTiles] expected 0, or an even number from 32 to 192, got " \
            f"{value!r}."
    with pytest.raises(AssertionError, match=f"^{re.escape(words)}$"):
        poptorch.Options().TensorLocations.numIOTiles(value)
