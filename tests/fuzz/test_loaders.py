"""Arguments of loaders: the items that PyTorch's loader gives, or the argument that is refused."""

import collections

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, Dataset

import poptorch
from tests.fuzz.judge import attempt, budget
from tests.helpers import quiet_options

Pair = collections.namedtuple("Pair", ["first", "second"])
FORK = poptorch.SharingStrategy.Fork

# What a sample may be, of its number.
SAMPLES = {
    "number": lambda i: torch.tensor(i), "row": lambda i: torch.full((2,), float(i)),
    "half": lambda i: torch.tensor(i / 4, dtype=torch.float16), "int": lambda i: i,
    "float": lambda i: i / 2, "text": lambda i: f"sample {i}",
    "tuple": lambda i: (torch.tensor(i), i), "list": lambda i: [torch.tensor([i])],
    "dict": lambda i: {"x": torch.tensor(i), "y": {"z": (i, torch.ones(1))}},
    "pair": lambda i: Pair(torch.tensor(i), i * 2),
}


class Samples(Dataset):
    """``count`` samples of a kind."""

    def __init__(self, kind, count):
        self.kind, self.count = kind, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return SAMPLES[self.kind](index)


def check_equal(ours, expected):
    """Two items hold the same, and are of the same classes."""
    assert type(ours) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert ours.dtype is expected.dtype and torch.equal(ours, expected)
        return
    if isinstance(expected, dict):
        assert list(ours) == list(expected)
        ours, expected = list(ours.values()), list(expected.values())
    if isinstance(expected, list | tuple):
        assert len(ours) == len(expected)
        for one, other in zip(ours, expected):
            check_equal(one, other)
    else:
        assert ours == expected


def check_items(ours, expected):
    """Two loaders give equal items, in two epochs and as many as they say."""
    for epoch in range(2):
        torch.manual_seed(epoch)
        found = list(ours)
        torch.manual_seed(epoch)
        wanted = list(expected)
        check_equal(found, wanted)
        assert len(ours) == len(found)


cuts = st.tuples(st.sampled_from([1, 1, 2, 3]), st.sampled_from([1, 1, 2]),
                 st.sampled_from([1, 1, 2]))


def options_of(cut):
    iterations, replicas, accumulation = cut
    return quiet_options(deviceIterations=iterations, replicationFactor=replicas,
                         Training__gradientAccumulation=accumulation)


@st.composite
def loaders(draw):
    """A data set, options, and arguments of a loader."""
    count = draw(st.sampled_from([0, 1, 2, 5, 12, 13, 24]))
    arguments = {"batch_size": draw(st.integers(1, 5)), "drop_last": draw(st.booleans())}
    if draw(st.booleans()):
        arguments["shuffle"] = True
    elif draw(st.booleans()):
        arguments["sampler"] = draw(st.permutations(range(count))) + [0] * min(count, 1)
    if draw(st.integers(0, 3)) == 0:
        arguments["collate_fn"] = tuple
    if count == 0:
        arguments.pop("shuffle", None)  # PyTorch refuses it
    return draw(st.sampled_from(sorted(SAMPLES))), count, draw(cuts), arguments


def size_of(cut):
    return cut[0] * cut[1] * cut[2]


@budget(60)
@given(loaders())
def test_items_are_those_of_pytorch(case):
    kind, count, cut, arguments = case
    data = Samples(kind, count)
    ours = poptorch.DataLoader(options_of(cut), data, **arguments)
    combined = arguments["batch_size"] * size_of(cut)
    assert ours.combinedBatchSize == combined
    check_items(ours, DataLoader(data, **{**arguments, "batch_size": combined}))


@budget(30)
@given(st.sampled_from(sorted(set(SAMPLES) - {"int", "float"})), st.integers(0, 14),
       st.integers(1, 4), cuts, st.booleans())
def test_batches_of_a_sampler_are_joined(kind, count, batch_size, cut, drop_last):
    data = Samples(kind, count)
    sampler = BatchSampler(range(count), batch_size, drop_last=True)
    ours = poptorch.DataLoader(options_of(cut), data, batch_sampler=sampler, drop_last=drop_last)
    # Full batches one after the other are larger batches.
    rows = range(len(sampler) * batch_size)
    check_items(ours, DataLoader(data, sampler=rows, batch_size=batch_size * size_of(cut),
                                 drop_last=drop_last))


@budget(2)
@given(case=loaders(), mode=st.sampled_from([poptorch.DataLoaderMode.Async,
                                             poptorch.DataLoaderMode.AsyncRebatched]),
       buffer_size=st.integers(1, 4), rest=st.sampled_from([0.0, 0.1, 2.0]),
       indefinitely=st.booleans(), early=st.booleans())
def test_items_of_another_process(case, mode, buffer_size, rest, indefinitely, early):
    kind, count, cut, arguments = case
    arguments.pop("shuffle", None)  # its process may draw an epoch ahead: tests/data
    data = Samples(kind, count)
    ours = poptorch.DataLoader(options_of(cut), data, mode=mode, async_options={
        "buffer_size": buffer_size, "miss_sleep_time_in_ms": rest,
        "load_indefinitely": indefinitely, "early_preload": early, "sharing_strategy": FORK,
    }, **arguments)
    try:
        plain = DataLoader(data, **{**arguments, "batch_size": ours.combinedBatchSize})
        for _ in range(2):
            items = iter(plain)
            for item in ours:
                check_equal(item, next(items))  # its memory is used again later
            assert next(items, None) is None
    finally:
        ours.terminate()


# -- arguments that no loader takes ------------------------------------------------------------

LARGE = 10**5
strange = st.sampled_from([None, -1, 0, 2.5, "x", True, float("nan"), float("inf"), [1], {"a": 1},
                           LARGE, torch.ones(2), len, poptorch.OutputMode.All])


def is_one_of(*allowed):
    """Tells whether a value is one of these, and of the same type."""
    return lambda value: any(type(value) is type(x) and value == x for x in allowed)


TAKES = {  # what each argument takes of these
    "options": is_one_of(), "mode": is_one_of(), "batch_size": is_one_of(None, LARGE),
    "num_workers": is_one_of(0), "rebatched_worker_size": is_one_of(None, LARGE),
    "auto_distributed_partitioning": is_one_of(True),
}
ASYNC_TAKES = {
    "buffer_size": is_one_of(LARGE), "miss_sleep_time_in_ms": is_one_of(0, 2.5, LARGE),
    "load_indefinitely": is_one_of(True), "early_preload": is_one_of(True),
    "sharing_strategy": is_one_of(), "rebatched_size": is_one_of(None, LARGE),
}


@budget(60)
@given(st.sampled_from(sorted(TAKES)), strange)
def test_strange_arguments(name, value):
    if name == "num_workers" and is_one_of(LARGE)(value):
        return  # PyTorch only warns of it
    arguments = {"options": quiet_options(deviceIterations=2), "dataset": Samples("row", 4)}
    loader, error = attempt(lambda: poptorch.DataLoader(**{**arguments, name: value}))
    if TAKES[name](value):
        expected = {None: 4, LARGE: 0}[value] if name == "batch_size" else 2
        assert error is None and len(list(loader)) == expected, error
    else:
        assert error is not None and name.split("_")[0] in str(error), (name, value, error)


@budget(60)
@given(st.sampled_from(sorted(ASYNC_TAKES)), strange)
def test_strange_arguments_of_the_accessor(name, value):
    if ASYNC_TAKES[name](value):
        return  # a process would start
    _, error = attempt(lambda: poptorch.AsynchronousDataAccessor(range(3), **{name: value}))
    assert error is not None and name in str(error), (name, value, error)
