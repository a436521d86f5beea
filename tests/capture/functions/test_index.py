"""Indexing by integer tensors without dimensions, which torch turns into numbers."""

import pytest
import torch

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function, check_inference, check_training, nodes
from tests.helpers import quiet_options

X = torch.arange(24.0, dtype=torch.float64).reshape(2, 3, 4) - 11.5
READS = {
    "first": lambda x, i, j: x[i],
    "second": lambda x, i, j: x[:, i],
    "last": lambda x, i, j: x[..., i],
    "both": lambda x, i, j: x[i, :, i],
    "new": lambda x, i, j: x[None, i, 1:, None],
    "chained": lambda x, i, j: x[i][i],
    "after_list": lambda x, i, j: x[j, i],
    "before_list": lambda x, i, j: x[i, j],
    "all": lambda x, i, j: x[i, i, i],
}


@pytest.mark.parametrize("number", (0, 1, -1))
@pytest.mark.parametrize("name", READS)
def test_reads(name, number):
    def forward(m, x, i, j):
        y = READS[name](x * m.w, i, j)
        return y, poptorch.identity_loss(y * y, "sum")

    module = Function(forward, {"w": torch.linspace(1, 2, 4, dtype=torch.float64)})
    check_training(module, X, torch.tensor(number), torch.tensor([1, 0]))


def _first(x, i, y):
    x[i] = 2.5


def _second(x, i, y):
    x[:, i] = y[:, 0]


def _last(x, i, y):
    x[..., i] = x[..., i] + y.sum()


def _several(x, i, y):
    x[i, 1:, i] = y[0, :2, 0]


def _new(x, i, y):
    x[None, i, None, :2] = y[0, :2]


def _broadcast(x, i, y):
    x.transpose(0, 2)[1:, i] = y[None, 0, 0, :2]


@pytest.mark.parametrize("number", (0, 1, -1))
@pytest.mark.parametrize("write", (_first, _second, _last, _several, _new, _broadcast))
def test_writes(write, number):
    def forward(m, x, i):
        y = x * m.w
        z = y.clone()
        write(z, i, y)
        return z, poptorch.identity_loss(z * z, "sum")

    module = Function(forward, {"w": torch.linspace(1, 2, 4, dtype=torch.float64)})
    check_training(module, X, torch.tensor(number))


def _changed_view(m, x, i):
    y = x[i]
    y += 1
    return x


def _changed_part(m, x, i):
    x[i][1:].zero_()
    return x


def _changed_base(m, x, i):
    y = x[i]
    x.zero_()
    return y


def _read_after_base(m, x, i):
    y = x[:, i][i]
    x[0] = 1.0
    return y + 1


def _changed_by_two(m, x, i):
    x[i, ..., i] *= 3
    x[i][i] += x[i * 0][i] * 2
    return x


def _index_changed(m, x, i):
    y = x[i]
    i -= 1
    y += 1
    x[0, 0] = 9.0
    return x, y


def _part_of_a_view(m, x, i):
    row = x.transpose(0, 2)[1:][i]
    x *= 2
    torch.add(row, 1, out=row)
    row.t_().unsqueeze_(0)
    return row, x


def _copied_by_reshape(m, x, i):
    x.transpose(1, 2)[i].reshape(-1).add_(1)
    x[i].reshape(-1).mul_(3)
    return x


@pytest.mark.parametrize("number", (0, 1, -1))
@pytest.mark.parametrize("forward", (_copied_by_reshape, _changed_view, _changed_part,
                                     _changed_base, _read_after_base, _changed_by_two,
                                     _index_changed, _part_of_a_view))
def test_elements_are_views(forward, number):
    check_inference(Function(forward), X, torch.tensor(number))


def _added(m, x, i):
    x[i] += m.w
    return x


def _part_multiplied(m, x, i):
    y = x[i]
    y[1:] *= m.w
    y.neg_()
    return x.sin() + y.sum()


def _three_deep(m, x, i):
    y = x[i]
    z = y[i]
    z.mul_(m.w)
    x[i, i].exp_()
    return x * 2 + x[i][i]


def _of_a_computed_one(m, x, i):
    x = x * m.w
    x[:, i, 1:] = x[:, i, 1:] * 2
    x[i].mul_(m.w)
    torch.nn.functional.relu(x[..., i][i], inplace=True)
    return x[..., i] * x[i].sum()


def _without_gradient(m, x, i):
    with torch.no_grad():
        m.w[i] += 1.0
        x[i].zero_()
    return x * m.w


@pytest.mark.parametrize("number", (0, 1, -1))
@pytest.mark.parametrize("forward", (_added, _part_multiplied, _of_a_computed_one,
                                     _without_gradient, _three_deep))
def test_changes_have_gradients(forward, number):
    def with_loss(m, x, i):
        y = forward(m, x, i)
        return y, poptorch.identity_loss(y * y, "sum")

    w = torch.linspace(1, 2, 4, dtype=torch.float64)
    check_training(Function(with_loss, {"w": w}, {"b": X.clone()}), X, torch.tensor(number))


def _truth(m, x, b, y):
    x[b] = y
    x[b, 1:] = 2.5
    x[~b, ..., None, 0] = y[..., :1]
    x[b, b, 0] = y[:1]
    return x


def _of_a_number(m, x, b, y):
    z = x[0, 0, 0]
    z[b] = torch.nan
    z[b] = y[0, 0]
    return x, z


@pytest.mark.parametrize("truth", (True, False))
@pytest.mark.parametrize("write", (_truth, _of_a_number))
def test_writes_if(write, truth):
    def with_loss(m, x, b, y):
        x = x * m.w
        write(m, x, b, y * m.w)
        return x, poptorch.identity_loss(x.nan_to_num() * x.nan_to_num(), "sum")

    y = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    module = Function(with_loss, {"w": torch.linspace(1, 2, 4, dtype=torch.float64)})
    check_training(module, X, torch.tensor(truth), y)


def test_one_write_for_each_statement():
    def forward(m, x, i):
        x[i] += 1
        return x.clone()

    captured = check_inference(Function(forward), X, torch.tensor(1))
    assert len(nodes(captured, torch.ops.aten.index_put.default)) == 1


def _check_error(forward, words):
    def with_loss(m, x, i):
        return poptorch.identity_loss(forward(m, x * m.w, i), "sum")

    module = Function(with_loss, {"w": torch.ones(1, dtype=torch.float64)})
    with pytest.raises(poptorch.Error, match=f"(?s){words}.*test_index.py"):
        capture(module, (X, torch.tensor(1)), training=True)


def test_a_stale_element_with_a_gradient_is_an_error():
    def forward(m, x, i):
        y = x[i]
        x *= 2
        return y.sum()

    _check_error(forward, r"is used after x was changed in place, and a gradient .* Take x\[i\]")


def test_the_memory_of_an_element_is_an_error():
    _check_error(lambda m, x, i: x[i].as_strided((2,), (1,), 0).sum(),
                 "where it begins is not known. Use a copy")


@pytest.mark.parametrize("part", [lambda y: y, lambda y: y[1:], lambda y: y.mT.unsqueeze(0)])
def test_where_an_element_begins_is_an_error(part):
    """It depends on the index, so on what each call passes."""
    _check_error(lambda m, x, i: x * part(x[i]).storage_offset(),
                 r"needs the value of a tensor \(Tensor.storage_offset\(\) of x\[i\]\)")
    for y in (lambda x, i: x[1], lambda x, i: x[i] * 1):
        check_inference(Function(lambda m, x, i: x * part(y(x, i)[..., 1:]).storage_offset()),
                        X, torch.tensor(1))


def test_change_after_the_last_use():
    def forward(m, x, i):
        y = x[i] + 1
        z = x[i].clone()
        x.mul_(2)
        z += 1
        return y, z

    check_inference(Function(forward), X, torch.tensor(1))


def _narrowed(x, i):
    return torch.narrow(x, 1, i, 2) * 2, x.narrow(dim=0, start=i, length=1)


def _narrow_written(x, i):
    part = x.narrow(1, i, 2)
    part += 1
    part[:, 0] = 7
    doubled = part * 2
    x.mul_(3)
    return x, part, doubled


def _narrow_filled(x, i):
    x.narrow(-1, i, 2).fill_(0.5)
    return x * 2


@pytest.mark.parametrize("number", [0, 1, -2])
@pytest.mark.parametrize("function", [_narrowed, _narrow_written, _narrow_filled])
def test_narrow(function, number):
    def forward(m, x, i):
        return function(x * m.w, i)

    def with_loss(m, x, i):
        y = function(x * m.w, i)[0]
        return y, poptorch.identity_loss(y * y, "sum")

    weights, i = {"w": torch.linspace(1, 2, 4, dtype=torch.float64)}, torch.tensor(number)
    check_inference(Function(forward, weights), X, i)
    if function is not _narrow_written:
        check_training(Function(with_loss, weights), X, i)


@pytest.mark.parametrize("start", [3, 4, -5, -6])
def test_narrow_out_of_range(start):
    model = poptorch.inferenceModel(lambda x, i: _narrow_filled(x * 1, i), quiet_options())
    with pytest.raises(poptorch.Error, match="out of range: dimension 2 has 4 entries"):
        model(X.float(), torch.tensor(start))


def test_narrow_to_nothing():
    model = poptorch.inferenceModel(lambda x, i: (x.narrow(2, i, 0), x.sum()), quiet_options())
    assert model(X.float(), torch.tensor(4))[0].shape == (2, 3, 0)
    with pytest.raises(poptorch.Error, match=r"\[narrow\] start is out of range: dimension 2 has 4 "
                                             r"entries. Pass a start from -4 to 4."):
        model(X.float(), torch.tensor(5))


def test_run():
    model = poptorch.inferenceModel(Function(lambda m, x, i: x[:, i]), quiet_options())
    for number in (0, 2, -1):
        assert torch.equal(model(X.float(), torch.tensor(number)), X.float()[:, number])


def _numbers(m, x, i):
    x[1, 2] = 7
    x[i] = 3.0
    x[0, [1, 3]] = True
    x[1:, :2] = 1.5
    return x


def test_numbers_are_constants_with_each_release_of_torch():
    """torch 2.15 has other operations for them: full, and four in place of index_put."""
    x, i = torch.zeros(3, 4), torch.tensor([0, 2])
    captured = capture(Function(_numbers), (x, i), training=False)
    assert [node.target.overloadpacket.__name__ for node in nodes(captured)] == [
        "select", "select_scatter", "select_scatter", "index_put", "select", "index_put",
        "select_scatter", "slice", "expand", "slice_scatter", "slice_scatter"]
    check_inference(Function(_numbers), x, i)


@pytest.mark.parametrize("value", (2j, 1e300, "a"))
def test_numbers_that_the_type_does_not_hold(value):
    def forward(m, x):
        x[1:] = value
        return x

    with pytest.raises(Exception) as eager:
        forward(None, torch.zeros(3))
    with pytest.raises(poptorch.Error) as raised:
        capture(Function(forward), (torch.zeros(3),), training=False)
    assert str(eager.value) in str(raised.value)
