"""Workers that are forked while a model is on the device."""

import gc
import multiprocessing

import pytest
import torch
from torch.utils.data import Dataset

import poptorch
from poptorch import AsynchronousDataAccessor as Accessor
from tests.data.datasets import ASYNC, FORK, loading, numbers, options, values


class Net(torch.nn.Module):
    """One layer and its loss."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 1, bias=False)

    def forward(self, x):
        return poptorch.identity_loss(self.fc(x).square(), reduction="mean")


class Reading(Dataset):
    """Items made from the results of ``read`` in the worker."""

    def __init__(self, read):
        self.read = read

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.read()


@pytest.fixture(scope="module")
def wrapped():
    """A module and its executor."""
    net = Net()
    opts = poptorch.Options().showCompilationProgressBar(False)
    model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), lr=0.1))
    yield net, model
    model.destroy()


@pytest.fixture
def trained(wrapped):
    """The same, with weights on the device that are newer than those on the host."""
    wrapped[1](torch.ones(4, 2))
    return wrapped


def make(read, mode, workers):
    return loading(poptorch.DataLoader(options(), Reading(read), batch_size=None, mode=mode,
                                       num_workers=workers, async_options=FORK))


CASES = pytest.mark.parametrize("mode, workers", [
    (poptorch.DataLoaderMode.Sync, 1), (ASYNC, 0), (ASYNC, 1)])


@CASES
def test_weights_on_the_host_can_be_read(trained, mode, workers):
    net, model = trained
    model.copyWeightsToHost()
    with make(lambda: net.fc.weight.detach(), mode, workers) as loader:
        assert all(x.equal(net.fc.weight) for x in loader)


@CASES
def test_weights_on_the_device_cannot(trained, mode, workers):
    net, _ = trained
    with pytest.raises(poptorch.Error, match="in process .* a fork of it.*before the fork"):
        with make(lambda: net.fc.weight.detach(), mode, workers) as loader:
            list(loader)


def test_the_model_cannot_run(trained):
    _, model = trained
    with pytest.raises(poptorch.Error, match="Use the model where it was compiled"):
        make(lambda: model(torch.ones(4, 2)), ASYNC, 0)


@pytest.mark.sampled
def test_memory_of_a_dropped_model_is_not_unmapped_in_a_fork():
    """The addresses may belong to something else there."""
    models = [poptorch.inferenceModel(torch.nn.Linear(4, 4), options()) for _ in range(3)]
    for model in models:
        model(torch.ones(1, 4))

    def read():
        taken = [torch.ones(2**19) for _ in range(16)]  # maps memory, some of it in the holes
        models.clear()
        gc.collect()
        return torch.stack([x.sum() for x in taken])

    with make(read, ASYNC, 0) as loader:
        assert all(x.eq(2**19).all() for x in loader)


def _in_a_fork(function):
    """What a function gives in a process that is forked from this one."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(function()))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    finally:
        process.join()


def test_a_fork_does_not_take_items_from_the_program():
    """It makes a loading process of its own."""
    def read():
        with pytest.raises(poptorch.Error, match="this process was forked from the one that made"):
            next(iterator)
        with loading(loader):
            return [values(loader), values(loader)]

    with loading(poptorch.DataLoader(options(), numbers(4), mode=ASYNC,
                                     async_options=FORK)) as loader:
        iterator = iter(loader)
        first = next(iterator)[0].item()
        assert _in_a_fork(read) == [[0, 1, 2, 3]] * 2
        assert [first, *(x.item() for x, in iterator)] == [0, 1, 2, 3] == values(loader)


def test_an_accessor_belongs_to_its_process():
    def words():
        with pytest.raises(poptorch.Error) as caught:
            iter(accessor)
        return str(caught.value)

    with loading(Accessor(range(3), **FORK)) as accessor:
        assert "forked from the one that made the accessor, which alone may read from it. Make " \
            "one here." in _in_a_fork(words)
        assert list(accessor) == [0, 1, 2]


def test_a_model_does_not_keep_the_ring_from_using_memory_again():
    model = poptorch.inferenceModel(torch.nn.Linear(64, 64), options())
    data = torch.utils.data.TensorDataset(torch.randn(40, 64))
    with loading(poptorch.DataLoader(options(), data, batch_size=2, mode=ASYNC,
                                     async_options=FORK)) as loader:
        addresses = [(model(x), x.data_ptr())[1] for [x] in loader]
    assert len(addresses) == 20 and len(set(addresses)) <= 5
    model.destroy()
