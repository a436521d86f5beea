"""poptorch.DataLoader in Sync mode."""

import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

import poptorch

NUMBERS = TensorDataset(torch.arange(20))


def options(d=1, r=1, g=1):
    opts = poptorch.Options().deviceIterations(d).replicationFactor(r)
    opts.Training.gradientAccumulation(g)
    return opts


def items(loader):
    return [x.tolist() for [x] in loader]


def test_combined_batch_size():
    loader = poptorch.DataLoader(options(2, 2, 2), NUMBERS, batch_size=2)
    assert loader.combinedBatchSize == 16 and len(loader) == 1
    assert items(loader) == [list(range(16))]
    assert isinstance(loader, torch.utils.data.DataLoader)


def test_last_batch():
    loader = poptorch.DataLoader(options(3), NUMBERS, batch_size=3, drop_last=False)
    assert [len(x) for x in items(loader)] == [9, 9, 2] and len(loader) == 3
    assert len(poptorch.DataLoader(options(3), NUMBERS, batch_size=3)) == 2


def test_shuffle_draws_all():
    loader = poptorch.DataLoader(options(2), NUMBERS, batch_size=5, shuffle=True)
    assert sorted(sum(items(loader), [])) == list(range(20))


def test_unbatched():
    loader = poptorch.DataLoader(options(), NUMBERS, batch_size=None)
    assert loader.combinedBatchSize is None
    assert items(loader)[:2] == [0, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable(workers):
    class Stream(IterableDataset):
        def __iter__(self):
            info = torch.utils.data.get_worker_info()
            first, step = (info.id, info.num_workers) if info else (0, 1)
            return iter(torch.arange(first, 8, step))

    loader = poptorch.DataLoader(options(), Stream(), batch_size=2, num_workers=workers)
    assert sorted(x for t in loader for x in t.tolist()) == list(range(8))


def test_bad_arguments():
    with pytest.raises(TypeError, match="must be a poptorch.Options, got TensorDataset"):
        poptorch.DataLoader(NUMBERS, 4)
    with pytest.raises(ValueError, match="batch_size.*at least 1, got 0"):
        poptorch.DataLoader(options(), NUMBERS, batch_size=0)
    with pytest.raises(TypeError, match="DataLoaderMode.Sync"):
        poptorch.DataLoader(options(), NUMBERS, mode="Sync")
