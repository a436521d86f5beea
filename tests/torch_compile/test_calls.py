"""Calls after the first one, which run a graph's program without Python code for each tensor."""

import gc
import json
import threading
import weakref

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import poptorch
from poptorch import profiling
from poptorch._torch_compile.graph import CompiledGraph
from tests.helpers import quiet_options


def called(function, *inputs, options=None):
    """A compiled function after a call."""
    run = poptorch.compile(function, options or quiet_options())
    result = run(*(x.detach().requires_grad_(x.requires_grad) for x in inputs))
    if isinstance(result, torch.Tensor) and result.requires_grad:
        result.sum().backward()
    return run


@pytest.fixture
def in_python(monkeypatch):
    """The graphs whose executor was called."""
    found, call = [], CompiledGraph._call_executor

    def noted(graph, *arguments):
        found.append(graph)
        return call(graph, *arguments)

    monkeypatch.setattr(CompiledGraph, "_call_executor", noted)
    return found


def graph_of(function, *inputs):
    """A graph after a call."""
    graph = CompiledGraph(make_fx(lambda *xs: tuple(function(*xs)))(*inputs), quiet_options())
    graph(list(inputs))
    return graph


def test_gradients_in_any_order(in_python):
    def function(x, y):
        return (x @ y).sin()

    x, y = torch.randn(3, 4), torch.randn(4, 2, requires_grad=True)
    run = called(function, x, y)
    for gradient in (torch.randn(3, 2), torch.randn(2, 3).t(), torch.randn(3, 1).expand(3, 2)):
        torch.testing.assert_close(torch.autograd.grad(run(x, y), y, gradient),
                                   torch.autograd.grad(function(x, y), y, gradient))
    assert len(in_python) == 2


def test_int64(in_python):
    def function(index):
        return index.clamp(max=5), index % 8

    run = graph_of(function, torch.tensor([2, 0]))
    for index in (torch.tensor([7, -1]), torch.tensor([[3, 0], [4, 0]])[:, 0],
                  torch.tensor([2**31 - 1, -2**31])):
        torch.testing.assert_close(run([index]), list(function(index)))
    assert run([torch.tensor([2**63 - 1, -2**63])])[0].tolist() == [5, -2**31]
    with pytest.raises(poptorch.Error, match="the value 4294967296 does not fit into int32"):
        run([torch.tensor([1, 2**32])])
    assert len(in_python) == 1


def test_float64_and_complex():
    x = torch.randn(3, dtype=torch.float64)
    run = called(lambda x: x.sin(), x)
    torch.testing.assert_close(run(x * 2), (x * 2).sin(), atol=1e-6, rtol=1e-6)
    z = torch.randn(3, dtype=torch.complex64)
    run = called(lambda x: x * 2j, z)
    torch.testing.assert_close(run(z + 1), (z + 1) * 2j)


def test_tensors_without_memory():
    run = called(lambda x: x + 1, torch.ones(3))
    x = torch.ones(3)
    x.untyped_storage().resize_(0)
    with pytest.raises(poptorch.Error, match="got one without memory"):
        run(x)
    x.untyped_storage().resize_(12)
    assert run(x.fill_(2)).tolist() == [3, 3, 3]


def test_large_results():
    """Their memory is used again, and can be resized."""
    run = called(lambda x: x + 1, torch.zeros(1 << 19))
    results = [run(torch.full((1 << 19,), float(i))) for i in range(3)]
    assert [result[-1].item() for result in results] == [1, 2, 3]
    address = results[0].data_ptr()
    results[0].resize_(1 << 20).zero_()
    assert results[0].data_ptr() != address
    assert run(torch.zeros(1 << 19)).data_ptr() == address


def test_results_without_gradient():
    def function(x):
        return x.sin(), x.exp()

    x = torch.randn(3, requires_grad=True)
    run = called(function, x)
    for index, expected in enumerate((x.cos(), x.exp())):
        for _ in range(2):
            torch.testing.assert_close(torch.autograd.grad(run(x)[index].sum(), x), (expected,))


def test_hooks_of_the_node():
    x = torch.randn(3, requires_grad=True)
    y, seen = called(lambda x: x.sin(), x)(x), []
    assert y.grad_fn.name() == "GraphBackward"
    y.grad_fn.register_prehook(lambda gradients: (gradients[0] * 2,))
    y.grad_fn.register_hook(lambda before, after: seen.append(before[0].tolist()))
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    assert seen == [x.grad.tolist()]


def test_hooks_of_saved_tensors_that_raise():
    def pack(tensor):
        raise KeyError("pack")

    def unpack(tensor):
        raise KeyError("unpack")

    x = torch.randn(3, requires_grad=True)
    run = called(lambda x: x.sin(), x)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack), \
            pytest.raises(KeyError, match="'pack'"):
        run(x)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        y = run(x).sum()
    with pytest.raises(KeyError, match="'unpack'"):
        y.backward()


@pytest.mark.parametrize("is_first", [True, False])
def test_errors_of_a_backward_pass(is_first):
    options = quiet_options()
    options.Precision.enableFloatingPointExceptions(True)
    x = torch.ones(3, requires_grad=True)
    if is_first:
        run = poptorch.compile(lambda x: x.sqrt(), options)
    else:
        run = called(lambda x: x.sqrt(), x, options=options)
    y = run(torch.zeros(3, requires_grad=True))
    with pytest.raises(poptorch.Error, match="division by zero"):
        y.sum().backward()


def test_backward_in_another_thread():
    x = torch.randn(3, requires_grad=True)
    y = called(lambda x: x.sin(), x)(x)
    thread = threading.Thread(target=lambda: y.sum().backward())
    thread.start()
    thread.join()
    torch.testing.assert_close(x.grad, x.detach().cos())


@pytest.mark.parametrize("is_first", [True, False])
def test_within_autocast(is_first):
    """A graph has the casts of autocast already: its operations get no others."""
    def function(x, y):
        with torch.autocast("cpu", enabled=False):
            return x @ y

    x, y = torch.randn(4, 4), torch.randn(4, 4)
    run = poptorch.compile(function, quiet_options())
    if not is_first:
        run(x, y)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(run(x, y), function(x, y))


@pytest.mark.parametrize("is_first", [True, False])
def test_backward_within_autocast(is_first):
    x, y = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    run = poptorch.compile(lambda x, y: x @ y, quiet_options())
    if not is_first:
        run(x, y).sum().backward()
        x.grad = None
    result = run(x, y).sum()
    with torch.autocast("cpu", torch.bfloat16):
        result.backward()
    torch.testing.assert_close(x.grad, y.sum(1).expand(4, 4))


def test_within_modes():
    x = torch.randn(3)
    graph = graph_of(lambda x: (x.sin(),), x)
    with FlopCounterMode(display=False):
        torch.testing.assert_close(graph([x]), [x.sin()])
    with pytest.raises(poptorch.Error, match="within make_fx there are none"):
        make_fx(lambda y: graph([x])[0] + y)(x)
    with pytest.raises(poptorch.Error, match="a transformation of torch.func"):
        torch.func.vmap(lambda y: graph([y])[0])(torch.randn(2, 3))


def test_recordings(tmp_path):
    x = torch.randn(3, requires_grad=True)
    run = called(lambda x: x.sin(), x)
    with profiling.record(tmp_path / "trace.json"):
        run(x).sum().backward()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events].count("run") == 2


def test_graphs_are_freed(monkeypatch):
    graphs, make = [], CompiledGraph.__init__

    def noted(graph, *args, **kwargs):
        make(graph, *args, **kwargs)
        graphs.append(weakref.ref(graph))

    monkeypatch.setattr(CompiledGraph, "__init__", noted)
    net = poptorch.compile(torch.nn.Linear(3, 3), quiet_options())
    x = torch.randn(2, 3, requires_grad=True)
    net(x).sum().backward()
    y = net(x)
    weight = net.weight.detach()
    del net
    torch._dynamo.reset()
    gc.collect()
    x.grad = None
    y.sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(2, 3))
    del y
    gc.collect()
    assert len(graphs) == 2 and not any(graph() for graph in graphs)


def test_compiled_autograd():
    inner = poptorch.compile(torch.nn.Linear(3, 2), quiet_options())
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")), \
            pytest.raises(RuntimeError, match="compiled autograd cannot trace the backward pass of "
                                              "a graph that poptorch compiled"):
        inner(torch.ones(4, 3)).sum().backward()
