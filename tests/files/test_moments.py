"""Files that are written while the model trains: all that is in one is of one step."""

import contextlib
import signal
import threading

import torch

import poptorch
from tests.helpers import quiet_options as options


class Sum(torch.nn.Module):
    """Each of its gradients is 1."""

    def __init__(self, size):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(size))

    def forward(self, x):
        return poptorch.identity_loss((self.w * x).sum(), "none")


def trained(size, iterations=1):
    """After n steps the momentum is n, and each weight -n (n + 1) / 2."""
    net = Sum(size)
    return poptorch.trainingModel(net, options(deviceIterations=iterations), torch.optim.SGD(
        net.parameters(), lr=1.0, momentum=1.0))


def is_of_one_step(path):
    again = poptorch.load(path)
    before = again.model.w.detach().clone()
    again(torch.ones(again.options.device_iterations, 1))
    steps = again.options.device_iterations
    momentum = round((before - again.model.w.detach()).unique().item() / steps - (steps + 1) / 2)
    return before.unique().tolist() == [-momentum * (momentum + 1) / 2]


@contextlib.contextmanager
def another_thread(model, *args):
    """Another thread calls a model again and again."""
    is_over = threading.Event()
    model(*args)

    def call():
        while not is_over.is_set():
            model(*args)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_another_thread_trains(tmp_path):
    model = trained(300_000)
    with another_thread(model, torch.ones(1, 1)):
        paths = [model.save(tmp_path / f"{number}.poptorch") for number in range(8)]
    assert [is_of_one_step(path) for path in paths] == [True] * 8


class Pieces(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.pieces = torch.nn.ParameterList([torch.zeros(30_000) for _ in range(8)])

    def forward(self, x):
        return poptorch.identity_loss(sum(piece.sum() for piece in self.pieces) * x, "none")


def test_another_executor_trains_the_weights(tmp_path):
    net = Pieces()
    model = poptorch.inferenceModel(net, options())
    model.compile(torch.ones(()))
    training = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=1.0))
    with another_thread(training, torch.ones(())):
        paths = [model.save(tmp_path / f"{number}.poptorch") for number in range(12)]
    for path in paths:
        pieces = poptorch.load(path).model.pieces
        assert len({value for piece in pieces for value in piece.unique().tolist()}) == 1


def test_the_handler_of_a_signal_in_a_call(tmp_path):
    model, x, paths = trained(30_000, 400), torch.ones(400, 1), []
    model.compile(x)
    caller, callers = threading.get_ident(), model._lifecycle._callers

    def save(*_):
        paths.append((caller in callers, model.save(tmp_path / "net.poptorch")))

    before = signal.signal(signal.SIGALRM, save)
    try:
        while not any(is_in_call for is_in_call, _ in paths):
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            model(x)
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert is_of_one_step(paths[-1][1])
