"""Ctrl-C at random times, in a process of its own.

``python -m tests.run.host.interrupted kind n seed`` ends with a nonzero status at the first thing
that is not as it should be; prints how many interrupts came before the end of the work that they
interrupt.
"""

import os
import random
import signal
import sys
import threading
import time

import torch
from torch import nn

import poptorch
from poptorch._capture import is_capturing
from tests.helpers import quiet_options

HANDLER = signal.default_int_handler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.GRU(6, 2)

    def forward(self, x):
        y = self.last(self.norm(self.first(x)).relu())[0]
        return y, nn.functional.mse_loss(y, torch.zeros(3, 2))


class Steps(nn.Module):
    """Each step takes 1 from both weights, which are far apart in a long program."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))
        self.big = nn.Parameter(torch.zeros(256, 256), requires_grad=False)

    def forward(self, x):
        y = x
        for _ in range(40):
            y = y @ self.big
        return poptorch.identity_loss(self.a + y.sum() * 0 + self.b, "sum")


def interrupted(function, seconds: float) -> bool:
    """Whether a call of a function was ended by the SIGINT that comes after some time."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        function()
        timer.join()
        time.sleep(0)
        return False
    except KeyboardInterrupt:
        return True
    finally:
        timer.join()


def check_process() -> None:
    assert signal.getsignal(signal.SIGINT) is HANDLER
    assert not is_capturing()
    assert torch._C._len_torch_dispatch_stack() == torch._C._len_torch_function_stack() == 0
    assert type(torch.ones(1) + 1) is torch.Tensor
    assert torch.is_grad_enabled()


class Compiling:
    """Interrupts compilations; what is compiled next trains as eager does."""

    def __init__(self):
        self._compiled()  # what is done once in a process

    def _compiled(self):
        net = Net()
        model = poptorch.trainingModel(net, quiet_options(),
                                       torch.optim.SGD(net.parameters(), 0.1))
        model.compile(torch.rand(3, 4))

    def seconds(self) -> float:
        return elapsed(self._compiled)

    def once(self, seconds: float) -> bool:
        net, eager, x = Net(), Net(), torch.rand(3, 4)
        eager.load_state_dict(net.state_dict())
        model = poptorch.trainingModel(net, quiet_options(),
                                       torch.optim.SGD(net.parameters(), 0.1))
        came = interrupted(lambda: model.compile(x), seconds)
        check_process()
        for name, tensor in net.state_dict().items():
            assert type(tensor) is torch.Tensor and tensor.equal(eager.state_dict()[name]), name
        expected, loss = eager(x)
        loss.backward()
        torch.optim.SGD(eager.parameters(), 0.1).step()
        torch.testing.assert_close(model(x)[0], expected.detach())
        torch.testing.assert_close(dict(net.state_dict()), dict(eager.state_dict()))
        model.destroy()
        return came


class Running:
    """Interrupts one model's calls, which take many times as long as a run goes on unasked."""

    iterations, accumulation = 50, 2

    def __init__(self):
        self.net = Steps()
        options = quiet_options(deviceIterations=self.iterations,
                                Training__gradientAccumulation=self.accumulation)
        self.model = poptorch.trainingModel(self.net, options,
                                            torch.optim.SGD(self.net.parameters(), 1.0))
        self.x = torch.ones(self.iterations * self.accumulation * 16, 256)
        self.model(self.x)

    def seconds(self) -> float:
        return elapsed(lambda: self.model(self.x))

    def once(self, seconds: float) -> bool:
        before = self.net.a.item()
        came = interrupted(lambda: self.model(self.x), seconds)
        check_process()
        done = before - self.net.a.item()
        assert self.net.b.item() == self.net.a.item(), (self.net.a, self.net.b)
        assert done in (range(self.iterations + 1) if came else [self.iterations]), done
        before = self.net.a.item()
        self.model(self.x)
        assert before - self.net.a.item() == self.iterations
        return came and done < self.iterations


def elapsed(function) -> float:
    begin = time.monotonic()
    function()
    return time.monotonic() - begin


def main(kind: str, count: int, seed: int) -> None:
    signal.signal(signal.SIGINT, HANDLER)
    draw = random.Random(seed)
    subject = {"compile": Compiling, "run": Running}[kind]()
    longest = min(subject.seconds() for _ in range(3))
    came = sum(subject.once(draw.uniform(0, 0.7 * longest)) for _ in range(count))
    print(f"{came} of {count}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
