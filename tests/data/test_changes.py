"""Changes of data sets and samplers that the loading process does not see are warned of."""

import pytest
from torch.utils.data import BatchSampler, DistributedSampler

import poptorch
from tests.data.datasets import ASYNC, FORK, REBATCHED, Stream, numbers, options

SAID = "when the process that loads ahead began, it is"


def sampler_of(data):
    return DistributedSampler(data, num_replicas=1, rank=0)


def told(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if SAID in line]


@pytest.mark.parametrize("is_batched", [False, True])
@pytest.mark.parametrize("mode", [ASYNC, REBATCHED, poptorch.DataLoaderMode.Sync])
def test_the_epoch_of_a_sampler(mode, is_batched, capsys):
    data = numbers()
    sampler = sampler_of(data)
    how = {"batch_sampler": BatchSampler(sampler, 4, False)} if is_batched \
        else {"sampler": sampler, "batch_size": 4}
    loader = poptorch.DataLoader(options(), data, mode=mode, async_options=FORK, **how)
    orders = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        orders.append([x.tolist() for [x] in loader])
        found = told(capsys)
        if mode is poptorch.DataLoaderMode.Sync or epoch != 1:
            assert not found
        else:
            [line] = found
            assert "epoch of a DistributedSampler was 0 when the process" in line
            assert "it is 1: the process has a copy" in line
    assert (orders[0] == orders[1]) is (mode is not poptorch.DataLoaderMode.Sync)
    loader.terminate()


@pytest.mark.parametrize("mode", [ASYNC, REBATCHED])
def test_a_data_set(mode, capsys):
    data = Stream(8)
    loader = poptorch.DataLoader(options(), data, batch_size=4, mode=mode, async_options=FORK)
    list(loader)
    assert not told(capsys)
    data.stage = "second"
    list(loader)
    assert "stage of a Stream was not there when the process that loads ahead began, it is " \
        "'second'" in told(capsys)[0]
    loader.terminate()


def test_what_stays_the_same(capsys):
    accessor = poptorch.AsynchronousDataAccessor(numbers(3), **FORK)
    for _ in range(3):
        assert len(list(accessor)) == len(accessor)
    assert not told(capsys)
    accessor.terminate()
