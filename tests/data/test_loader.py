"""poptorch.DataLoader: sizes, samplers, batch samplers, iterable data sets; alike in all modes."""

import pickle

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, TensorDataset

import poptorch
from tests.data.datasets import (
    ASYNC,
    FORK,
    REBATCHED,
    Stream,
    loading,
    numbers,
    options,
    values,
)

SYNC = poptorch.DataLoaderMode.Sync
MODES = [SYNC, ASYNC, REBATCHED]


def make(mode, opts, data, **arguments):
    """A loader whose process, if it has one, is forked."""
    return loading(poptorch.DataLoader(opts, data, mode=mode, async_options=FORK, **arguments))


def items(loader):
    return [x.tolist() for [x] in loader]


def test_combined_batch_size():
    loader = poptorch.DataLoader(options(2, 2, 2), numbers(), batch_size=2)
    assert loader.combinedBatchSize == 16 and len(loader) == 1
    assert items(loader) == [list(range(16))]
    assert isinstance(loader, torch.utils.data.DataLoader)


def test_input_groups_share_their_batch():
    opts = options(2, 4).inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    assert poptorch.DataLoader(opts, numbers(), batch_size=3).combinedBatchSize == 2 * 2 * 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workers", [0, 2])
def test_last_item(mode, workers):
    arguments = {"batch_size": 3, "num_workers": workers}
    with make(mode, options(3), numbers(), drop_last=False, **arguments) as loader:
        assert [len(x) for x in items(loader)] == [9, 9, 2] and len(loader) == 3
    with make(mode, options(3), numbers(), **arguments) as loader:
        assert items(loader) == [list(range(9)), list(range(9, 18))] and len(loader) == 2


@pytest.mark.parametrize("mode", MODES)
def test_shuffle_draws_all_and_anew(mode):
    with make(mode, options(2), numbers(), batch_size=5, shuffle=True) as loader:
        epochs = [values(loader) for _ in range(4)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) > 1  # four equal permutations: less than 1e-54


@pytest.mark.parametrize("workers", [0, 2])
def test_shuffle_is_that_of_sync_mode(workers, seed):
    epochs = []
    for mode in MODES:
        torch.manual_seed(seed)
        arguments = {"batch_size": 5, "shuffle": True, "num_workers": workers}
        with make(mode, options(), numbers(100), **arguments) as loader:
            epochs.append([values(loader) for _ in range(2)])
    assert epochs[1] == epochs[0] and epochs[2] == epochs[0]


@pytest.mark.parametrize("mode", MODES)
def test_new_loaders_do_not_shuffle_alike(mode):
    epochs = []
    for _ in range(3):
        with make(mode, options(), numbers(100), batch_size=5, shuffle=True) as loader:
            epochs += [tuple(values(loader)) for _ in range(3)]
    assert len(set(epochs)) == 9


@pytest.mark.parametrize("mode", MODES)
def test_unbatched(mode):
    with make(mode, options(2), numbers(), batch_size=None) as loader:
        assert loader.combinedBatchSize is None and len(loader) == 20
        assert [x.item() for [x] in loader][:2] == [0, 1]


@pytest.mark.parametrize("mode", MODES)
def test_sampler_and_collate_function(mode):
    sampler = list(range(0, 20, 2))
    with make(mode, options(2), numbers(), batch_size=2, sampler=sampler,
              collate_fn=lambda rows: sum(x for x, in rows)) as loader:
        assert [x.item() for x in loader] == [0 + 2 + 4 + 6, 8 + 10 + 12 + 14]


@pytest.mark.sampled
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("persistent", [None, True, False])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_begins_anew(mode, persistent, workers):
    with make(mode, options(), numbers(), batch_size=5, num_workers=workers,
              persistent_workers=persistent) as loader:
        assert loader.persistent_workers == (persistent is not False and workers > 0)
        assert values(loader) == list(range(20))
        for item in loader:
            break
        assert item[0].tolist() == [0, 1, 2, 3, 4]
        assert values(loader) == list(range(20))


# -- batch samplers ------------------------------------------------------------------------------


class Uneven:
    """Batches of unequal size; how many is not known."""

    def __iter__(self):
        return iter([[0, 1], [2], [3, 4, 5], [6, 7], [8]])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workers", [0, 2])
def test_batch_sampler(mode, workers):
    with make(mode, options(2), numbers(), batch_sampler=Uneven(),
              num_workers=workers) as loader:
        assert loader.combinedBatchSize is None
        assert items(loader) == [[0, 1, 2], [3, 4, 5, 6, 7]]
        with pytest.raises(TypeError, match="has no len"):
            len(loader)
    with make(mode, options(2), numbers(), batch_sampler=Uneven(), drop_last=False,
              num_workers=workers) as loader:
        assert items(loader) == [[0, 1, 2], [3, 4, 5, 6, 7], [8]]


def test_length_with_batch_sampler():
    for drop_last, length in [(True, 2), (False, 3)]:
        sampler = BatchSampler(SequentialSampler(numbers()), 3, drop_last=False)
        loader = poptorch.DataLoader(options(3), numbers(), batch_sampler=sampler,
                                     drop_last=drop_last)
        assert len(loader) == length == len(items(loader))


def test_batch_sampler_joins_what_collate_returns():
    seen = []

    def collate(rows):
        seen.append(len(rows))
        x = torch.stack([x for x, in rows])
        return {"x": x, "name": [f"n{v}" for v in x.tolist()], "sum": x.sum()}

    loader = poptorch.DataLoader(options(2), numbers(), batch_sampler=Uneven(), collate_fn=collate)
    first = next(iter(loader))
    assert seen == [2, 1]
    assert first["x"].tolist() == [0, 1, 2] and first["name"] == ["n0", "n1", "n2"]
    assert first["sum"].tolist() == [1, 2]


@pytest.mark.parametrize("mode", MODES)
def test_the_last_item_has_the_dimensions_of_the_others(mode):
    def collate(rows):
        return torch.stack([x for x, in rows]).sum()

    sampler = BatchSampler(SequentialSampler(numbers(5)), 2, drop_last=False)
    with make(mode, options(2), numbers(5), batch_sampler=sampler, collate_fn=collate,
              drop_last=False) as loader:
        assert [x.tolist() for x in loader] == [[1, 5], [4]]


@pytest.mark.parametrize("size", [1, 2])
def test_rebatched_items_without_dimensions(size):
    """With one sample each they are those of the collate function."""
    with make(REBATCHED, options(size), Stream(3), collate_fn=lambda rows: rows[0],
              rebatched_worker_size=1, drop_last=False) as loader:
        assert [x.tolist() for x in loader] == ([0, 1, 2] if size == 1 else [[0, 1], [2]])


# -- iterable data sets --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_iterable(mode):
    with make(mode, options(2), Stream(11), batch_size=2) as loader:
        assert values(loader) == list(range(8)) and len(loader) == 2
    with make(mode, options(2), Stream(11, has_length=False), batch_size=2,
              drop_last=False) as loader:
        assert [len(x) for x in loader] == [4, 4, 3]
        with pytest.raises(TypeError, match="has no len"):
            len(loader)


@pytest.mark.parametrize("mode", [SYNC, ASYNC])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_workers_leave_out_their_own_tails(mode):
    with make(mode, options(), Stream(101), batch_size=4, num_workers=7) as loader:
        assert len(values(loader)) == 80 and len(loader) == 25
    with make(mode, options(), Stream(101), batch_size=4, num_workers=7,
              drop_last=False) as loader:
        assert sorted(values(loader)) == list(range(101)) and len(loader) == 26


@pytest.mark.sampled
@pytest.mark.parametrize("size", [None, 1, 3, 4])
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_rebatched_workers_leave_out_nothing(size):
    arguments = {"batch_size": 2, "num_workers": 7, "rebatched_worker_size": size}
    with make(REBATCHED, options(2), Stream(101), **arguments) as loader:
        drawn = values(loader)
        assert len(drawn) == len(set(drawn)) == 100 and len(loader) == 25
        assert loader.combinedBatchSize == 4
    with make(REBATCHED, options(2), Stream(101), drop_last=False, **arguments) as loader:
        lengths = [len(x) for x in loader]
        assert lengths == [4] * 25 + [1] and len(loader) == 26
        assert sorted(values(loader)) == list(range(101))


def test_rebatching_keeps_half_precision_and_structure():
    class Pairs(Stream):
        def __iter__(self):
            return ({"x": x.half(), "name": str(x.item())} for x in super().__iter__())

    with make(REBATCHED, options(2), Pairs(7), batch_size=2, rebatched_worker_size=3,
              drop_last=False) as loader:
        items = [{k: v.clone() if k == "x" else v for k, v in item.items()} for item in loader]
    assert [item["x"].tolist() for item in items] == [[0, 1, 2, 3], [4, 5, 6]]
    assert items[0]["x"].dtype is torch.float16 and items[1]["name"] == ["4", "5", "6"]


def test_rebatching_of_what_cannot_be_cut():
    def collate(rows):
        return torch.stack(rows), torch.zeros(7)

    with make(REBATCHED, options(3), Stream(6), collate_fn=collate,
              rebatched_worker_size=1) as loader:
        assert [(len(x), len(y)) for x, y in loader] == [(3, 21), (3, 21)]
    with pytest.raises(poptorch.Error, match=r"lengths 2, 7. Use rebatched_worker_size=1"):
        poptorch.DataLoader(options(3), Stream(6), collate_fn=collate, mode=REBATCHED,
                            rebatched_worker_size=2, async_options=FORK)


# -- arguments -----------------------------------------------------------------------------------


def test_options_are_kept_and_frozen():
    opts = options(2)
    loader = poptorch.DataLoader(opts, numbers())
    assert loader.options is opts
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        opts.deviceIterations(3)
    poptorch.DataLoader(opts, numbers(), batch_size=2)


@pytest.mark.parametrize("arguments", [
    {"batch_size": 0}, {"pin": 3}, {"rebatched_worker_size": 0},
    {"mode": ASYNC, "async_options": {"buffer_size": 0}},
    {"mode": ASYNC, "async_options": FORK, "collate_fn": lambda rows: 1 / 0}])
def test_a_loader_that_cannot_be_built_freezes_nothing(arguments, capfd):
    opts = options()
    with pytest.raises((TypeError, ValueError, poptorch.Error)):
        poptorch.DataLoader(opts, numbers(), **arguments)
    assert opts.deviceIterations(3).device_iterations == 3
    capfd.readouterr()  # the process says what failed


def test_bad_arguments():
    with pytest.raises(TypeError, match="must be a poptorch.Options, got TensorDataset"):
        poptorch.DataLoader(numbers(), 4)
    with pytest.raises(ValueError, match="batch_size.*at least 1, got 0"):
        poptorch.DataLoader(options(), numbers(), batch_size=0)
    with pytest.raises(TypeError, match="num_workers. expected an int of at least 0, got NoneType"):
        poptorch.DataLoader(options(), numbers(), num_workers=None)
    with pytest.raises(TypeError, match="DataLoaderMode.Sync, DataLoaderMode.Async"):
        poptorch.DataLoader(options(), numbers(), mode="Sync")
    with pytest.raises(TypeError, match="unknown: bufer_size.*Did you mean buffer_size"):
        poptorch.DataLoader(options(), numbers(), async_options={"bufer_size": 1})
    with pytest.raises(TypeError, match="async_options. expected a dictionary, got int"):
        poptorch.DataLoader(options(), numbers(), async_options=3)
    with pytest.raises(TypeError, match="auto_distributed_partitioning. expected True or False"):
        poptorch.DataLoader(options(), numbers(), auto_distributed_partitioning=2)
    with pytest.raises(ValueError, match="at most the combined batch size 4, got 5"):
        poptorch.DataLoader(options(2), Stream(9), batch_size=2, mode=REBATCHED,
                            rebatched_worker_size=5)
    with pytest.raises(ValueError, match="mutually exclusive"):
        poptorch.DataLoader(options(), numbers(), batch_size=2, batch_sampler=Uneven())


def test_rebatched_worker_size_has_no_effect_in_other_modes():
    assert values(poptorch.DataLoader(options(2), numbers(), batch_size=5,
                                      rebatched_worker_size=30)) == list(range(20))


def test_terminate_has_no_effect_in_sync_mode():
    loader = poptorch.DataLoader(options(), numbers(), batch_size=10)
    loader.terminate()
    assert values(loader) == list(range(20))


def test_loaders_can_be_pickled():
    with make(ASYNC, options(2), numbers(), batch_size=5) as loader:
        copied = pickle.loads(pickle.dumps(loader))
        with loading(copied):
            assert copied.combinedBatchSize == 10
            assert values(copied) == values(loader) == list(range(20))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("output", list(poptorch.OutputMode))
def test_items_fit_each_output_mode(mode, output):
    opts = options(4).showCompilationProgressBar(False).outputMode(output, 2)
    model = poptorch.inferenceModel(torch.nn.Identity(), opts)
    data = TensorDataset(torch.arange(20.0))
    with make(mode, opts, data, batch_size=2) as loader:
        got = [model(x).tolist() for [x] in loader]
    whole = torch.arange(16.0).view(2, 4, 2)  # 4 samples are left out
    kept = {"Final": whole[:, -1:], "EveryN": whole[:, 1::2], "Sum": whole.sum(1, keepdim=True)}
    assert got == kept.get(output.name, whole).reshape(2, -1).tolist()
    model.destroy()


def test_random_sampler_with_a_generator(seed):
    def draw(mode):
        generator = torch.Generator().manual_seed(seed)
        with make(mode, options(), numbers(), batch_size=4,
                  sampler=RandomSampler(numbers(), generator=generator)) as loader:
            return values(loader)

    assert draw(SYNC) == draw(ASYNC) == draw(REBATCHED)


@pytest.mark.parametrize("mode", MODES)
def test_a_loader_without_items_warns(mode, capfd):
    """Twelve samples, and one call takes two hundred."""
    warning = "the data set has 12 samples, but batch_size and the options ask for items of 200"
    for drops, words in ((True, warning), (False, "")):
        opts, data = options(100), TensorDataset(torch.zeros(12))
        with make(mode, opts, data, batch_size=2, drop_last=drops) as loader:
            assert len(loader) == len(list(loader)) == (0 if drops else 1)
        told = " ".join(capfd.readouterr().err.split())
        assert words in told and ("[DataLoader]" in told) == drops
