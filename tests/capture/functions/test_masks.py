"""Writes to the elements that a mask selects, and slices with tensors as bounds, as in eager."""

import copy

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

ROWS, COLUMNS = torch.tensor([True, False, True, False]), torch.tensor([True, False] * 3)
X = torch.linspace(-2, 2, 24).reshape(4, 6)


def put(*index, value=None, accumulate=False):
    def change(x):
        x.index_put_(tuple(index), value, accumulate)

    return change


def assigned(index, value):
    def change(x):
        x[index] = value.to(x.dtype)

    return change


def of_first(x):
    x[x[:, 0] > 0] = torch.arange(6.0, dtype=x.dtype)


def square(x):
    part = x[:, :4]
    part[part[:, 0] > 0] = torch.arange(4.0, dtype=x.dtype)


CHANGES = {
    "one row for all": of_first,
    "as many columns as rows": square,
    "one row, two dimensions": assigned(ROWS, torch.arange(6.0)[None]),
    "one column for all": assigned((slice(None), COLUMNS), torch.arange(4.0)[:, None]),
    "one value for each row": assigned(ROWS, torch.tensor([[1.0], [2.0]])),
    "known count": assigned(ROWS, torch.arange(12.0).reshape(2, 6)),
    "known count of columns": assigned((slice(None), COLUMNS), torch.arange(12.0).reshape(4, 3)),
    "known count in two dimensions": lambda x: assigned(x > 0, torch.arange(12.0))(x),
    "with a slice": assigned((ROWS, slice(1, None, 2)), torch.arange(3.0)),
    "with a new dimension": assigned((None, ROWS), torch.arange(6.0)),
    "after an ellipsis": assigned((..., COLUMNS), torch.arange(12.0).reshape(4, 3)),
    "with a number": assigned((ROWS, 2), torch.tensor([5.0, 6.0])),
    "bytes": assigned(ROWS.byte(), torch.arange(12.0).reshape(2, 6)),
    "bytes, one row": assigned(ROWS.byte(), torch.arange(6.0)),
    "a byte without dimensions": lambda x: x.__setitem__((x[0, 0] < 0).byte(), 5.0),
    "added row": lambda x: put(x[:, 0] > 0, value=torch.arange(6.0, dtype=x.dtype),
                               accumulate=True)(x),
    "added rows": lambda x: put(ROWS, value=torch.ones(2, 6, dtype=x.dtype), accumulate=True)(x),
}


class Changed(torch.nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        self.change(x)
        return x * 2


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_written(name, dtype):
    ours, eager = X.to(dtype, copy=True), X.to(dtype, copy=True)
    expected = Changed(CHANGES[name])(eager)
    found = poptorch.inferenceModel(Changed(CHANGES[name]), quiet_options())(ours)
    assert torch.equal(found, expected) and torch.equal(ours, eager)


class Trained(torch.nn.Module):
    def __init__(self, accumulate):
        super().__init__()
        self.weight = torch.nn.Parameter(X.clone() / 3)
        self.accumulate = accumulate

    def forward(self, x):
        y = self.weight * x
        value = self.weight[1] * 3
        if self.accumulate:
            y.index_put_((x[:, 0] > 0,), value, True)
        else:
            y[x[:, 0] > 0] = value
        return poptorch.identity_loss((y * torch.arange(24.0).reshape(4, 6)).sum(), "none")


@pytest.mark.parametrize("accumulate", [False, True])
def test_gradients_of_what_is_the_same_for_each_place(accumulate):
    net = Trained(accumulate)
    eager = copy.deepcopy(net)
    loss = eager(X)
    loss.backward()
    with torch.no_grad():
        eager.weight -= 0.1 * eager.weight.grad
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 0.1))
    torch.testing.assert_close(torch.Tensor.detach(model(X)), loss.detach())
    torch.testing.assert_close(net.weight.detach(), eager.weight.detach())


@pytest.mark.parametrize("change, words", [
    (assigned(ROWS, torch.ones(3, 4)), r"\[3, 4\] do not fit what the mask of the shape \[4\] "
                                       r"selects, \[count, 6\]"),
    (assigned(ROWS, torch.ones(3, 6)), "selects 2 places of 6 entries, there are 18 values"),
])
def test_values_that_do_not_fit(change, words):
    with pytest.raises(poptorch.Error, match=words):
        poptorch.inferenceModel(Changed(change), quiet_options())(X.clone())


def read(index):
    return lambda x, i: x[index(i)]


def write(x, i):
    x[i:i + 2] = 0


@pytest.mark.parametrize("use", [
    read(lambda i: slice(i, None)), read(lambda i: slice(i, i + 2)),
    read(lambda i: (slice(None), slice(None, i))), read(lambda i: slice(None, None, i)), write,
    lambda x, i: x.narrow(0, 0, int(i)), lambda x, i: torch.narrow(x, 0, i.item(), 2),
    lambda x, i: x[:int(i)], lambda x, i: x[:, i.item():], lambda x, i: x.split(int(i)),
    lambda x, i: torch.narrow_copy(x, 0, 0, i), lambda x, i: torch.tensor_split(x, [i, i + 1])])
def test_slices_with_tensors_as_bounds(use):
    module = torch.nn.Module()
    module.forward = use
    with pytest.raises(poptorch.Error, match=r"poptorch\.dynamic_slice\(tensor, dim, start, size"):
        poptorch.inferenceModel(module, quiet_options())(X.clone(), torch.tensor(1))


def test_a_read_by_a_mask_of_bytes():
    """As by one of bools: how many there are is not known."""
    module = torch.nn.Module()
    module.forward = lambda x, mask: x[mask]
    with pytest.raises(poptorch.Error, match="the shape of the result depends on the values"):
        poptorch.inferenceModel(module, quiet_options())(X, ROWS.byte())


def test_parts_of_another_type_are_cast():
    module = torch.nn.Module()
    module.forward = lambda x, part: (
        torch.diagonal_scatter(x, part[:4]), torch.select_scatter(x, part, 0, 1),
        torch.slice_scatter(x, part[None].expand(2, 6), 0, 0, 4, 2))
    x, part = X.half(), torch.arange(6.0)
    found = poptorch.inferenceModel(module, quiet_options())(x, part)
    for ours, expected in zip(found, module.forward(x, part), strict=True):
        assert ours.dtype is torch.float16 and torch.equal(ours, expected)


@pytest.mark.parametrize("select", [
    lambda x, mask: torch.ops.aten.masked_select(x.expand(3, 4), mask),
    lambda x, mask: torch.ops.aten.nonzero(mask.expand(3, 4)),
    lambda x, mask: torch.ops.aten.index(x.expand(3, 4), [mask.expand(3, 4)])])
def test_a_count_that_is_not_known(select):
    """How many elements a mask selects is asked of no operator: it would say 0, for zeros."""
    class Net(torch.nn.Module):
        def forward(self, x):
            return select(x, x > 0)

    with pytest.raises(poptorch.Error, match="depends on the values"):
        poptorch.inferenceModel(Net(), quiet_options())(torch.ones(1, 4))
