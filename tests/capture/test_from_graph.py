"""Graphs as torch.compile gives them to a backend are captured, compiled and run."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils.checkpoint import checkpoint

import poptorch
from poptorch._capture.from_graph import capture_graph
from poptorch._capture.graph.regions import region_of
from poptorch._translate import StepSpec, translate
from tests.run.drive import Driver


class Backend:
    """Runs what torch.compile hands over; keeps the captured graphs."""

    def __init__(self):
        self.captured = []

    def __call__(self, graph_module, example_inputs):
        captured = capture_graph(graph_module, example_inputs)
        self.captured.append(captured)
        program = translate(captured, StepSpec(training=False))
        driver = Driver(program.module.text())
        for path, tensor in program.states.items():
            driver.write(path, tensor)

        def run(*args):
            found = driver(**{stream: args[i].detach() for i, stream in program.inputs.items()})
            results = [found[stream].squeeze(0) for stream, spec in program.outputs]
            return captured.rebuild_output(results)

        return run


@pytest.fixture
def backend():
    """A backend; what torch.compile remembers of other tests is forgotten."""
    torch._dynamo.reset()
    yield Backend()
    torch._dynamo.reset()


def check(backend, function, *args, **settings):
    """The compiled function gives eager's numbers; returns the captured graph."""
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(function, backend=backend, **settings)(*args),
                                   function(*args))
    return backend.captured[-1]


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x):
        return self.fc(x).relu() * self.scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.parts = Inner(), nn.Sequential(nn.Linear(4, 3), nn.GELU())

    def forward(self, x, factor):
        y = checkpoint(self.first, x, use_reentrant=False)
        return {"sum": y.sum(-1), "parts": (self.parts(y), x * factor)}


def test_parameters_are_inputs(backend):
    captured = check(backend, Net(), torch.randn(2, 4), 2.5, dynamic=False)
    assert {spec.kind for spec in captured.inputs} == {"input"}
    assert len(captured.inputs) == 6


def test_parameters_are_attributes(backend):
    net, x = nn.Sequential(Inner(), nn.Linear(4, 3)), torch.randn(2, 4)
    graph = torch.fx.symbolic_trace(net)
    torch.testing.assert_close(backend(graph, [x])(x), net(x).detach())
    assert [(spec.kind, spec.name) for spec in backend.captured[0].inputs] == [
        ("input", "input"), ("buffer", "0.scale"), ("param", "0.fc.weight"),
        ("param", "0.fc.bias"), ("param", "1.weight"), ("param", "1.bias")]


def test_a_graph_break_gives_two_graphs(backend):
    def forward(x):
        y = x.relu()
        torch._dynamo.graph_break()
        return y.exp()

    check(backend, forward, torch.randn(3), dynamic=False)
    assert len(backend.captured) == 2


def refused(function, *args, **settings):
    torch._dynamo.reset()
    with pytest.raises(Exception) as failed:
        torch.compile(function, backend=capture_graph, **settings)(*args)
    error = failed.value
    while not isinstance(error, poptorch.Error):
        error = error.__cause__ or error.__context__
    return str(error)


def test_numbers_and_sizes_as_inputs_are_refused():
    message = refused(lambda x, n: x * n, torch.randn(3), 4, dynamic=True)
    assert message.startswith("[capture] input s")
    assert "is a SymInt, " in message
    assert message.endswith("Call torch.compile with dynamic=False.")


def test_a_size_that_is_not_known_is_refused():
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    sizes = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    x = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.randn(5), symbolic_context=sizes)
    with pytest.raises(poptorch.Error, match=r"^\[capture\] input x of the graph has the sizes "
                       r"\[s\d+\], not all of which are numbers; sizes are compiled in\. Call "):
        capture_graph(graph, [x])


def test_the_number_of_inputs_is_checked():
    graph = torch.fx.symbolic_trace(lambda x, y: x + y)
    with pytest.raises(poptorch.Error, match=r"^\[capture\] the graph has 2 inputs \(x, y\), but "
                       r"got 1 example inputs\. Give one for each\.$"):
        capture_graph(graph, [torch.randn(2)])


@torch.compiler.nested_compile_region
def layer(x, w):
    return (x @ w).relu()


def test_nested_regions_of_torch_compile(backend):
    w = torch.randn(4, 4)
    captured = check(backend, lambda x: layer(layer(x, w), w).sum(), torch.randn(2, 4),
                     dynamic=False)
    assert [region_of(node) is not None for node in captured.graph.nodes].count(True) == 2
