"""AsynchronousDataAccessor: what it reads, the ring buffer, epochs, sharing strategies."""

import collections
import gc
import multiprocessing
import random

import numpy
import pytest
import torch
from torch.utils.data import TensorDataset

import poptorch
from poptorch import AsynchronousDataAccessor as Accessor
from poptorch.data import _worker
from tests.data.datasets import FORK, Stream, loading, numbers, options, values, wait_until


class Counting:
    """Counts the numbers that were drawn, in memory that all processes see."""

    def __init__(self, count=20):
        self.count, self.drawn = count, multiprocessing.get_context("fork").Value("i", 0)

    def __iter__(self):
        for i in range(self.count):
            with self.drawn.get_lock():
                self.drawn.value += 1
            yield torch.tensor(i)

    def stays_at(self, count):
        """Whether the number is reached, and not exceeded for a while."""
        return (wait_until(lambda: self.drawn.value >= count)
                and not wait_until(lambda: self.drawn.value > count, 0.2))


def test_sources():
    for data in [numbers(7), Stream(7), torch.arange(7), range(7),
                 torch.utils.data.DataLoader(numbers(7)),
                 poptorch.DataLoader(options(), numbers(7))]:
        with loading(Accessor(data, **FORK)) as accessor:
            drawn = [x[0] if isinstance(x, tuple | list) else x for x in accessor]
            assert len(accessor) == 7 and [int(x) for x in drawn] == list(range(7))


def test_samples_of_a_data_set_stay_as_they_are():
    with loading(Accessor(numbers(3), **FORK)) as accessor:
        assert [x.shape for x, in accessor] == [torch.Size([])] * 3
        assert all(isinstance(item, tuple) for item in accessor)


def test_rebatched_size():
    with loading(Accessor(numbers(7), rebatched_size=3, **FORK)) as accessor:
        assert [x.tolist() for x, in accessor] == [[0, 1, 2], [3, 4, 5]] and len(accessor) == 2
    for drop_last, length in [(True, 2), (False, 3)]:
        loader = poptorch.DataLoader(options(), Stream(7), drop_last=drop_last)
        with loading(Accessor(loader, rebatched_size=3, **FORK)) as accessor:
            assert [len(x) for x in accessor] == [3, 3, 1][:length] and len(accessor) == length
    with pytest.raises(ValueError, match="batch size of 1, got 2"):
        Accessor(poptorch.DataLoader(options(), numbers(), batch_size=2), rebatched_size=3)


Point = collections.namedtuple("Point", "x y")


class Holder:
    """A class of the user's."""

    def __init__(self, tensor, words):
        self.tensor, self.words = tensor, words


def test_any_structure_comes_through():
    x = torch.randn(4, 6)
    item = {"point": Point(x, [x.half(), None]), "view": x.t()[1:], "expanded": x[:1].expand(3, 6),
            "empty": torch.empty(0, 3), "scalar": torch.tensor(True), "wide": x.double(),
            "holder": Holder(x[2], ("a", 1.5)), "array": numpy.arange(3), "grad": x.clone(),
            "sparse": x.to_sparse(), "again": x, "odd": torch.arange(3, dtype=torch.uint8)}
    item["grad"].requires_grad_()
    with loading(Accessor([item], **FORK)) as accessor:
        [got] = list(accessor)
    assert list(got) == list(item) and type(got["point"]) is Point
    assert got["again"] is got["point"].x and got["point"].y[1] is None
    assert got["holder"].words == ("a", 1.5) and got["holder"].tensor.equal(x[2])
    assert got["array"].tolist() == [0, 1, 2] and got["sparse"].to_dense().equal(x)
    assert got["grad"].requires_grad and got["grad"].equal(item["grad"])
    for name in ("view", "expanded", "empty", "scalar", "wide", "again", "odd"):
        assert got[name].equal(item[name]) and got[name].dtype is item[name].dtype


def test_items_of_any_size():
    sizes = [3, 50000, 0, 7, 400000, 1, 2, 50001]
    with loading(Accessor([torch.full((n,), n) for n in sizes], **FORK)) as accessor:
        for _ in range(2):
            assert [(len(x), x.unique().tolist()) for x in accessor] == [
                (n, [n] if n else []) for n in sizes]


def test_items_without_tensors():
    with loading(Accessor(["a", None, 3], **FORK)) as accessor:
        assert list(accessor) == ["a", None, 3]


# -- the ring --------------------------------------------------------------------------------------


def test_early_preload_fills_the_buffer():
    data = Counting()
    with loading(Accessor(data, buffer_size=4, early_preload=True, **FORK)):
        # Five slots, and one item in the hand.
        assert data.stays_at(6)


def test_only_the_first_item_is_loaded_before_an_iterator_is_made():
    data = Counting()
    with loading(Accessor(data, buffer_size=4, **FORK)) as accessor:
        assert data.stays_at(1)
        iter(accessor)
        assert data.stays_at(6)


@pytest.mark.parametrize("indefinitely", [True, False])
def test_load_indefinitely(indefinitely):
    data = Counting(3)
    with loading(Accessor(data, buffer_size=4, load_indefinitely=indefinitely,
                          **FORK)) as accessor:
        assert [int(x) for x in accessor] == [0, 1, 2]
        # Of the five slots one is held by the last item; one more item is in the hand.
        assert data.stays_at(3 + 5 if indefinitely else 3)
        assert [int(x) for x in accessor] == [0, 1, 2]


def test_memory_is_used_again():
    data = [torch.full((1000,), i) for i in range(50)]
    with loading(Accessor(data, buffer_size=2, **FORK)) as accessor:
        addresses = [x.data_ptr() for x in accessor]
    assert len(set(addresses)) == 3


def test_memory_in_use_is_not_written_to():
    data = [torch.full((1000,), i) for i in range(20)]
    with loading(Accessor(data, buffer_size=2, **FORK)) as accessor:
        kept = list(accessor)
        every_third = [x[10:20] for i, x in enumerate(accessor) if i % 3 == 0]
    del accessor
    gc.collect()
    assert all(x.eq(i).all() for i, x in enumerate(kept))
    assert all(x.eq(3 * i).all() for i, x in enumerate(every_third))


class FullThenFree:
    """A stand-in for what the parent wants: slot 3 becomes free during the first rest."""

    def __init__(self):
        self.wanted, self.free_slots, self.rests = 0, collections.deque(), []

    def check(self):
        pass

    def wait_until(self, is_true):
        assert is_true()

    def rest(self, seconds):
        self.rests.append(seconds)
        self.free_slots += [3, 4]


def test_rest_when_the_buffer_is_full():
    with loading(Accessor(range(3), miss_sleep_time_in_ms=70, **FORK)) as accessor:
        settings = accessor._settings
    worker = object.__new__(_worker._Worker)
    worker._settings, worker._control = settings, FullThenFree()
    assert [worker._free_slot(0) for _ in range(2)] == [3, 4]
    assert worker._control.rests == [0.07]


def test_a_long_rest_does_not_delay_the_end():
    data = Counting()
    with loading(Accessor(data, buffer_size=1, early_preload=True, miss_sleep_time_in_ms=3600e3,
                          **FORK)) as accessor:
        assert data.stays_at(3)
        process = accessor._link._process
    assert process.exitcode == 0


def test_only_the_newest_iterator_is_valid():
    with loading(Accessor(range(5), **FORK)) as accessor:
        old = iter(accessor)
        assert next(old) == 0
        new = iter(accessor)
        with pytest.raises(poptorch.Error, match="no longer valid: a newer one"):
            next(old)
        assert list(new) == list(range(5))
        with pytest.raises(StopIteration):
            next(new)


def test_two_iterators_before_the_first_item():
    """They do not share an epoch."""
    with loading(Accessor(range(4), **FORK)) as accessor:
        with pytest.raises(poptorch.Error, match="no longer valid: a newer one"):
            next(zip(accessor, accessor))
        old, new = iter(accessor), iter(accessor)
        assert list(new) == list(range(4))
        with pytest.raises(poptorch.Error, match="no longer valid: a newer one"):
            next(old)
        assert list(accessor) == list(range(4))


class Drawing:
    """Numbers of all generators that a data set may use."""

    def __iter__(self):
        for _ in range(4):
            yield torch.rand(1).item(), random.random(), numpy.random.random()


def test_each_accessor_draws_other_numbers(seed):
    """Different from the program's own afterwards; the first one gets the program's numbers."""
    _seed_all(seed)
    expected = list(Drawing())
    _seed_all(seed)
    drawn = []
    for _ in range(3):
        with loading(Accessor(Drawing(), **FORK)) as accessor:
            drawn += [*accessor, *accessor]
    drawn += Drawing()
    assert drawn[:4] == expected
    for numbers_of_one in zip(*drawn):
        assert len(set(numbers_of_one)) == len(drawn) == 28


def _seed_all(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


def test_an_empty_source():
    with loading(Accessor([], **FORK)) as accessor:
        assert list(accessor) == list(accessor) == [] and len(accessor) == 0
    with loading(poptorch.DataLoader(options(50), numbers(), mode=poptorch.DataLoaderMode.Async,
                                     async_options=FORK)) as loader:
        assert list(loader) == []


@pytest.mark.parametrize("indefinitely", [True, False])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_epochs_left_at_any_place(size, indefinitely):
    with loading(Accessor(range(4), buffer_size=size, load_indefinitely=indefinitely,
                          **FORK)) as accessor:
        for stop in [0, 1, 3, 4, 2, 5, 1, 1]:
            seen = []
            for value in accessor:
                if len(seen) == stop:
                    break
                seen.append(value)
            assert seen == list(range(min(stop, 4)))


# -- arguments and strategies ----------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("strategy", [
    poptorch.SharingStrategy.ForkServer,
    pytest.param(poptorch.SharingStrategy.SharedMemory, marks=pytest.mark.slow),
    poptorch.SharingStrategy.FileSystem], ids=lambda s: s.name)
def test_sharing_strategies(strategy):
    data = TensorDataset(torch.arange(6.0), torch.arange(6))
    loader = poptorch.DataLoader(options(2), data, batch_size=2,
                                 mode=poptorch.DataLoaderMode.Async, num_workers=1,
                                 async_options={"sharing_strategy": strategy})
    with loading(loader):
        assert [(x.tolist(), y.tolist()) for x, y in loader] == [
            ([0.0, 1.0, 2.0, 3.0], [0, 1, 2, 3])]
        assert values(loader) == [0, 1, 2, 3]


def test_files_of_the_data_set_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for data in [lambda: 1, None]:
        with pytest.raises((poptorch.Error, TypeError)):
            Accessor([data, torch.Generator(), lambda: 1],
                     sharing_strategy=poptorch.SharingStrategy.FileSystem)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("strategy", [s for s in poptorch.SharingStrategy if s.name != "Fork"],
                         ids=lambda s: s.name)
def test_what_cannot_be_pickled(strategy):
    with pytest.raises(poptorch.Error, match=rf"{strategy.name}.*SharingStrategy.Fork, which"):
        Accessor([lambda: 1], sharing_strategy=strategy)


def test_a_fork_pickles_nothing():
    class Local(TensorDataset):
        """Cannot be found by its name."""

    with loading(Accessor(Local(torch.arange(3)), **FORK)) as accessor:
        assert [int(x) for x, in accessor] == [0, 1, 2]


def test_bad_arguments():
    with pytest.raises(TypeError, match="expected a data set, a DataLoader or another iterable"):
        Accessor(3)
    with pytest.raises(ValueError, match="buffer_size. expected an int of at least 1, got 0"):
        Accessor(numbers(), buffer_size=0)
    with pytest.raises(TypeError, match="load_indefinitely. expected True or False"):
        Accessor(numbers(), load_indefinitely=1)
    with pytest.raises(TypeError, match="early_preload. expected True or False"):
        Accessor(numbers(), early_preload=None)
    with pytest.raises(TypeError, match="SharingStrategy.ForkServer"):
        Accessor(numbers(), sharing_strategy="fork")
    with pytest.raises(ValueError, match="rebatched_size. expected an int of at least 1"):
        Accessor(numbers(), rebatched_size=0)
    with pytest.raises(ValueError, match="time_in_ms. expected a finite number of at least 0"):
        Accessor(numbers(), miss_sleep_time_in_ms=-1)
    with pytest.raises(TypeError, match="a finite number of at least 0, got str"):
        Accessor(numbers(), miss_sleep_time_in_ms="1")
