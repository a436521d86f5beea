"""Python code reads the values of tensors that are computed from constants alone."""

import pytest
import torch

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function, check_inference
from tests.helpers import quiet_options

X = torch.arange(8.0).reshape(2, 4) - 1


def _lengths(x):
    length = torch.full((2,), x.shape[1]).sum() // 4
    return (x.narrow(1, length - 1, 2), torch.narrow(x, dim=1, start=length, length=1),
            torch.narrow(x, 1, 0, length))


def _write(x):
    x = x.clone()
    x[:torch.tensor(x.shape[0]) - 1] = 3
    return x


def _counted(x):
    count = torch.zeros(())
    while count < 3:
        count = count + 1
        x = x * count
    return x


def _changed_by_a_view(x):
    length = torch.zeros(3, dtype=torch.long)
    last = length[1]
    length.fill_(x.shape[0])
    return x[:, :last]


def _changed(x):
    count, mask = torch.zeros((), dtype=torch.long), torch.zeros(4)
    while count < 3:
        mask[count] = 1 if count != 1 else 0
        count += 1
    return x * mask.sum().item(), x[:, mask > 0], x * mask.tolist()[2]


READS = {
    "item": lambda x: x * torch.arange(x.shape[1]).expand(2, 4).max().item(),
    "if": lambda x: x + 1 if torch.arange(x.shape[1])[-1] > 2 else x,
    "range": lambda x: torch.stack([x * i for i in range(torch.arange(4).max())]),
    "equal": lambda x: x + 1 if torch.equal(torch.arange(2), torch.tensor([0, 1])) else x,
    "tolist": lambda x: x.split(torch.arange(1, 3).add(torch.tensor([0, 1])).tolist(), 1),
    "slice": lambda x: x[:, 2 - torch.tensor(min(x.shape[0], 2)):1 + torch.tensor(1)],
    "slice written": _write,
    "narrow": _lengths,
    "while": _counted,
    "changed": _changed,
    "changed by a view": _changed_by_a_view,
    "sizes": lambda x: x.view(torch.tensor(x.shape).prod().item()),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_values_that_are_known(read):
    check_inference(Function(lambda m, x: read(x)), X)


def test_what_is_made_of_an_attribute():
    module = Function(lambda m, x: x * (m.t * 2).tolist()[1])
    module.t = torch.arange(4.0) + 5
    check_inference(module, X)


def test_a_value_is_read_before_it_is_changed():
    def forward(m, x):
        made = torch.zeros(3, dtype=x.dtype)
        before = made[0].item()
        made[0] = 2
        return x + before, made * x[0, :3]

    check_inference(Function(forward), X)


def test_a_body_reads_what_it_makes_of_constants():
    model = poptorch.inferenceModel(Function(lambda m, x: poptorch.for_loop(
        2, lambda y: (y * torch.arange(4)[3].item(),), [x])[0]), quiet_options())
    assert torch.equal(model(X), X * 9)


def test_a_body_reads_what_is_changed_after_it():
    """The second time, the body would have to read another value."""
    def body(y, made):
        y = y + made[0].item()
        made += 1
        return y, made

    module = Function(lambda m, x: poptorch.for_loop(2, body, [x, torch.zeros(3)])[0])
    with pytest.raises(poptorch.Error, match="forward is compiled before there are values"):
        capture(module, (X,), training=False)


def test_a_body_reads_an_outer_constant_that_it_changes():
    def forward(m, x):
        made = torch.zeros(3)

        def body(y):
            y = y + made[0].item()
            made.add_(1)
            return (y,)

        return poptorch.for_loop(2, body, [x])[0]

    with pytest.raises(poptorch.Error):
        capture(Function(forward), (X,), training=False)


def _changed_by_the_input(x):
    total = torch.zeros(())
    total += x.sum()
    return x.tolist() if total > 0 else x


REFUSED = {
    "input": lambda x: x + 1 if x.sum() > 0 else x,
    "random": lambda x: x + 1 if torch.rand([]) > 0 else x,
    "bound": lambda x: x[:, :x.argmax()],
    "narrow": lambda x: x.narrow(1, 0, x.argmax()),
    "changed by the input": _changed_by_the_input,
}


@pytest.mark.parametrize("read", [lambda t: t.tolist()[1], lambda t: t[1].item(),
                                  lambda t: (t.clone() + 1)[1].item()])
def test_an_attribute_that_forward_changes_is_not_known(read):
    """In the next call of eager it has another value."""
    def forward(m, x):
        m.t.view(2, 2)[0] += 3
        return x * read(m.t)

    module = Function(forward)
    module.t = torch.arange(4.0)
    with pytest.raises(poptorch.Error, match="forward is compiled before there are values"):
        capture(module, (X,), training=False)


@pytest.mark.parametrize("read", REFUSED.values(), ids=REFUSED)
def test_values_that_are_not_known(read):
    with pytest.raises(poptorch.Error, match="forward is compiled before there are values"):
        capture(Function(lambda m, x: read(x)), (X,), training=False)
