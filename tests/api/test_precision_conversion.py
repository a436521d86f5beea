"""``poptorch.convert_precision``."""

import pytest
import torch

import poptorch
from tests.helpers import quiet_options


class Net(torch.nn.Module):
    """Layers of two kinds, a list of layers, a tied weight, a buffer."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 8)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(8) for _ in range(2))
        self.head = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 7))
        self.out = torch.nn.Linear(8, 7, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens, x):
        y = self.embed(tokens) * self.scale + x
        for layer, norm in zip(self.layers, self.norms):
            y = norm(layer(y).relu())
        return self.head(y), self.out(y)


def data():
    return torch.randint(0, 7, (3,)), torch.randn(3, 8)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_types_and_results(dtype):
    net, reference = Net(), Net()
    reference.load_state_dict(net.state_dict())
    assert poptorch.convert_precision(net, dtype, exclude=("norm", r"head\.")) is net
    kinds = {name: tensor.dtype for name, tensor in net.state_dict().items()}
    for name, kind in kinds.items():
        wide = torch.float32 if "norm" in name or "head" in name else dtype
        assert kind is (torch.int64 if name == "count" else wide), name
    assert net.out.weight is net.embed.weight
    args = data()
    eager, wide = net(*args), reference(*args)
    ours = poptorch.inferenceModel(net, quiet_options())(*args)
    for one, other, exact in zip(ours, eager, wide):
        assert one.dtype is other.dtype is dtype
        assert (one - exact).norm() <= 4 * (other - exact).norm() + 1e-3 * exact.norm()


def test_the_excluded_layer_computes_in_its_own_type():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    seen = []
    poptorch.convert_precision(net, torch.half, exclude=r"^1\.")
    net[1].register_forward_hook(lambda module, args, result: seen.append(args[0].dtype))
    assert net(torch.ones(2, 4)).dtype is torch.half and seen == [torch.float32]


def test_a_second_call_replaces_the_first(tmp_path):
    net = Net()
    before = net.state_dict()
    poptorch.convert_precision(net, torch.bfloat16, "norm")
    poptorch.convert_precision(net, torch.float32)
    args = data()
    assert all(tensor.dtype is torch.float32 for tensor in net(*args))
    assert len(net._forward_pre_hooks) == 1 and not net.norms[0]._forward_hooks
    assert net.state_dict().keys() == before.keys()


def test_training_and_files(tmp_path):
    net = poptorch.convert_precision(torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)), torch.half, r"^1\.")
    x, y = torch.randn(6, 4), torch.randn(6, 2)
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1),
                                   loss=lambda out, target: (out - target.half()).square().mean())
    losses = [model(x, y)[1].item() for _ in range(20)]
    assert losses[-1] < losses[0] and net[1].weight.dtype is torch.float32
    serve = poptorch.inferenceModel(net, quiet_options())
    again = poptorch.load(serve.compileAndExport(tmp_path / "net.poptorch", x))
    assert torch.equal(again(x), serve(x)) and torch.equal(again.model(x), net(x))


def test_float32_changes_nothing():
    net, args = Net(), data()
    before = net(*args)
    poptorch.convert_precision(net, torch.float32, ["norm"])
    assert all(torch.equal(now, was) for now, was in zip(net(*args), before))


@pytest.mark.parametrize("arguments, kind, words", [
    ((3, torch.half), TypeError, "model must be a torch.nn.Module, got int"),
    ((Net(), torch.float64), ValueError, "dtype must be one of .*, got torch.float64"),
    ((Net(), torch.half, "("), poptorch.Error, r"'\(' is not a regular expression: .*Correct"),
    ((Net(), torch.half, "nrom"), poptorch.Error, "exclude has 'nrom', which is in none of the"),
    ((Net(), torch.half, "head.0.bias"), poptorch.Error, r"exclude matches some tensors of the "
     r"layer head.0 \(Linear\) and not others.*exclude all of them"),
])
def test_errors(arguments, kind, words):
    with pytest.raises(kind, match=rf"^\[convert_precision\] {words}"):
        poptorch.convert_precision(*arguments)
