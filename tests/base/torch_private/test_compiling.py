"""The private parts of torch that the backend of torch.compile uses, by name."""

from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from poptorch._base.torch_private import compiling


def test_every_name_has_a_test():
    tested = Path(__file__).read_text()
    for name, value in vars(compiling).items():
        if not (name.startswith("_") or name == "Callable" or isinstance(value, ModuleType)):
            assert f"compiling.{name}" in tested, f"torch_private.compiling.{name} has no test"


def test_graphs_of_both_passes():
    graphs = []

    returned = []

    def keep(graph, inputs):
        if not graphs:
            returned.append(compiling.returned_results())
        graphs.append(graph)
        return compiling.boxed(lambda arguments: graph(*arguments))

    both = compiling.aot_autograd(fw_compiler=keep,
                                  partition_fn=compiling.min_cut_rematerialization_partition)
    x = torch.ones(2, requires_grad=True)
    torch.compile(lambda x: x.sin() * 2, backend=both)(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.ones(2).cos())
    assert len(graphs) == 2 and returned == [1]


def test_dimension_order():
    assert compiling.dimension_order(torch.ones(2, 3)) is None
    assert compiling.dimension_order(torch.ones(2, 3).T) == (1, 0)
    image = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
    assert compiling.dimension_order(image) == (0, 2, 3, 1)


def test_set_call():
    net = nn.Linear(2, 1)
    compiling.set_call(net, lambda call: lambda x: call(x) + 1)
    x = torch.ones(1, 2)
    torch.testing.assert_close(net(x), net.forward(x) + 1)


def test_compile_lock_is_held_while_dynamo_compiles():
    held = []

    def backend(graph, inputs):
        held.append(compiling.compile_lock._is_owned())
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert held == [True] and not compiling.compile_lock._is_owned()
