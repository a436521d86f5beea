"""What traces and compiles again: hooks, sizes, graph breaks, calls of several threads."""

import copy
import threading

import pytest
import torch
from torch import nn

import poptorch
from poptorch._torch_compile import backend as module
from tests.helpers import quiet_options
from tests.torch_compile.common import compiled


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that were compiled: whether each has symbolic sizes."""
    found = []

    class Noted(module.CompiledGraph):
        def __init__(self, *args):
            super().__init__(*args)
            found.append(self.is_dynamic)

    monkeypatch.setattr(module, "CompiledGraph", Noted)
    return found


def test_hooks_after_the_first_call():
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    expected, run = net(x), compiled(net)
    torch.testing.assert_close(run(x), expected)
    handle = net.register_forward_hook(lambda module, args, result: result + 1)
    torch.testing.assert_close(run(x), expected + 1)
    handle.remove()
    torch.testing.assert_close(run(x), expected)
    net.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
    torch.testing.assert_close(run(x), net.bias.expand(4, 2))


def test_mark_dynamic_traces_once(graphs):
    run = compiled(lambda x: x.softmax(-1) * x.shape[0])
    for rows in (4, 3, 7, 3):
        x = torch.randn(rows, 3)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(run(x), x.softmax(-1) * rows)
    assert graphs == [True]


def test_more_sizes_than_the_limit():
    run = poptorch.compile(lambda x: x.softmax(-1), quiet_options().recompilation(limit=2))
    run(torch.ones(5, 3))
    run(torch.ones(4, 3)), run(torch.ones(3, 3))
    with pytest.raises(poptorch.Error, match=r"\[torch.compile\] a graph has 2 programs, as many "
                       r"as Options.recompilation\(limit=2\) allows, and needs one more: the size "
                       r"6 is not one of 3, 4. Pad arguments to fewer sizes, or raise the limit."):
        run(torch.ones(6, 3))


def test_a_smaller_last_batch(graphs):
    run = compiled(lambda x: x.softmax(-1))
    for rows in (4, 4, 3, 4, 3):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(run(x), x.softmax(-1))
    assert len(graphs) == 2


def test_sizes_of_one_module_are_static_beside_another(graphs):
    for size in (2, 3, 4):
        compiled(nn.Linear(size, 1))(torch.ones(size, size))
    assert not any(graphs)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_several_graphs_train(graphs):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            y = self.first(x).relu()
            torch._dynamo.graph_break()
            return self.second(y)

    net = Net()
    eager, x = copy.deepcopy(net), torch.randn(5, 3)
    ours, expected = compiled(net)(x), eager(x)
    torch.testing.assert_close(ours, expected)
    ours.square().sum().backward(), expected.square().sum().backward()
    for a, b in zip(net.parameters(), eager.parameters()):
        torch.testing.assert_close(a.grad, b.grad)
    assert len(graphs) == 4


def test_part_of_a_compiled_module(graphs):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    eager, x = copy.deepcopy(net), torch.randn(5, 3)
    compiled(net[0])
    whole = torch.compile(net, backend=module.backend, options=quiet_options(), fullgraph=True)
    ours, expected = whole(x), eager(x)
    torch.testing.assert_close(ours, expected)
    ours.square().sum().backward(), expected.square().sum().backward()
    torch.testing.assert_close(net[0].weight.grad, eager[0].weight.grad)
    assert len(graphs) == 2


def test_no_grad_compiles_forward_alone(graphs):
    net = compiled(nn.Linear(3, 2))
    with torch.no_grad():
        net(torch.ones(1, 3))
    assert len(graphs) == 1
    net(torch.ones(1, 3)).sum().backward()
    assert len(graphs) == 3


def test_first_calls_in_several_threads():
    nets = [nn.Sequential(nn.Linear(n, 3), nn.ReLU()) for n in (2, 3, 4, 5)]
    eager, errors = copy.deepcopy(nets), []
    for net in nets:
        compiled(net)
    barrier = threading.Barrier(len(nets))

    def work(net, reference):
        try:
            barrier.wait()
            for rows in (3, 2):
                x = torch.randn(rows, net[0].in_features)
                y = net(x)
                y.sum().backward()
                torch.testing.assert_close(y, reference(x))
        except Exception as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work, args=pair) for pair in zip(nets, eager)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
