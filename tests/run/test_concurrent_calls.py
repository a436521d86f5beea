"""Several threads that call one executor, or executors of one file."""

import pytest
import torch

import poptorch
from tests.helpers import quiet_options
from tests.threads import at_once, frequent_switches

pytestmark = pytest.mark.usefixtures(frequent_switches.__name__)

THREADS, CALLS = 4, 50


def in_threads(work):
    """Calls ``work(number)`` in a thread each; raises the first error."""
    at_once([lambda barrier, number=number: work(number) for number in range(THREADS)])


def network():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                               torch.nn.Linear(8 * 36, 400), torch.nn.Linear(400, 400))


def test_executors_of_one_file(tmp_path):
    x = [torch.randn(2, 3, 8, 8) for _ in range(THREADS)]
    model = poptorch.inferenceModel(network().eval(), quiet_options())
    path = model.compileAndExport(str(tmp_path / "net"), x[0])
    expected = [model(one) for one in x]

    def work(number):
        own = poptorch.load(path)
        for _ in range(CALLS):
            assert torch.equal(own(x[number]), expected[number])

    in_threads(work)


def test_each_call_gives_its_own_result():
    x = [torch.randn(2, 3, 8, 8) for _ in range(THREADS)]
    model = poptorch.inferenceModel(network().eval(), quiet_options())
    expected = [model(one) for one in x]

    def work(number):
        for _ in range(CALLS):
            assert torch.equal(model(x[number]), expected[number])

    in_threads(work)


def test_each_training_call_is_a_step():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def forward(self, x):
            return poptorch.identity_loss(0 * x.sum() - self.weight, "sum")

    net = Counts()
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), 1.0))

    def work(number):
        for _ in range(CALLS):
            model(torch.ones(4))

    in_threads(work)
    assert net.weight.item() == THREADS * CALLS
