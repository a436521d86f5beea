"""One graph as a program: the order in memory and the dtypes of arguments and results."""

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from poptorch._torch_compile.graph import CompiledGraph
from poptorch._torch_compile.images import images_of
from tests.helpers import quiet_options


def graph_of(function, *inputs):
    with torch.no_grad():
        return make_fx(lambda *xs: tuple(function(*xs)), tracing_mode="fake")(*inputs)


def test_images():
    conv = torch.ops.aten.convolution.default

    def function(x, w):
        y = conv(x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1).relu() + 1
        return torch.ops.aten.alias(y), y.permute(0, 2, 3, 1), x.relu()

    graph = graph_of(function, torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)).graph
    assert sorted(node.name for node in images_of(graph)) == [
        "add", "alias", "convolution", "relu"]


def test_results_for_the_backward_pass_stay_as_on_the_device():
    def function(x, weight):
        image = F.conv2d(x, weight).relu()
        y, indices = torch.ops.aten.max_pool2d_with_indices(image, [2, 2])
        return y, indices, y + 1, indices + 1

    inputs = [torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)]
    run = CompiledGraph(graph_of(function, *inputs), quiet_options(), returned=2)
    expected = function(*inputs)
    y, indices, image, numbers = run(inputs)
    torch.testing.assert_close((y, indices, image), expected[:3])
    torch.testing.assert_close(numbers, expected[3].int())
    assert y.is_contiguous() and indices.dtype == torch.int64
    assert image.is_contiguous(memory_format=torch.channels_last)


def test_arguments_in_any_order():
    def function(x, y):
        return x @ y, x.sin()

    x, y = torch.randn(4, 3).t(), torch.randn(4, 2)
    run = CompiledGraph(graph_of(function, x, y), quiet_options())
    for a, b in ((x, y), (x.contiguous(), y), (x * 2, torch.randn(8, 2)[::2])):
        torch.testing.assert_close(run([a, b]), list(function(a, b)))


def test_int32_in_place_of_int64():
    def function(x, index):
        return x.gather(0, index), index * 2

    x, index = torch.randn(3), torch.tensor([2, 0])
    run = CompiledGraph(graph_of(function, x, index), quiet_options())
    torch.testing.assert_close(run([x, index.int()]), list(function(x, index)))
