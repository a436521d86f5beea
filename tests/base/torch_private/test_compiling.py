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
    graphs, found = [], []

    def keep(graph, inputs):
        if not graphs:
            found.append(compiling.metadata())
        graphs.append(graph)
        return compiling.boxed(lambda arguments: graph(*arguments))

    both = compiling.aot_autograd(fw_compiler=keep,
                                  partition_fn=compiling.min_cut_rematerialization_partition)
    x = torch.ones(2, requires_grad=True)
    with compiling.backward_at_once():
        y = torch.compile(lambda x: x.sin() * 2, backend=both)(x)
    assert len(graphs) == 2
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.ones(2).cos())
    (metadata,) = found
    assert metadata.num_forward_returns == 1
    assert compiling.is_direct(metadata, 1) and not compiling.is_direct(metadata, 2)
    assert all(isinstance(kind, compiling.PlainTensorMeta) for kind in metadata.subclass_inp_meta)


def test_graphs_that_aot_autograd_calls():
    """An argument that a call changes, and a result that shares its memory."""
    found = []

    def keep(graph, inputs):
        found.append(compiling.metadata())
        return compiling.boxed(lambda arguments: graph(*arguments))

    both = compiling.aot_autograd(fw_compiler=keep)
    torch.compile(lambda x: x.add_(1) * 2, backend=both)(torch.ones(2))
    torch.compile(lambda x: x.view(1, 2), backend=both)(torch.ones(2))
    assert [compiling.is_direct(metadata, 1) for metadata in found] == [False, False]


def test_multiply_add():
    graphs = []
    both = compiling.aot_autograd(
        fw_compiler=lambda graph, inputs: graphs.append(graph) or compiling.boxed(
            lambda arguments: graph(*arguments)))
    x, y = torch.randn(3), torch.randn(3)
    torch.compile(lambda x, y: compiling.multiply_add(x, 2.0, y), backend=both)(x, y)
    assert compiling.multiply_add in [node.target for node in graphs[0].graph.nodes]


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
