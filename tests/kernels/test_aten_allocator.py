"""The allocator in front of torch's: planned memory inside our calls, nothing changed outside."""

import pickle
import resource
import threading

import numpy as np
import pytest
import torch

import poptorch
from poptorch import _C
from tests import helpers

GEOMETRY = {
    "stride": [1, 1],
    "padding": [1, 1],
    "dilation": [1, 1],
    "transposed": False,
    "output_padding": [0, 0],
    "groups": 1,
}


def convolution(x, weight, threads=1):
    """One call of ATen with planned memory."""
    operands = [x.numpy(), weight.numpy(), None]
    return torch.from_numpy(_C.evaluate("convolution", operands, GEOMETRY, threads=threads)[0])


@pytest.fixture
def call():
    """A call with its operands, made once so that its allocations are known."""
    x, weight = torch.randn(2, 4, 16, 16), torch.randn(8, 4, 3, 3)
    convolution(x, weight)
    return x, weight


def check_close(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def allocations_of(fn):
    before = _C.aten_allocations()
    fn()
    return _C.aten_allocations() - before


def test_a_prepared_call_takes_no_memory_from_torch(call):
    expected = torch.nn.functional.conv2d(*call, padding=1)
    operands = [call[0].numpy(), call[1].numpy(), None]
    for _ in range(3):
        results = []
        run = lambda: results.extend(_C.evaluate("convolution", operands, GEOMETRY))  # noqa: E731
        assert allocations_of(run) == 0
        assert torch.equal(torch.from_numpy(results[0]), expected)


def test_other_allocations_go_to_torch(call):
    kept = []
    assert allocations_of(lambda: kept.append(torch.empty(1000))) == 1


@pytest.mark.parametrize("sizes", [(3, 5), (5, 3)])
def test_a_call_of_another_size_is_planned_anew(call, sizes):
    x = torch.randn(2, 4, *sizes)
    check_close(convolution(x, call[1]), torch.nn.functional.conv2d(x, call[1], padding=1))


def test_threads_other_than_prepared(call):
    expected = torch.nn.functional.conv2d(*call, padding=1)
    threads = torch.get_num_threads()
    for count in (1, 2, 3):
        check_close(convolution(*call, threads=count), expected)
    assert torch.get_num_threads() == threads


def test_tensors_made_before_and_after_are_untouched(call):
    code = """
import torch
before = [torch.full((n,), float(n)) for n in range(1, 300)]
from poptorch import _C
geometry = dict(stride=[1, 1], padding=[1, 1], dilation=[1, 1], transposed=False,
                output_padding=[0, 0], groups=1)
x, w = torch.randn(2, 4, 16, 16), torch.randn(8, 4, 3, 3)
operands = [x.numpy(), w.numpy(), None]
after = []
for round in range(20):
    result = torch.from_numpy(_C.evaluate("convolution", operands, geometry)[0])
    assert torch.equal(result, torch.nn.functional.conv2d(x, w, padding=1))
    after.append(torch.full((round + 1,), float(round)))
    before[round].resize_(5000).fill_(float(round))
    after[round].resize_(7000).fill_(float(round))
for n, tensor in enumerate(before[20:], 21):
    assert (tensor == n).all()
for round in range(20):
    assert (before[round] == round).all() and (after[round] == round).all()
del before, after
print("done")
"""
    assert "done" in helpers.run_python(code)


def test_views_of_numpy_shared_memory_and_pickles(call):
    array = np.arange(100.0)
    view = torch.from_numpy(array)
    mine = torch.arange(100.0)
    seen = mine.numpy()
    convolution(*call)
    mine += 1
    assert seen[0] == 1 and torch.equal(view, torch.arange(100.0, dtype=torch.float64))
    shared = torch.arange(50.0).share_memory_()
    assert shared.is_shared() and torch.equal(shared, torch.arange(50.0))
    copy = pickle.loads(pickle.dumps(mine))
    assert torch.equal(copy, mine)
    clone = torch._lazy_clone(mine)
    clone += 1
    assert torch.equal(clone, mine + 1)


def test_other_threads_allocate_and_free_meanwhile(call):
    """Tensors made on one thread die on another while calls run on a third."""
    stop = threading.Event()
    errors, handed = [], []
    lock = threading.Lock()

    def churn(number):
        while not stop.is_set():
            tensor = torch.full((997 + number,), float(number))
            with lock:
                handed.append((number, tensor))
                taken, handed[:] = handed[:-4], handed[-4:]
            errors.extend(n for n, t in taken if not (t == n).all())

    threads = [threading.Thread(target=churn, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    expected = torch.nn.functional.conv2d(*call, padding=1)
    try:
        for _ in range(300):
            check_close(convolution(*call), expected)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors


def test_calls_on_several_threads_at_once(call):
    expected = torch.nn.functional.conv2d(*call, padding=1)
    wrong = []

    def work():
        for _ in range(100):
            if not torch.allclose(convolution(*call), expected, atol=1e-5):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class Refusing(torch.utils._python_dispatch.TorchDispatchMode):
    """Fails for everything that it sees."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} was seen")


@pytest.mark.parametrize(
    "state",
    [
        torch.no_grad,
        torch.enable_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        Refusing,
    ],
)
def test_state_of_the_caller_does_not_matter(call, state):
    expected = torch.nn.functional.conv2d(*call, padding=1)
    operands = [call[0].numpy(), call[1].numpy(), None]
    with state():
        result = _C.evaluate("convolution", operands, GEOMETRY)[0]
    assert np.array_equal(result, expected.numpy())


def test_state_is_put_back(call):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        convolution(*call)
        assert torch.is_autocast_enabled("cpu")
        assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.bfloat16
    convolution(*call)
    assert torch.is_grad_enabled()
    parameter = torch.ones(2, requires_grad=True)
    assert (parameter * 2).requires_grad


@pytest.mark.sampled
def test_dry_runs_of_a_program_share_their_memory():
    """Strided convolutions are oneDNN's: each distinct one is run once on zeros."""
    code = """
import resource, torch, poptorch

class Network(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Conv2d(5, 16, 3, stride=2, padding=1 + i, bias=False) for i in range(count))

    def forward(self, x):
        return [layer(x).sum() for layer in self.layers]

def faults(count):
    options = poptorch.Options().showCompilationProgressBar(False)
    model = poptorch.inferenceModel(Network(count), options)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    model.compile(torch.zeros(1, 5, SIZE, SIZE))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

SIZE = 64
faults(1)
SIZE = 1600
print(faults(8))
"""
    pages_of_one_result = 16 * 800 * 800 * 4 // resource.getpagesize()
    assert int(helpers.run_python(code)) < 6 * pages_of_one_result  # 14 if each took its own


def test_operators_of_other_libraries_are_not_tried():
    library = torch.library.Library("poptorch_test_alike", "DEF")
    calls = []
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: calls.append(x.shape) or x * 2, "CPU")
    library.impl("twice", torch.empty_like, "Meta")

    class Network(torch.nn.Module):
        def forward(self, x, y):
            for _ in range(3):
                x = torch.ops.poptorch_test_alike.twice(x)
            return x, torch.ops.poptorch_test_alike.twice(y)

    options = poptorch.Options().showCompilationProgressBar(False)
    model = poptorch.inferenceModel(Network(), options)
    x, y = torch.randn(2, 3), torch.randn(4)
    model.compile(x, y)
    assert calls == []
    assert torch.equal(model(x, y)[0], x * 8)
    assert sorted(map(tuple, calls)) == [(2, 3), (2, 3), (2, 3), (4,)]


# Channels, outputs, kernel, and what of the geometry is not as above.
BATCHES = [
    (5, 16, 7, {"stride": [2, 2], "padding": [3, 3]}),
    (64, 64, 3, {}),
    (32, 64, 3, {"stride": [2, 2]}),
    (16, 32, 3, {"groups": 4}),
    (17, 9, 5, {"dilation": [2, 2]}),
    (24, 16, 2, {"transposed": True}),
    (6, 32, 3, {}),
    (16, 32, 3, {}),
]


def layouts(array, is_last):
    if not is_last:
        return array
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [15, 64])
@pytest.mark.parametrize("is_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(("channels", "outputs", "kernel", "others"), BATCHES)
def test_a_few_images_show_what_a_batch_allocates(channels, outputs, kernel, others, is_last,
                                                  count, threads):
    """Nothing of a large batch is left to torch, although the call was tried with a few images."""
    attrs = GEOMETRY | others
    sides = [outputs // attrs["groups"], channels // attrs["groups"]]
    weight = torch.randn(*(([channels, sides[0]] if attrs["transposed"] else [outputs, sides[1]])),
                         kernel, kernel).numpy()
    x = layouts(torch.randn(count, channels, 8, 8).numpy(), is_last)
    results = []

    def forward():
        results.append(_C.evaluate("convolution", [x, weight, None], attrs, threads=threads)[0])

    forward()  # its result may be numpy's
    assert allocations_of(forward) == 0
    grad = layouts(results[0], is_last)
    for wanted in ([True, False, False], [False, True, True]):
        backward = {"bias_sizes": [outputs], **attrs, "output_mask": wanted}
        run = lambda attrs=backward: _C.evaluate(  # noqa: E731
            "convolution_backward", [grad, x, weight], attrs, threads=threads)
        run()
        assert allocations_of(run) == 0
