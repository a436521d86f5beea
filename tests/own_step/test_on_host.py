"""``options.Training.optimizerOnHost``: step() runs in eager mode on the device's gradients."""

import pytest
import torch

import poptorch
from poptorch.testing import wide
from tests.own_step import zoo
from tests.own_step.common import Beside, Net, options


class Prodigal(zoo.Own):
    """The learning rate depends on a value of the weights, which step() reads."""

    def update(self, p, grad, state, group):
        distance = float((p * grad).sum().abs())
        group["d"] = max(group.get("d", 1e-3), distance * 1e-3)
        p.add_(grad, alpha=-group["lr"] * group["d"])
        if p.abs().max() > 10:
            p.clamp_(-10, 10)


@pytest.mark.parametrize("make", [
    Prodigal, zoo.ALL["Lion"], lambda p: torch.optim.Adam(p, lr=0.01),
    lambda p: poptorch.optim.AdamW(p, lr=0.01)])
def test_updates_are_those_of_eager_mode(make):
    with wide():
        both = Beside(make, options(4, 2, on_host=True))
        both.train(10)
        for optimizer in (both.optimizer, both.reference):
            optimizer.param_groups[0]["lr"] = 0.003
        both.train(10)
        both.check()
        assert len(both.model.programs()) == 1


def test_gradients_are_left_for_the_program():
    with wide():
        both = Beside(Prodigal, options(2, 2, on_host=True))
        both.train()
        for ours, theirs in zip(both.net.parameters(), both.eager.parameters()):
            assert (ours.grad is None) == (theirs.grad is None)
            if theirs.grad is not None:
                assert torch.allclose(ours.grad, theirs.grad, rtol=1e-9)


def test_several_updates_in_a_call_are_refused():
    net = Net()
    with pytest.raises(poptorch.Error, match=r"deviceIterations\(2\) updates. Set"):
        poptorch.trainingModel(net, options(iterations=2, on_host=True),
                               Prodigal(net.parameters()))


def test_a_setting_of_the_device_is_refused():
    net = Net()
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.1, max_grad_norm=1.0)
    with pytest.raises(poptorch.Error, match="max_grad_norm of parameter group 0 is 1.0"):
        poptorch.trainingModel(net, options(on_host=True), optimizer)


def test_clipping_is_on_the_device():
    net = Net()
    opts = options(on_host=True)
    opts.Training.gradientClipping(norm=0.01)
    model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), lr=0.1))
    model(torch.randn(2, 5), torch.randn(2, 1))
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    assert torch.nn.utils.get_total_norm(grads).item() == pytest.approx(0.01, rel=1e-4)


def test_a_file_holds_the_program(tmp_path):
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, options(on_host=True), optimizer)
    x, target = torch.randn(2, 5), torch.randn(2, 1)
    model(x, target)
    again = poptorch.load(model.save(str(tmp_path / "net.poptorch")))
    for _ in range(3):
        assert torch.equal(model(x, target)[1], again(x, target)[1])
