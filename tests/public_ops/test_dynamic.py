"""dynamic_slice and dynamic_update: as eager, compiled once for all starts; errors."""

import copy

import pytest
import torch

import poptorch
from tests.helpers import quiet_options
from tests.public_ops.refusals import check_refused


class Both(torch.nn.Module):
    """A slice of one parameter, and another parameter written into it."""

    def __init__(self, dtype=torch.float32, dim=0, step=1):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(8, 8).to(dtype))
        self.v = torch.nn.Parameter(torch.randn((2, 8) if dim == 0 else (8, 2)).to(dtype))
        self.dim, self.step = dim, step

    def forward(self, start):
        part = poptorch.dynamic_slice(self.w, self.dim, start + 0, 4, self.step)
        whole = poptorch.dynamic_update(self.w * 2, self.v, self.dim, start, 2)
        # Sums of squares: nothing cancels, so that the order of a sum is no large part of it.
        loss = (part.float() ** 2).sum() + 2 * (whole.float() ** 2).sum()
        return part, whole, poptorch.identity_loss(loss, "none")


@pytest.mark.parametrize(("dim", "step"), [(0, 1), (0, 3), (-1, 1), (1, 2)])
def test_training_as_eager(dim, step):
    net = Both(dim=dim, step=step)
    eager = copy.deepcopy(net)
    ours = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.01))
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.01)
    ours.compile(torch.tensor([0]))
    program = ours.ir("plan")
    for start in (4, 0, 3, -4, -8):
        found = ours(torch.tensor([start]))
        expected = eager(torch.tensor([start]))
        optimizer.zero_grad()
        expected[2].backward()
        optimizer.step()
        torch.testing.assert_close(found, expected)
    assert ours.ir("plan") == program
    ours.copyWeightsToHost()
    torch.testing.assert_close(dict(net.named_parameters()), dict(eager.named_parameters()))


@pytest.mark.parametrize("start", [0, -8, 4])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_in_16_bits(dtype, start):
    """They are moved: nothing is rounded but in the loss."""
    net = Both(dtype, 0, 3)
    eager = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    with poptorch.testing.keep_gradients():
        ours = poptorch.trainingModel(net, quiet_options(), optimizer)
        ours(torch.tensor([start]))
    eager(torch.tensor([start]))[2].backward()
    for name, gradient in poptorch.testing.gradients(ours).items():
        torch.testing.assert_close(gradient, eager.get_parameter(name).grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.int32,
                                   torch.bool, torch.uint8])
@pytest.mark.parametrize("start", [torch.int64, torch.int32, torch.int16])
def test_types(dtype, start):
    class Net(torch.nn.Module):
        def forward(self, x, src, at):
            return (poptorch.dynamic_slice(x, 1, at, 3, 2),
                    poptorch.dynamic_update(x, src, 1, at, 2))

    x, src = torch.randint(0, 2, (2, 6, 3)).to(dtype), torch.randint(0, 2, (2, 2, 3)).to(dtype)
    inference = poptorch.inferenceModel(Net(), quiet_options())
    for at in (0, 2, 3):
        at = torch.tensor(at, dtype=start)
        found = inference(x, src, at)
        torch.testing.assert_close(found, Net()(x, src, at), check_dtype=False)
        narrow = torch.int32 if dtype is torch.int64 else dtype
        assert [t.dtype for t in found] == [narrow, narrow]


def test_results_are_copies():
    class Net(torch.nn.Module):
        def forward(self, x, at):
            part = poptorch.dynamic_slice(x, 0, at, 2, 1)
            part.add_(1)
            whole = poptorch.dynamic_update(x, part, 0, at, 2)
            whole.mul_(2)
            return part, whole

    x, at = torch.arange(4.0), torch.tensor([1])
    expected = Net()(x, at)
    torch.testing.assert_close(poptorch.inferenceModel(Net(), quiet_options())(x, at), expected)
    assert x.tolist() == [0, 1, 2, 3]


def test_an_input_whose_entries_share_memory():
    x, src = torch.arange(5.0).unfold(0, 3, 1), torch.full((3, 1), 9.0)
    out = poptorch.dynamic_update(x, src, 1, torch.tensor([1]), 1)
    assert out.tolist() == [[0, 9, 2], [1, 9, 3], [2, 9, 4]]


def test_a_start_that_is_changed_afterwards():
    """The gradient goes where the part was."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(6))

        def forward(self, at):
            at = at * 1
            part = poptorch.dynamic_slice(self.w, 0, at, 2, 1)
            at.zero_()
            return poptorch.identity_loss(part.sum(), "none")

    net = Net()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=1.0))
    model(torch.tensor([3]))
    model.copyWeightsToHost()
    assert net.w.tolist() == [1, 1, 1, 0, 0, 1]


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("start", [5, 8, -1, -3, -9])
@pytest.mark.parametrize("name", ["dynamic_slice", "dynamic_update"])
def test_a_part_that_is_not_inside(name, start, is_compiled):
    class Net(torch.nn.Module):
        def forward(self, x, at):
            if name == "dynamic_slice":
                return poptorch.dynamic_slice(x, 0, at, 4, 1)
            return poptorch.dynamic_update(x, x[:4], 0, at, 4)

    x = torch.randn(8)
    run = poptorch.inferenceModel(Net(), quiet_options()) if is_compiled else Net()
    before = run(x, torch.tensor([1]))
    with pytest.raises(poptorch.Error, match=rf"\[{name}\] start {start} with size 4 is out of "
                                             r"range: dimension 0 has 8 entries, so 0 to 4"):
        run(x, torch.tensor([start]))
    torch.testing.assert_close(run(x, torch.tensor([1])), before)


@pytest.mark.parametrize("step", [3, 4, 5, 2**31, 2**63 - 1, 2**63, 2**70])
def test_a_step_beyond_the_part(step):
    """As of a slice in Python, the first entry is taken."""
    module, x = torch.nn.Module(), torch.arange(8)
    module.forward = lambda x: poptorch.dynamic_slice(x, 0, torch.tensor([4]), 4, step)
    expected = list(range(8))[4:8:step]
    assert module(x).tolist() == expected
    assert poptorch.inferenceModel(module, quiet_options())(x).tolist() == expected


X, AT = torch.zeros(8, 2), torch.tensor([0])


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize(("call", "words"), [
    (lambda f: f(X, 0, AT, 0, 1), "the size of the part is 0, but dimension 0 has 8 entries"),
    (lambda f: f(X, 0, AT, -2, 1), "the size of the part is -2"),
    (lambda f: f(X, 0, AT, 9, 1), "the size of the part is 9"),
    (lambda f: f(X, 0, AT, 7, 1), "the size 7 is no factor of the size 8 of dimension 0"),
    (lambda f: f(X, 0, AT, 4, 0), "step is 0"),
    (lambda f: f(X, 0, AT, torch.tensor(4), 1), r"size is .*, but an int is needed"),
    (lambda f: f(X, 2, AT, 4, 1), r"dim is 2, but the tensor has the sizes \[8, 2\]"),
    (lambda f: f(torch.tensor(1.0), 0, AT, 1, 1), r"the sizes \[\]"),
    (lambda f: f(X, 0, torch.tensor([1.0]), 4, 1), r"start is of torch.float32 and sizes \[1\]"),
    (lambda f: f(X, 0, torch.tensor([1, 2]), 4, 1), r"start is of torch.int64 and sizes \[2\]"),
    (lambda f: f(X, 0, "1", 4, 1), "start is '1'"),
    (lambda f: f(X, 0, 2**63, 4, 1), "start is 9223372036854775808, which does not fit 64 bits"),
    (lambda f: f(X, 0, -2**70, 4, 1), "start is -1180591620717411303424, which does not fit"),
    (lambda f: f(X, 0, AT, 2**70, 1), "the size of the part is 1180591620717411303424"),
])
def test_arguments_of_a_slice(call, words, is_compiled):
    check_refused(lambda: call(poptorch.dynamic_slice), words, is_compiled)


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize(("call", "words"), [
    (lambda f: f(X, torch.zeros(2), 0, AT, 2), r"number of dimensions: \(2\) vs \(1\)"),
    (lambda f: f(X, X[:2].int(), 0, AT, 2), "the same type: torch.float32 vs torch.int32"),
    (lambda f: f(X, X[:3], 0, AT, 2), r"src has the sizes \[3, 2\], but \[2, 2\] are replaced"),
    (lambda f: f(X, X[:0], 0, AT, 0), "the size of the part is 0"),
    (lambda f: f(X, X, 0, AT, 9), "the size of the part is 9"),
])
def test_arguments_of_an_update(call, words, is_compiled):
    check_refused(lambda: call(poptorch.dynamic_update), words, is_compiled)


def test_size_of_an_update_need_not_be_a_factor():
    found = poptorch.dynamic_update(torch.zeros(3), torch.ones(2), 0, torch.tensor(1), 2)
    assert found.tolist() == [0, 1, 1]


def test_a_number_as_start():
    assert poptorch.dynamic_slice(torch.arange(4), 0, 2, 2, 1).tolist() == [2, 3]


def test_the_result_of_an_update_begins_where_its_memory_does():
    """In eager as on the device, wherever ``input`` lies."""
    class Places(torch.nn.Module):
        def forward(self, x, y):
            found = poptorch.dynamic_update(x[1:], y, 0, torch.tensor(0), 1)
            return found, found.as_strided((2,), (1,)), torch.tensor(1.0 * found.storage_offset())

    x, y = torch.rand(3, 2), torch.rand(1, 2)
    expected = Places()(x, y)
    torch.testing.assert_close(poptorch.inferenceModel(Places(), quiet_options())(x, y), expected)
    assert torch.equal(expected[1], y[0])
