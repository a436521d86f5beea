"""Data sets divided among processes."""

import pytest
import torch

import poptorch
from poptorch.data._partition import PartitionSampler
from tests.data.datasets import ASYNC, FORK, Stream, loading, numbers, options, values


def loaders(count, *, processes=3, data_seed=None, d=1, **arguments):
    """The loaders of all processes."""
    made = []
    for process in range(processes):
        opts = options(d)
        if data_seed is not None:
            opts.randomSeed(data_seed)
        opts.Distributed.configureProcessId(process, processes)
        made.append(poptorch.DataLoader(opts, numbers(count), **arguments))
    return made


def test_runs_in_process_order():
    made = loaders(23, batch_size=2)
    assert [values(loader) for loader in made] == [
        list(range(0, 6)), list(range(7, 13)), list(range(14, 20))]
    assert [len(loader) for loader in made] == [23 // (2 * 3)] * 3


def test_nothing_is_left_out_without_drop_last():
    made = loaders(23, batch_size=2, drop_last=False)
    drawn = [values(loader) for loader in made]
    assert sum(drawn, []) == list(range(23))
    assert [len(loader) for loader in made] == [4, 4, 4]


@pytest.mark.parametrize("mode", [poptorch.DataLoaderMode.Sync, ASYNC])
def test_shuffled_parts_are_disjoint_and_new_in_each_epoch(mode, seed):
    made = loaders(40, data_seed=seed, batch_size=2, d=2, shuffle=True, mode=mode,
                   async_options=FORK)
    epochs = [[values(loader) for loader in made] for _ in range(3)]
    for loader in made:
        loader.terminate()
    for epoch in epochs:
        drawn = sum(epoch, [])
        assert [len(part) for part in epoch] == [12, 12, 12]
        assert len(set(drawn)) == 36
    # Equal by chance: 1 in 40! / 4!.
    assert epochs[0] != epochs[1] and epochs[1] != epochs[2]
    assert set(sum(epochs[0] + epochs[1], [])) == set(range(40))


def test_each_process_has_other_samples_in_another_epoch(seed):
    for loader in loaders(1000, data_seed=seed, batch_size=5, shuffle=True):
        assert set(values(loader)) != set(values(loader))


def test_the_seed_alone_decides(seed):
    first, second = (loaders(100, data_seed=seed, batch_size=5, shuffle=True) for _ in range(2))
    for a, b in zip(first, second):
        torch.rand(3)
        assert values(a) == values(b)
    other = loaders(100, data_seed=seed + 1, batch_size=5, shuffle=True)
    assert values(first[0]) != values(other[0])


def test_both_of_two_epochs_cover_everything():
    for seed in range(50):
        parts = [PartitionSampler(31, p, 3, 2, True, seed) for p in range(3)]
        used = [list(part)[: len(part) // 2 * 2] for part in parts]
        again = [list(part)[: len(part) // 2 * 2] for part in parts]
        assert len(set(sum(used, []))) == len(set(sum(again, []))) == 30
        assert set(sum(used + again, [])) == set(range(31))


def test_small_data_sets():
    for size in range(8):
        parts = [PartitionSampler(size, p, 3, 2, True, 1) for p in range(3)]
        assert [len(list(part)) for part in parts for _ in range(2)] == [size // 3] * 6


def test_partitioned_by_hand():
    opts = options()
    opts.Distributed.configureProcessId(1, 2)
    manual = {"batch_size": 2, "auto_distributed_partitioning": False}
    assert values(poptorch.DataLoader(opts, numbers(6), **manual)) == list(range(6))
    assert values(poptorch.DataLoader(opts, Stream(6), **manual)) == list(range(6))
    loader = poptorch.DataLoader(opts, numbers(6), sampler=[1, 3, 5, 0], **manual)
    assert values(loader) == [1, 3, 5, 0]


def test_what_cannot_be_divided():
    opts = options()
    opts.Distributed.configureProcessId(1, 2)
    with pytest.raises(ValueError, match="iterable data set cannot be divided among 2 processes"):
        poptorch.DataLoader(opts, Stream(6))
    with pytest.raises(ValueError, match="a sampler cannot be divided"):
        poptorch.DataLoader(opts, numbers(6), sampler=[1, 2])
    with pytest.raises(ValueError, match="a batch_sampler cannot be divided"):
        poptorch.DataLoader(opts, numbers(6), batch_sampler=[[1, 2]])
    with pytest.raises(ValueError, match="Call options.randomSeed"):
        poptorch.DataLoader(opts, numbers(6), shuffle=True)


def test_unbatched_parts():
    opts = options()
    opts.Distributed.configureProcessId(1, 2)
    with loading(poptorch.DataLoader(opts, numbers(5), batch_size=None)) as loader:
        assert values(loader) == [2, 3, 4]
