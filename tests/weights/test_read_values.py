"""Plain tensors whose values forward reads in Python code: a change recompiles."""

import re

import numpy as np
import pytest
import torch

import poptorch
from tests.helpers import quiet_options

X = torch.arange(8.0).reshape(2, 4)
READS = {
    "item": lambda m, x: x * m.t[1].item(),
    "item of one": lambda m, x: x * m.one.item(),
    "tolist": lambda m, x: x * m.t.tolist()[1],
    "numpy": lambda m, x: x * float(m.t.numpy()[1]),
    "asarray": lambda m, x: x * float(np.asarray(m.t)[1]),
    "dlpack": lambda m, x: x * float(np.from_dlpack(m.t)[1]),
    "list": lambda m, x: torch.cat([x] * int(list(m.t)[2])),
    "computed": lambda m, x: x * (m.t * 2 + 1).tolist()[1],
    "if": lambda m, x: x if m.t.sum() > 6 else -x,
    "equal": lambda m, x: x if torch.equal(m.t, torch.arange(4.0)) else -x,
    "allclose": lambda m, x: x if torch.allclose(m.t, torch.arange(4.0)) else -x,
    "slice": lambda m, x: x[:, :m.t[2].int()],
    "index": lambda m, x: x * [1, 2, 3, 4, 5][m.t.long()[3]],
    "sizes": lambda m, x: x * m.t.nonzero().shape[0],
    "repeat": lambda m, x: x.repeat_interleave(m.t.long(), 1),
}


class Reading(torch.nn.Module):
    def __init__(self, read):
        super().__init__()
        self.t, self.one, self.read = torch.arange(4.0), torch.tensor(2.0), read

    def forward(self, x):
        return self.read(self, x)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_change_of_what_was_read(read):
    module = Reading(read)
    model = poptorch.inferenceModel(module, quiet_options())
    for _ in range(2):
        assert torch.equal(model(X), module(X))
    held = module.one if read is READS["item of one"] else module.t
    before = held.clone()
    held.copy_(before.flip(0) + 1)
    assert torch.equal(model(X), module(X))
    held.copy_(before)
    assert torch.equal(model(X), module(X))
    assert re.fullmatch(r"the values of self\.(t|one) changed, which are compiled in as a "
                        r"constant", model.programs()[1].reason) and len(model.programs()) == 2


def test_what_was_not_read_may_change():
    module = Reading(lambda m, x: x * m.one.item() * m.t.shape[0])
    model = poptorch.inferenceModel(module, quiet_options())
    first = model(X)
    module.t += 1
    assert torch.equal(model(X), first)


class Buffers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 2.0]))
        self.register_buffer("count", torch.tensor(3))
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        if self.scale.sum() > 2:
            x = x * 2
        return torch.cat([x * self.scale.tolist()[0] * self.weight] * int(self.count))


def test_buffers_that_forward_does_not_change(tmp_path):
    module = Buffers()
    model = poptorch.inferenceModel(module, quiet_options())
    for change in (lambda: None, lambda: module.count.fill_(2), lambda: module.scale.mul_(0.4)):
        change()
        for _ in range(2):
            assert torch.equal(model(X), module(X).detach())
    assert [program.reason for program in model.programs()[1:]] == [
        f"the values of self.{name} changed, which are compiled in as a constant"
        for name in ("count", "scale")]
    again = poptorch.load(model.save(tmp_path / "net.poptorch"))
    assert torch.equal(again(X), model(X))
    again.model.count.fill_(1)
    assert torch.equal(again(X), again.model(X).detach())


def test_a_buffer_that_another_executor_changes():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 2)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            if self.training:
                self.calls += 1
                return poptorch.identity_loss(self.fc(x).sum(), "none")
            return self.fc(x) * self.calls.item()

    module = Counting()
    trained = poptorch.trainingModel(module, quiet_options())
    trained.compile(X)
    model = poptorch.inferenceModel(module.eval(), quiet_options())
    for _ in range(3):
        trained(X)
        torch.testing.assert_close(model(X), module(X).detach())


def test_a_buffer_that_forward_changes_is_not_read():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            x = x * 2 if self.calls > 3 else x
            self.calls += 1
            return x

    with pytest.raises(poptorch.Error) as caught:
        poptorch.inferenceModel(Counter(), quiet_options())(X)
    assert ("[capture] forward reads the value of self.calls in Python code (if, .item(), "
            ".tolist()) and also changes it, so each call would need another program. Use "
            "torch.where, or do not change it in forward.") in caught.value.message
